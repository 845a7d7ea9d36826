"""Packed rows, two of one prompt, give the values and gradients of padded ones, by a GPU's own attention kernels."""

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from delta_trl.scoring.stand_in import PACKED, StandIn, register_attention

from ..corpus import tiny


PROMPT, COLUMNS = 32, 96


def inputs(device: torch.device) -> dict:
    """Four rows, of which the second and the third have one prompt."""
    mask = torch.zeros(4, COLUMNS, dtype=torch.long, device=device)
    mask[0, 30:] = 1
    mask[1, :40] = 1
    mask[2, :80] = 1
    mask[3, 12:71] = 1
    ids = torch.randint(2, 38, mask.shape, device=device)
    ids[2, :PROMPT] = ids[1, :PROMPT]
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :PROMPT] = -100
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": labels,
        "fused_lm_head": True,
    }


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.02), (torch.float32, 1e-5)])
def test_values_and_gradients(device, dtype, tolerance):
    register_attention()
    model = tiny.model().to(device)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    batch = inputs(device)

    def results(of) -> list[torch.Tensor]:
        model.zero_grad()
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            output = of(**batch)
        output.log_probs.sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        return [output.log_probs, *gradients]

    with_padding = results(model)
    without = results(StandIn(model, PACKED, layers=2, share_prompts=True))
    for padded, packed in zip(with_padding, without, strict=True):
        difference = padded - packed
        assert difference.norm() <= tolerance * padded.norm()
