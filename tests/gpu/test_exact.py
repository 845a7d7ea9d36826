"""Exact credit: differences of log-probabilities, by a GPU's own attention kernels, against double backward passes."""

import torch

from ..corpus import tiny
from ..credit.test_full import assert_near_exact, exact_products, scorer
from ..trainers import credit


def test_differences_are_close(device):
    """Of random sequences in two micro-batches."""
    model = tiny.model(hidden_size=64, head_dim=16).to(device)
    ids = torch.randint(2, 39, (8, 40), device=device)
    weights = torch.randn(8 * 39, device=device)
    _, exact = exact_products(model, scorer(model, ids), weights)
    for dtype, autocast, tolerance, correlation in (
        (torch.float64, False, 1e-4, 0.9999),
        (torch.float32, False, 2e-2, 0.999),
        (torch.float32, True, 0.5, 0.98),
    ):
        assert_near_exact((model, ids, weights, exact), dtype, autocast, tolerance, correlation)


def test_activation_checkpointing_changes_no_coefficient(make, rollout):
    options = {**credit(token_gradient="full"), "per_device_train_batch_size": 4, "steps_per_generation": 2}
    found = [rollout(make(**options, activation_checkpointing=on))["token_coefficients"] for on in (False, True)]
    assert found[0].std() > 0
    torch.testing.assert_close(*found, atol=4e-3, rtol=0)
