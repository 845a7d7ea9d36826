"""Exact credit: differences of log-probabilities, by a GPU's own attention kernels, against double backward passes."""

import torch

from delta_trl.credit import FullGradients

from ..corpus import tiny
from ..credit.test_full import exact_products, scorer
from ..trainers import credit


WEIGHTS = torch.randn(8 * 39, generator=torch.Generator().manual_seed(1))


def gradients(device: torch.device, dtype: torch.dtype, autocast: bool = False) -> FullGradients:
    """Of random sequences in two micro-batches. The same ones whenever it is called."""
    torch.manual_seed(0)
    model = tiny.model(hidden_size=64, head_dim=16).to(device, dtype)
    ids = torch.randint(2, 39, (8, 40), device=device)
    return FullGradients(model, scorer(model, ids, autocast), 2, dtype=torch.bfloat16 if autocast else None)


def test_differences_are_close(device):
    found = gradients(device, torch.float64)
    _, exact = exact_products(found.model, found.log_probs_of, WEIGHTS.to(device))
    for dtype, autocast, tolerance, correlation in (
        (torch.float64, False, 1e-4, 0.9999),
        (torch.float32, False, 2e-2, 0.999),
        (torch.float32, True, 0.5, 0.98),
    ):
        found = gradients(device, dtype, autocast)
        ours = found.score(found.combine(WEIGHTS.to(device, dtype))).double()
        assert (ours - exact).norm() / exact.norm() < tolerance, (dtype, autocast)
        assert torch.corrcoef(torch.stack([ours, exact]))[0, 1] > correlation, (dtype, autocast)


def test_gradient_checkpointing_changes_no_coefficient(make, rollout):
    options = {**credit(token_gradient="full"), "per_device_train_batch_size": 4, "steps_per_generation": 2}
    found = [rollout(make(**options, gradient_checkpointing=on))["token_coefficients"] for on in (False, True)]
    assert found[0].std() > 0
    torch.testing.assert_close(*found, atol=4e-3, rtol=0)
