"""Two training processes, each with vLLM or a part of it: DDP, ZeRO-2, ZeRO-3, and tensor parallelism."""

import json
from pathlib import Path

import pytest

from ..distributed.launch import accelerate_launch


pytest.importorskip("vllm", reason="vLLM is not installed (make test-vllm)")

from .checked import assert_agree


pytestmark = pytest.mark.vllm


@pytest.fixture(autouse=True)
def _no_shared_memory_left():
    """vLLM names it after the ranks alone, and it outlives processes that end abruptly, as the worker's do."""
    for path in Path("/dev/shm").glob("-tp:*-cpushm_*"):
        path.unlink()


@pytest.mark.parametrize(
    ("mode", "scenarios"),
    [
        pytest.param("ddp", ["full"], marks=pytest.mark.slow),
        pytest.param("zero2", ["full", "lora"], marks=pytest.mark.slow),
        pytest.param("zero3", ["full"], marks=pytest.mark.slow),
        ("zero3", ["lora"]),
        pytest.param("ddp", ["tensor_parallel"], marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_sampling_and_coefficients(tmp_path, mode, scenarios):
    accelerate_launch(f"cpu_{mode}", "tests/vllm/worker.py", tmp_path, *scenarios)
    for scenario in scenarios:
        for rank in range(2):
            result = json.loads((tmp_path / f"{scenario}-{rank}.json").read_text())
            assert_agree(result["checks"])
            assert result["tensor_parallel"] == (2 if scenario == "tensor_parallel" else 1)
