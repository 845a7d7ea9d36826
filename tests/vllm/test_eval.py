"""`delta-trl eval` with unchanged vLLM, against transformers."""

import json
import sys
from pathlib import Path

import pytest

from ..distributed.launch import run


pytest.importorskip("vllm", reason="vLLM is not installed (make test-vllm)")
pytestmark = pytest.mark.vllm


SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # compiling, and importing all once more for the engine, take a minute each
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
OPTIONS = (
    "--model_name_or_path recipes/quickstart/model --benchmarks recipes/quickstart/test.jsonl "
    "--dtype float32 --temperature 0 --num_generations 1 --num_problems 128 --max_completion_length 56"
)


def completions(folder: Path, *generator: str) -> dict[int, str]:
    """Of each problem."""
    words = [*OPTIONS.split(), *generator, "--output_dir", folder]
    run([sys.executable, "-m", "delta_trl", "eval", *words])
    lines = (folder / "test.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["problem"]: row["completion"] for row in rows}


def test_vllm_and_transformers_give_the_same_greedy_completions(tmp_path, monkeypatch):
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    of_vllm = completions(tmp_path / "vllm", "--use_vllm", "true", "--vllm_kwargs", "{enforce_eager: true}")
    of_transformers = completions(tmp_path / "transformers", "--use_cpu", "true")
    assert len(of_vllm) == 128
    assert of_vllm == of_transformers
