"""Every rule trains on the device: no tensor is left behind on another one, and losses are finite."""

import math

import pytest

from delta_trl.credit import RULES, make_rule

from ..trainers import MISALIGNED, credit, logged
from .conftest import CUDA


TOKEN_GRADIENTS = {f"delta, {name}": credit(token_gradient=name) for name in ("topk_hidden", "lm_head", "full")}
OPTIONS = {**{name: credit(name) for name in RULES}, **TOKEN_GRADIENTS}


# tests/trainer/test_rules.py trains a rule of each hook on a processor
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), CUDA], indirect=True)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_rule_trains(make, on_gpu, options):
    logs = make_rule(*options.values()).credits_rollouts
    trainer = make(**MISALIGNED, **options, max_steps=4, bf16=on_gpu, log_token_credit=2 if logs else 0)
    trainer.train()
    losses = logged(trainer, "loss")
    assert len(losses) == 4
    assert all(map(math.isfinite, losses))
