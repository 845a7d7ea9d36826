"""Controls and ablations around the coefficients: group scope, side means, random λ, token selection."""

import numpy as np
import pytest
import torch

from delta_trl.credit import (
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TopKHiddenGradients,
    group_coefficients,
    random_coefficients,
    select_tokens,
    side_mean,
    token_coefficients,
)

from . import oracle
from .test_coefficients import explicit_vectors, random_batch


def test_groups_are_contrasted_on_their_own():
    hidden, log_probs, advantages = random_batch(0)
    groups = torch.arange(len(advantages)) % 3
    advantages[groups == 2] = advantages[groups == 2].abs()  # no losers
    ours = group_coefficients(OutputRowGradients(hidden, log_probs), advantages, groups, 3)
    lam, v = np.full(len(advantages), 0.8), explicit_vectors(hidden, log_probs)
    for g in range(3):
        lam[groups == g] = oracle.coefficients(v[groups == g], advantages[groups == g], normalize=False)[0]
    lam[advantages == 0] = 0.8
    np.testing.assert_allclose(ours.numpy(), lam / lam.mean(), rtol=1e-6)


def test_one_group_is_the_batch():
    hidden, log_probs, advantages = random_batch(1)
    gradients = OutputRowGradients(hidden, log_probs)
    ours = group_coefficients(gradients, advantages, torch.zeros(len(advantages)), 1)
    torch.testing.assert_close(ours, token_coefficients(gradients, advantages))


def test_groups_without_contrast():
    hidden, log_probs, _ = random_batch(1, n=8)
    statistics = {}
    gradients = OutputRowGradients(hidden, log_probs)
    ours = group_coefficients(gradients, torch.zeros(8), torch.arange(8) % 2, 2, statistics=statistics)
    assert ours.tolist() == [1.0] * 8
    assert statistics["neutral"] == 1


@pytest.mark.parametrize("kind", ["output_row", "lm_head", "topk_hidden"])
def test_a_part_of_the_gradients(kind):
    hidden, tokens, head = torch.randn(10, 4), torch.randint(0, 7, (10,)), LMHead(torch.randn(7, 4))
    gradients = {
        "output_row": lambda: OutputRowGradients(hidden, -torch.rand(10)),
        "lm_head": lambda: LMHeadGradients(hidden, tokens, head),
        "topk_hidden": lambda: TopKHiddenGradients(hidden, tokens, head, 3),
    }[kind]()
    part = torch.tensor([1, 4, 5])
    weights = torch.zeros(10)
    weights[part] = torch.randn(3)
    direction = gradients.combine(weights)
    torch.testing.assert_close(gradients[part].combine(weights[part]), direction)
    torch.testing.assert_close(gradients[part].score(direction), gradients.score(direction)[part])


def test_side_mean_leaves_only_the_sides():
    hidden, log_probs, advantages = random_batch(2)
    c = token_coefficients(OutputRowGradients(hidden, log_probs), advantages)
    ours = side_mean(c, advantages)
    for side in (advantages > 0, advantages < 0):
        assert (ours[side] == ours[side][0]).all()
        torch.testing.assert_close(ours[side][0], c[side].mean())
    assert torch.equal(ours[advantages == 0], c[advantages == 0])
    torch.testing.assert_close(ours.mean(), torch.tensor(1.0))


def test_random_coefficients():
    advantages = random_batch(3, n=20_000)[2]
    raw = random_coefficients(advantages, 0.8, 1.2, normalize=False)
    assert (raw[advantages == 0] == 0.8).all()
    drawn = raw[advantages != 0]
    assert 0.8 <= drawn.min() < 0.81
    assert 1.19 < drawn.max() <= 1.2
    assert drawn.mean().item() == pytest.approx(1, abs=0.01)
    assert random_coefficients(advantages, 0.8, 1.2).mean().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("selection", ["top", "bottom", "random"])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_selection(selection, fraction):
    hidden, log_probs, advantages = random_batch(4)
    c = token_coefficients(OutputRowGradients(hidden, log_probs), advantages)
    raw = select_tokens(c, advantages, selection, fraction, normalize=False)
    trains = advantages != 0
    assert set(raw.tolist()) <= {0.0, 1.0}
    assert (raw[~trains] == 1).all()
    assert raw[trains].sum() == round(fraction * int(trains.sum()))
    kept, dropped = c[trains & (raw == 1)], c[trains & (raw == 0)]
    if selection != "random" and len(dropped):
        assert (kept.min() >= dropped.max()) if selection == "top" else (kept.max() <= dropped.min())
    weights = select_tokens(c, advantages, selection, fraction)
    assert weights.mean().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_selection_from_almost_nothing(n):
    weights = select_tokens(torch.ones(n), torch.ones(n), "top", 0.1)
    assert weights.isfinite().all()
    assert n == 0 or weights.mean() == 1


def test_all_is_all():
    c = torch.rand(5)
    assert select_tokens(c, torch.ones(5), "all", 0.5) is c
    with pytest.raises(ValueError, match="selection='half'"):
        select_tokens(c, torch.ones(5), "half", 0.5)
