"""`delta-trl eval` with unchanged vLLM, against transformers."""

import json
import sys

import pytest

from ..distributed.launch import run


pytest.importorskip("vllm", reason="vLLM is not installed (make test-vllm)")
pytestmark = pytest.mark.vllm


def test_vllm_and_transformers_give_the_same_greedy_completions(tmp_path, monkeypatch):
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    # compiling, and importing all once more for the engine, take a minute each
    settings |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    options = "--model_name_or_path recipes/quickstart/model --benchmarks recipes/quickstart/test.jsonl"
    options += " --dtype float32 --temperature 0 --num_generations 1 --num_problems 128 --max_completion_length 56"
    samples = []
    for generator in (["--use_vllm", "true", "--vllm_kwargs", "{enforce_eager: true}"], ["--use_cpu", "true"]):
        folder = tmp_path / f"{len(samples)}"
        arguments = [*options.split(), *generator, "--output_dir", folder]
        run([sys.executable, "-m", "delta_trl", "eval", *arguments])
        rows = map(json.loads, (folder / "test.jsonl").read_text().splitlines())
        samples.append({row["problem"]: row["completion"] for row in rows})
    assert len(samples[0]) == 128
    assert samples[0] == samples[1]
