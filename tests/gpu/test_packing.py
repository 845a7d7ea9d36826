"""Packed rows, two of one prompt, give the values and gradients of padded ones, by a GPU's own attention kernels."""

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from delta_trl.scoring.stand_in import PACKED, StandIn, register_attention

from ..corpus import tiny


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.02), (torch.float32, 1e-5)])
def test_values_and_gradients(device, dtype, tolerance):
    register_attention()
    torch.manual_seed(0)
    model = tiny.model().to(device)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    mask = torch.zeros(4, 96, dtype=torch.long, device=device)
    for row, (first, last) in enumerate([(30, 96), (0, 40), (0, 80), (12, 71)]):
        mask[row, first:last] = 1
    ids = torch.randint(2, 38, mask.shape, device=device)
    ids[2, :32] = ids[1, :32]
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :32] = -100
    results = []
    for callable_model in (model, StandIn(model, PACKED, layers=2, share_prompts=True)):
        model.zero_grad()
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            output = callable_model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        output.log_probs.sum().backward()
        results.append([output.log_probs, *(parameter.grad for parameter in model.parameters())])
    for padded, packed in zip(*results, strict=True):
        assert (padded - packed).norm() <= tolerance * padded.norm()
