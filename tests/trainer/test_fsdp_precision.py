"""Precision of log-probabilities under FSDP2; `tests/distributed` looks at the log-probabilities themselves."""

from types import SimpleNamespace

import pytest
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from trl import GRPOTrainer

from delta_trl.trainer.fsdp_precision import FSDPPrecision


class Plain(FSDPPrecision, GRPOTrainer):
    pass


@pytest.mark.parametrize(("fsdp2", "output"), [(True, None), (False, torch.bfloat16)])
def test_fsdp2_casts_no_outputs(monkeypatch, fsdp2, output):
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, torch.bfloat16)
    plugin = SimpleNamespace(mixed_precision_policy=policy)
    accelerator = SimpleNamespace(is_fsdp2=fsdp2, state=SimpleNamespace(fsdp_plugin=plugin))
    monkeypatch.setattr(
        GRPOTrainer, "create_accelerator_and_postprocess", lambda self: vars(self).update(accelerator=accelerator)
    )
    Plain.create_accelerator_and_postprocess(object.__new__(Plain))  # FSDP needs a GPU or several processes
    assert plugin.mixed_precision_policy == MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, output)
