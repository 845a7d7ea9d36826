"""Controls and ablations around the coefficients: group scope, side means, random λ, token selection."""

import numpy as np
import pytest
import torch

from delta_trl.credit import (
    Credit,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    RandomCredit,
    Selected,
    SideMean,
    TokenCredit,
    Tokens,
    TopKHiddenGradients,
    token_coefficients,
)
from delta_trl.credit.groups import group_advantages, group_credit

from . import oracle
from .batches import explicit_vectors, random_batch


class Given(TokenCredit):
    """Weights that are known beforehand."""

    def __init__(self, weights):
        self.weights = weights

    def of_rollout(self, tokens):
        return Credit(self.weights)


def tokens_with(advantages) -> Tokens:
    """Completions of one token each."""
    return Tokens(torch.zeros(len(advantages), 1, dtype=torch.long), torch.ones(len(advantages), 1), advantages)


def test_equal_rewards_are_no_advantage():
    """Eight tenths differ from their mean by rounding."""
    rewards = torch.tensor([*[0.1] * 8, 1.0, 0.0, torch.nan, 0.3])
    advantages = group_advantages(rewards, torch.tensor([*[0] * 8, 1, 1, 1, 2]))
    assert advantages[8:10].tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-3)
    assert advantages.nonzero()[:, 0].tolist() == [8, 9]


def test_groups_are_contrasted_on_their_own():
    hidden, log_probs, advantages = random_batch(0)
    groups = torch.arange(len(advantages)) % 3
    advantages[groups == 2] = advantages[groups == 2].abs()  # no losers
    ours = group_credit(OutputRowGradients(hidden, log_probs), advantages, groups, 3).weights
    lam, v = np.full(len(advantages), 0.8), explicit_vectors(hidden, log_probs)
    for g in range(3):
        lam[groups == g] = oracle.coefficients(v[groups == g], advantages[groups == g], normalize=False)[0]
    lam[advantages == 0] = 0.8
    np.testing.assert_allclose(ours.numpy(), lam / lam.mean(), rtol=1e-6)


@pytest.mark.parametrize("low_high", [(0.0, 0.5), (1.5, 2.0)])
def test_tokens_of_a_group_without_contrast_have_the_middle_of_the_range(low_high):
    hidden, log_probs, advantages = random_batch(0)
    groups = torch.arange(len(advantages)) % 3
    advantages[groups == 2] = advantages[groups == 2].abs()  # no losers
    options = dict(zip(("lambda_min", "lambda_max"), low_high, strict=True))
    ours = group_credit(OutputRowGradients(hidden, log_probs), advantages, groups, 3, normalize=False, **options)
    trained = advantages != 0
    assert ours.weights[(groups == 2) & trained].unique().tolist() == [sum(low_high) / 2]
    assert ours.weights[(groups != 2) & trained].unique().numel() > 2


def test_one_group_is_the_batch():
    hidden, log_probs, advantages = random_batch(1)
    gradients = OutputRowGradients(hidden, log_probs)
    ours = group_credit(gradients, advantages, torch.zeros(len(advantages), dtype=torch.long), 1)
    torch.testing.assert_close(ours.weights, token_coefficients(gradients, advantages))


def test_groups_without_contrast():
    hidden, log_probs, _ = random_batch(1, n=8)
    credit = group_credit(OutputRowGradients(hidden, log_probs), torch.zeros(8), torch.arange(8) % 2, 2)
    assert credit.weights.tolist() == [1.0] * 8
    assert credit.neutral


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
    ours = SideMean(Given(c)).of_rollout(tokens_with(advantages)).weights
    for side in (advantages > 0, advantages < 0):
        assert (ours[side] == ours[side][0]).all()
        torch.testing.assert_close(ours[side][0], c[side].mean())
    assert torch.equal(ours[advantages == 0], c[advantages == 0])
    torch.testing.assert_close(ours.mean(), torch.tensor(1.0))


def test_random_coefficients():
    tokens = tokens_with(random_batch(3, n=20_000)[2])
    raw = RandomCredit(normalize_coefficients=False).of_rollout(tokens).weights
    assert (raw[tokens.advantages == 0] == 0.8).all()
    drawn = raw[tokens.advantages != 0]
    assert 0.8 <= drawn.min() < 0.81
    assert 1.19 < drawn.max() <= 1.2
    assert drawn.mean().item() == pytest.approx(1, abs=0.01)
    assert RandomCredit().of_rollout(tokens).weights.mean().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("which", ["top", "bottom", "random"])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_selection(which, fraction):
    hidden, log_probs, advantages = random_batch(4)
    c = token_coefficients(OutputRowGradients(hidden, log_probs), advantages)
    raw = Selected(Given(c), which, fraction, normalize_coefficients=False).of_rollout(tokens_with(advantages)).weights
    trains = advantages != 0
    assert set(raw.tolist()) <= {0.0, 1.0}
    assert (raw[~trains] == 1).all()
    assert raw[trains].sum() == round(fraction * int(trains.sum()))
    kept, dropped = c[trains & (raw == 1)], c[trains & (raw == 0)]
    if which != "random" and len(dropped):
        assert (kept.min() >= dropped.max()) if which == "top" else (kept.max() <= dropped.min())
    weights = Selected(Given(c), which, fraction).of_rollout(tokens_with(advantages)).weights
    assert weights.mean().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_selection_from_almost_nothing(n):
    weights = Selected(Given(torch.ones(n)), fraction=0.1).of_rollout(tokens_with(torch.ones(n))).weights
    assert weights.isfinite().all()
    assert n == 0 or weights.mean() == 1


@pytest.mark.parametrize("kind", [SideMean, Selected])
def test_nothing_is_made_of_nothing(kind):
    rule = kind(TokenCredit())
    tokens = tokens_with(torch.ones(3))
    assert rule.of_rollout(tokens) is None
    assert rule.of_micro_batch(tokens) is None
    assert not rule.credits_rollouts
    assert not rule.credits_micro_batches


@pytest.mark.parametrize("rule", [SideMean, Selected])
def test_neutral_credit_stays_as_it_is(rule):
    neutral = Credit(torch.ones(3), neutral=True)
    inner = Given(None)
    inner.of_rollout = lambda tokens: neutral
    assert rule(inner).of_rollout(tokens_with(torch.ones(3))) is neutral
