"""Rules beside DelTA, controls, and what all of them promise."""

import math
from types import SimpleNamespace

import pytest
import torch

from delta_trl.credit import (
    FIPO,
    Credit,
    DelTA,
    FullGradients,
    RandomCredit,
    Selected,
    Shuffled,
    SideMean,
    SideWeights,
    TokenCredit,
    Tokens,
    make_rule,
)
from delta_trl.scoring.standalone import group_advantages

from ..documented import defaults
from .batches import random_batch, tokens_of


def tokens_with(advantages) -> Tokens:
    """Completions of one token each."""
    return Tokens(torch.zeros(len(advantages), 1, dtype=torch.long), torch.ones(len(advantages), 1), advantages)


def given(*weights: float) -> SimpleNamespace:
    """A rule whose weights are these."""
    return SimpleNamespace(of_rollout=lambda tokens: Credit(torch.tensor(weights).float()))


@pytest.fixture
def responses() -> Tokens:
    """Three responses of 5, 0 and 4 tokens: a winner, one without tokens, a loser."""
    mask = torch.arange(5) < torch.tensor([5, 0, 4])[:, None]
    return Tokens(torch.arange(15).view(3, 5), mask, torch.tensor([1.0, 2.0, -1.0]))


@pytest.mark.parametrize("rule", [FIPO, DelTA, RandomCredit, Selected, SideWeights])
def test_defaults_are_those_of_the_docstring(rule):
    said, real = defaults(rule)
    assert said == real != {}


def test_equal_rewards_are_no_advantage():
    """Eight tenths differ from their mean by rounding."""
    rewards = torch.tensor([*[0.1] * 8, 1.0, 0.0, torch.nan, 0.3])
    advantages = group_advantages(rewards, torch.tensor([*[0] * 8, 1, 1, 1, 2]))
    assert advantages[8:10].tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-3)
    assert advantages.nonzero()[:, 0].tolist() == [8, 9]


class StandIn:
    """A policy of three responses of up to 5 tokens. Keeps what it was asked for."""

    model, dtype, micro_batch_size = torch.nn.Linear(1, 1), None, 1

    def __init__(self):
        self.asked = []

    def log_probs_at(self, rows, length):
        self.asked.append((rows.tolist(), length))
        return torch.arange(15.0).view(3, 5)[rows, :length]


def test_forward_passes_end_where_their_completions_do(responses):
    tokens = Tokens(torch.zeros(3, 5).long(), responses.mask, torch.ones(3), policy=StandIn())
    assert tokens.log_probs_at(torch.tensor([2, 1])).tolist() == [10, 11, 12, 13]
    assert tokens.log_probs_at(torch.tensor([1])).tolist() == []
    assert tokens.policy.asked == [([2, 1], 4), ([1], 1)]


def test_exact_gradients_leave_out_responses_without_advantage():
    """And without tokens. The longest comes first."""
    mask = torch.arange(5) < torch.tensor([4, 0, 5])[:, None]
    for advantages, asked in (([1.0, 2.0, -1.0], [([2], 5), ([0], 4)]), ([1.0, 2.0, 0.0], [([0], 4)])):
        tokens = Tokens(torch.arange(15).view(3, 5), mask, torch.tensor(advantages), policy=StandIn())
        gradients = FullGradients.of(tokens)
        seen = torch.cat([gradients.log_probs_of(i) for i in range(gradients.n_batches)])
        assert tokens.ids[gradients.tokens].tolist() == seen.tolist()
        assert tokens.policy.asked == asked


# --- weights ---


def test_side_weights_have_mean_1_over_the_tokens_that_train():
    """By hand: the weights of the tokens that train have mean 1, the others are 1."""
    weights = SideWeights(0.9, 0.3).of_rollout(tokens_with(torch.tensor([2.0, 1.0, 0.5, -1.0, 0.0]))).weights
    mean = (3 * 0.9 + 0.3) / 4
    assert weights.tolist() == pytest.approx([0.9 / mean] * 3 + [0.3 / mean, 1.0])


@pytest.mark.parametrize("advantages", [[], [0.0] * 3, [1.0] * 3, [-1.0] * 3, [math.nan] * 3], ids=str)
@pytest.mark.parametrize(
    "rule",
    [
        SideWeights(),
        SideWeights(winners=0),
        SideWeights(losers=0),
        RandomCredit(),
        Selected(RandomCredit(), fraction=0.1),
    ],
)
def test_without_contrast_and_without_tokens(rule, advantages):
    weights = rule.of_rollout(tokens_with(torch.tensor(advantages))).weights
    assert torch.isfinite(weights).all()
    assert weights.mean().item() == pytest.approx(1) or not advantages


def test_side_mean_leaves_only_the_sides():
    tokens = tokens_with(torch.tensor([1.0, 2.0, -1.0, 0.0, -2.0]))
    weights = SideMean(given(1.0, 3.0, 7.0, 5.0, 8.0)).of_rollout(tokens).weights
    assert weights.tolist() == [2.0, 2.0, 7.5, 5.0, 7.5]


def test_random_coefficients_are_uniform_and_at_the_minimum_without_advantage():
    tokens = tokens_with(random_batch(3, n=20_000)[2])
    raw = RandomCredit(normalize_coefficients=False).of_rollout(tokens).weights
    assert (raw[tokens.advantages == 0] == 0.8).all()
    drawn = raw[tokens.advantages != 0]
    assert 0.8 <= drawn.min() < 0.81
    assert 1.19 < drawn.max() <= 1.2
    assert drawn.mean().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("which", "fraction", "expected"),
    [
        ("top", 0.1, [0, 0, 1, 1, 0]),
        ("top", 0.4, [0, 1, 1, 1, 0]),
        ("bottom", 0.6, [1, 1, 1, 0, 0]),
        ("top", 1.0, [1, 1, 1, 1, 1]),
        ("random", 0.5, [0.5, 0.5, 1, 0.5, 0.5]),
    ],
)
def test_a_selection_keeps_its_fraction_of_the_tokens_that_train(which, fraction, expected):
    """Of four tokens that train; of equal weights the first one. On the average if they are random."""
    tokens = tokens_with(torch.tensor([1.0, -1.0, 0.0, 2.0, -1.0]))
    rule = Selected(given(0.9, 1.1, 5.0, 1.2, 1.1), which, fraction, normalize_coefficients=False)
    drawn = torch.stack([rule.of_rollout(tokens).weights for _ in range(500)])
    assert (drawn.sum(dim=1) == sum(expected)).all()
    assert drawn.mean(dim=0).tolist() == pytest.approx(expected, abs=0.15 if which == "random" else 0)


def test_shuffling_is_fair(responses):
    """Every token of a response gets each of its weights equally often; responses keep theirs."""
    rule = Shuffled(given(*range(9)))
    drawn = torch.stack([rule.of_rollout(responses).weights for _ in range(1500)])
    torch.testing.assert_close(drawn.mean(dim=0), torch.tensor([2.0] * 5 + [6.5] * 4), atol=0.15, rtol=0)
    assert (drawn[:, :5].sort(dim=1).values == torch.arange(5.0)).all()
    assert (drawn[:, 5:].sort(dim=1).values == torch.arange(5.0, 9.0)).all()


@pytest.mark.parametrize("kind", [SideMean, Selected, Shuffled])
def test_a_control_is_as_its_rule_is(kind):
    rule = kind(DelTA(temperature_mode="initial"))
    assert rule.needs_hidden_states
    assert not kind(DelTA(token_gradient="full")).needs_hidden_states
    rule.load_state_dict({"temperatures": (1.0, 2.0)})
    assert rule.state_dict() == rule.rule.state_dict() == {"temperatures": (1.0, 2.0)}

    tokens, nothing = tokens_with(torch.ones(3)), kind(TokenCredit())
    assert nothing.of_rollout(tokens) is nothing.of_micro_batch(tokens) is None
    assert not nothing.credits_rollouts
    assert not nothing.credits_micro_batches
    neutral = DelTA().of_rollout(tokens_of(random_batch(2, zero_share=1.0)))
    assert neutral.neutral
    assert kind(SimpleNamespace(of_rollout=lambda tokens: neutral)).of_rollout(tokens) is neutral


# --- options ---


@pytest.mark.parametrize(
    "rule",
    [
        "delta:refinement_steps=-1",
        "delta:refinement_steps=true",
        "delta:lambda_min=1.3",  # above lambda_max
        "delta:lambda_min=-0.1",
        "delta:lambda_max=.inf",
        "delta:assignment=half",
        "delta:temperature_mode=half",
        "delta:token_gradient_top_k=0",
        "side_weights:losers=-1",
        "side_weights:winners=0,losers=0",
        "random:lambda_min=2.0",
        "selected:which=middle",
        "selected:fraction=0",
        "within_side:token_gradient=full",
        "fipo:decay=0",
        "fipo:clip=true",
    ],
)
def test_options_out_of_range(rule):
    option = rule.split(":")[1].split("=")[0]
    with pytest.raises(ValueError, match=f"{option}="):
        make_rule(rule)
    FIPO(decay=math.inf, clip=math.inf)  # bounds may be infinite
