"""Every rule trains on the device; so do FSDP2 and ZeRO in one process, and with vLLM in the training process."""

import math
import sys

import pytest

from delta_trl.credit import RULES, make_rule

from ..corpus import tiny
from ..distributed.launch import accelerate_launch, run
from ..distributed.test_trainer import WORKER, assert_same, read_results
from ..distributed.worker import WHOLE_PARAMETERS
from ..trainers import MISALIGNED, logged
from .conftest import CUDA


SLOW_CPU = pytest.param("cpu", marks=pytest.mark.slow)  # tests/trainer and tests/distributed train on a processor
NAMES = [name for name in RULES if name != "given"]
NAMES += ["given:source=tests.trainer.test_given.numbers"]
NAMES += [f"delta:token_gradient={name}" for name in ("topk_hidden", "lm_head", "full")]


@pytest.mark.parametrize("device", [SLOW_CPU, CUDA], indirect=True)
@pytest.mark.parametrize("rule", NAMES)
def test_every_rule_trains(make, on_gpu, rule):
    """No tensor is left behind on another device, and losses are finite."""
    credits_rollouts = make_rule(rule).credits_rollouts
    logs = 2 if credits_rollouts else 0
    trainer = make(**MISALIGNED, token_credit=rule, max_steps=4, bf16=on_gpu, log_token_credit=logs)
    trainer.train()
    losses = logged(trainer, "loss")
    assert len(losses) == 4
    assert all(map(math.isfinite, losses))


@pytest.mark.parametrize("mode", ["fsdp2", "zero2", "zero3"])
@pytest.mark.parametrize("device", [SLOW_CPU, CUDA], indirect=True)
def test_one_process_shards_nothing(tmp_path, device, mode):
    """The same coefficients and losses as without FSDP2 or ZeRO."""
    if mode != "fsdp2":
        pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    scenarios = ["full", "lora", *WHOLE_PARAMETERS]
    run([sys.executable, WORKER, tmp_path, "single", device.type, *scenarios])
    config = mode if device.type == "cuda" else f"cpu_{mode}"
    options = "--num_processes 1 --mixed_precision no --main_process_port 0"
    accelerate_launch(config, WORKER, tmp_path, mode, device.type, *scenarios, options=options)

    single = read_results(tmp_path, "single")
    found = read_results(tmp_path, mode)
    refused = WHOLE_PARAMETERS if mode == "zero3" else {}
    assert found.keys() == single.keys() - refused.keys()
    for name, ours in found.items():
        tolerance = 5e-3 if name.startswith("exact") else 1e-4
        assert_same(ours, single[name], name, tolerance)


def test_vllm_trains_without_extra_forward_passes(gpu, make_trainer, tmp_path, monkeypatch):
    """Its CPU build has tests of its own (tests/vllm)."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # TRL sets them for vLLM, and the next trainer would use DDP
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)
    path = tmp_path / "model"
    tiny.save(path, hidden_size=256, head_dim=64)  # heads as vLLM's kernels have them
    trainer = make_trainer(
        str(path),
        use_cpu=False,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.2,
        max_steps=4,
    )
    trainer.train()
    assert all(map(math.isfinite, logged(trainer, "loss")))
    assert set(logged(trainer, "credit/extra_forward_passes")) == {0.0}  # with the importance-sampling correction
