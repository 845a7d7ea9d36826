"""A short run with vLLM in the training process. Its CPU build has tests of its own (tests/vllm)."""

import math

import pytest

from ..corpus import tiny
from ..trainers import logged


def test_a_short_run(gpu, make_trainer, tmp_path, monkeypatch):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # TRL sets them for vLLM, and the next trainer would use DDP
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)
    path = tmp_path / "model"
    # heads as vLLM's kernels have them
    tiny.model(hidden_size=256, head_dim=64).save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    trainer = make_trainer(
        str(path), use_cpu=False, use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.2, max_steps=4
    )
    trainer.train()
    assert all(map(math.isfinite, logged(trainer, "loss")))
    assert set(logged(trainer, "credit/extra_forward_passes")) == {0.0}  # with the importance-sampling correction
