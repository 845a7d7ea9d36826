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
    measured = (model, ids, weights, exact)
    assert_near_exact(measured, torch.float64, autocast=False, tolerance=1e-4, correlation=0.9999)
    assert_near_exact(measured, torch.float32, autocast=False, tolerance=2e-2, correlation=0.999)
    assert_near_exact(measured, torch.float32, autocast=True, tolerance=0.5, correlation=0.98)


def test_activation_checkpointing_changes_no_coefficient(make, rollout):
    options = {**credit(token_gradient="full"), "per_device_train_batch_size": 4, "steps_per_generation": 2}

    def coefficients(activation_checkpointing: bool) -> torch.Tensor:
        trainer = make(**options, activation_checkpointing=activation_checkpointing)
        return rollout(trainer)["token_coefficients"]

    expected = coefficients(activation_checkpointing=False)
    assert expected.std() > 0
    torch.testing.assert_close(coefficients(activation_checkpointing=True), expected, atol=4e-3, rtol=0)
