"""`delta-trl eval` with unchanged vLLM, against transformers."""

import json
import sys

import pytest

from ..distributed.launch import run


pytest.importorskip("vllm", reason="vLLM is not installed (make test-vllm)")
pytestmark = pytest.mark.vllm


def test_the_same_completions(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    greedy = {"temperature": 0, "num_generations": 1, "num_problems": 128, "max_completion_length": 56}
    files = {"model_name_or_path": "recipes/quickstart/model", "benchmarks": "recipes/quickstart/test.jsonl"}
    samples = []
    for use_vllm in (True, False):
        folder = tmp_path / f"{use_vllm}"
        options = {**greedy, **files, "dtype": "float32", "output_dir": folder, "use_vllm": use_vllm, "use_cpu": True}
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        run([sys.executable, "-m", "delta_trl", "eval", *arguments])
        rows = map(json.loads, (folder / "test.jsonl").read_text().splitlines())
        samples.append({row["problem"]: row["completion"] for row in rows})
    assert len(samples[0]) == 128
    assert samples[0] == samples[1]
