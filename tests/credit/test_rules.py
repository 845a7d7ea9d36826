"""Rules beside DelTA, controls, and what all of them promise."""

import math
from inspect import signature
from types import SimpleNamespace

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from trl import GRPOConfig

from delta_trl.credit import (
    FIPO,
    Credit,
    DelTA,
    FullGradients,
    Given,
    RandomCredit,
    Selected,
    Shuffled,
    SideMean,
    SideWeights,
    TokenCredit,
    Tokens,
    make_rule,
)
from delta_trl.credit.names import find_rule
from delta_trl.credit.rule import TokenCreditError
from delta_trl.credit.rules import RULES
from delta_trl.scoring.standalone import group_advantages

from ..documented import defaults
from .batches import random_batch, tokens_of


def tokens_with(advantages) -> Tokens:
    """Completions of one token each."""
    advantages = torch.as_tensor(advantages)
    mask = torch.ones(len(advantages), 1, dtype=torch.long)
    return Tokens(torch.zeros_like(mask), mask, advantages)


def given(*weights: float) -> SimpleNamespace:
    """A rule whose weights are these."""
    return SimpleNamespace(of_rollout=lambda tokens: Credit(torch.tensor(weights).float(), {"of_rule": 3.0}))


def first_of_five(*lengths: int) -> torch.Tensor:
    """The mask of completions of these lengths, in five columns."""
    return torch.arange(5) < torch.tensor(lengths)[:, None]


@pytest.fixture
def responses() -> Tokens:
    """Three responses of 5, 0 and 4 tokens: a winner, one without tokens, a loser."""
    ids = torch.arange(15).view(3, 5)
    return Tokens(ids, first_of_five(5, 0, 4), torch.tensor([1.0, 2.0, -1.0]))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_defaults_are_those_of_the_docstring(rule):
    said, real = defaults(rule)
    assert said == real
    inherited = signature(rule.__base__).parameters
    for name, option in signature(rule).parameters.items():
        if isinstance(option.default, int | float | str) and name not in inherited:
            assert name in said


def test_equal_rewards_are_no_advantage():
    """Eight tenths differ from their mean by rounding."""
    rewards = torch.tensor([0.1] * 8 + [1.0, 0.0, torch.nan] + [0.3])
    groups = torch.tensor([0] * 8 + [1, 1, 1] + [2])
    advantages = group_advantages(rewards, groups)
    won, lost = advantages[8:10].tolist()
    assert won == pytest.approx(0.5**0.5, abs=1e-3)
    assert lost == pytest.approx(-won)
    assert not advantages[:8].any()
    assert not advantages[10:].any()


REWARDS = [-2.0, -1.0, 0.0, 0.5, 3.0, math.nan]


@hypothesis.given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(REWARDS)), max_size=12))
def test_advantages_are_grpos_over_each_group(responses):
    """In any order and number. NaN is no reward, and a reward alone no advantage."""
    groups, rewards = torch.tensor([*responses, (5, 1.0)]).T
    ours = group_advantages(rewards, groups.long())
    expected = torch.zeros(len(rewards))
    for group in groups.unique():
        members = (groups == group) & ~rewards.isnan()
        known = rewards[members]
        if len(known) > 1:
            expected[members] = (known - known.mean()) / (known.std() + 1e-4)
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_tokens_are_the_policys():
    ids = [
        [5, 6, 7, 8],
        [9, 10, 0, 0],
        [11, 1, 0, 0],
    ]
    mask = [
        [1, 1, 1, 1],
        [1, 1, 0, 0],
        [0, 0, 0, 0],  # it is cut off
    ]
    of_model = torch.ones(3, 4)
    of_model[0, 1:3] = 0
    batch = {
        "completion_ids": torch.tensor(ids),
        "completion_mask": torch.tensor(mask),
        "tool_mask": of_model,
        "advantages": torch.tensor([1.0, -1.0, 2.0]),
    }
    tokens = Tokens.of_batch(batch)
    assert tokens.ids.tolist() == [5, 8, 9, 10]
    assert tokens.row.tolist() == [0, 0, 1, 1]
    del batch["tool_mask"]
    assert Tokens.of_batch(batch).ids.tolist() == [5, 6, 7, 8, 9, 10]


class StandIn:
    """A policy of three responses of up to 5 tokens. Keeps what it was asked for."""

    model = torch.nn.Linear(1, 1)
    dtype = torch.bfloat16
    micro_batch_size = 1

    def __init__(self):
        self.asked = []

    def log_probs_at(self, rows, length):
        self.asked.append((rows.tolist(), length))
        return torch.arange(15.0).view(3, 5)[rows, :length]


def test_forward_passes_end_where_their_completions_do(responses):
    ids = torch.zeros(3, 5, dtype=torch.long)
    policy = StandIn()
    tokens = Tokens(ids, responses.mask, torch.ones(3), policy=policy)

    of_last_and_empty = tokens.log_probs_at(torch.tensor([2, 1]))
    of_empty = tokens.log_probs_at(torch.tensor([1]))

    assert of_last_and_empty.tolist() == [10, 11, 12, 13]
    assert of_empty.tolist() == []
    assert policy.asked == [([2, 1], 4), ([1], 1)]


@pytest.mark.parametrize(
    ("advantages", "asked"),
    [
        ([1.0, 2.0, -1.0], [([2], 5), ([0], 4)]),
        ([1.0, 2.0, 0.0], [([0], 4)]),
    ],
)
def test_exact_gradients_leave_out_responses_without_advantage(advantages, asked):
    """And without tokens. The longest comes first. Steps are those of autocast's dtype."""
    ids = torch.arange(15).view(3, 5)
    mask = first_of_five(4, 0, 5)
    policy = StandIn()
    tokens = Tokens(ids, mask, torch.tensor(advantages), policy=policy)

    gradients = FullGradients.of(tokens)
    log_probs = [gradients.log_probs_of(i) for i in range(gradients.n_batches)]

    assert policy.asked == asked
    assert not gradients.one_sided
    trained = tokens.ids[gradients.tokens]
    assert torch.cat(log_probs).tolist() == trained.tolist()


# --- weights ---


def test_side_weights_have_mean_1_over_the_tokens_that_train():
    """By hand: the weights of the tokens that train have mean 1, the others are 1."""
    tokens = tokens_with([2.0, 1.0, 0.5, -1.0, 0.0])
    weights = SideWeights(0.9, 0.3).of_rollout(tokens).weights
    mean = (3 * 0.9 + 0.3) / 4
    won = 0.9 / mean
    lost = 0.3 / mean
    assert weights.tolist() == pytest.approx([won, won, won, lost, 1.0])


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
    tokens = tokens_with(advantages)
    weights = rule.of_rollout(tokens).weights
    assert torch.isfinite(weights).all()
    assert weights.mean().item() == pytest.approx(1) or not advantages


def test_side_mean_leaves_only_the_sides():
    tokens = tokens_with([1.0, 2.0, -1.0, 0.0, -2.0])
    rule = SideMean(given(1.0, 3.0, 7.0, 5.0, 8.0))
    weights = rule.of_rollout(tokens).weights
    assert weights.tolist() == [2.0, 2.0, 7.5, 5.0, 7.5]


def test_random_coefficients_are_uniform_and_at_the_minimum_without_advantage():
    _, _, advantages = random_batch(3, n=20_000)
    rule = RandomCredit(lambda_min=0.5, lambda_max=2.5, normalize_coefficients=False)
    weights = rule.of_rollout(tokens_with(advantages)).weights
    trains = advantages != 0
    assert (weights[~trains] == 0.5).all()
    drawn = weights[trains]
    assert 0.5 <= drawn.min() < 0.51
    assert 2.49 < drawn.max() <= 2.5
    assert drawn.mean().item() == pytest.approx(1.5, abs=0.02)


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
    """
    Of four tokens that train; of equal weights the first one. On the average if they are random. Normalised, their
    mean with the token that does not train is 1.
    """
    tokens = tokens_with([1.0, -1.0, 0.0, 2.0, -1.0])
    inner = given(0.9, 1.1, 5.0, 1.2, 1.1)
    rule = Selected(inner, which, fraction, normalize_coefficients=False)
    drawn = torch.stack([rule.of_rollout(tokens).weights for _ in range(500)])
    kept = drawn.sum(dim=1)
    mean = drawn.mean(dim=0)
    noise = 0.15 if which == "random" else 0
    assert (kept == sum(expected)).all()
    assert mean.tolist() == pytest.approx(expected, abs=noise)

    rule.normalize_coefficients = True
    of_token_without_advantage = rule.of_rollout(tokens).weights[2].item()
    assert of_token_without_advantage == pytest.approx(5 / sum(expected))


def test_shuffling_is_fair(responses):
    """Every token of a response gets each of its weights equally often; responses keep theirs."""
    rule = Shuffled(given(*range(9)))
    drawn = torch.stack([rule.of_rollout(responses).weights for _ in range(1500)])

    mean = drawn.mean(dim=0)
    of_first, of_last = drawn[:, :5], drawn[:, 5:]
    assert mean[:5].tolist() == pytest.approx([2.0] * 5, abs=0.15)
    assert mean[5:].tolist() == pytest.approx([6.5] * 4, abs=0.15)
    assert (of_first.sort(dim=1).values == torch.arange(5)).all()
    assert (of_last.sort(dim=1).values == torch.arange(5, 9)).all()


CONTROLS = pytest.mark.parametrize("kind", [SideMean, Selected, Shuffled])


@CONTROLS
def test_a_control_is_as_its_rule_is(kind):
    rule = kind(DelTA(temperature_mode="initial"))
    assert rule.needs_hidden_states
    assert not kind(DelTA(token_gradient="full")).needs_hidden_states
    assert not rule.reads_all_rows
    assert kind(TokenCredit()).reads_all_rows

    state = {"temperatures": (1.0, 2.0)}
    rule.load_state_dict(state)
    assert rule.state_dict() == state
    assert rule.rule.state_dict() == state
    adaptive = kind(DelTA())  # a run that goes on with another option
    adaptive.load_state_dict(state)
    assert adaptive.state_dict() == {}
    rule.load_state_dict({})  # another training begins
    assert rule.state_dict() == kind(DelTA(temperature_mode="initial")).state_dict()


# --- options ---


@CONTROLS
def test_a_control_of_micro_batches(kind):
    """Credits them and no rollouts, and is refused where its rule is."""
    rule = kind(FIPO(decay=1.0))
    assert rule.credits_micro_batches
    assert not rule.credits_rollouts
    one_step = GRPOConfig("unused", steps_per_generation=1, use_cpu=True)
    with pytest.raises(ValueError, match="one optimiser step"):
        rule.check(SimpleNamespace(args=one_step))


def test_side_mean_of_a_micro_batch():
    mask = torch.ones(2, 2, dtype=torch.long)
    moved = torch.tensor([[0.0, 0.1], [0.0, 0.0]])
    tokens = Tokens(mask, mask, torch.tensor([1.0, -1.0]), log_probs=moved, old_log_probs=torch.zeros(2, 2))
    weights = SideMean(FIPO(decay=1.0)).of_micro_batch(tokens).weights
    mean = (math.exp(0.05) + math.exp(0.1)) / 2
    assert weights.tolist() == pytest.approx([mean, mean, 1.0, 1.0])


@CONTROLS
def test_a_control_changes_weights_alone(kind):
    """And keeps its rule's metrics. Advantages have no weights to change."""
    tokens = tokens_with([1.0, -1.0])
    assert kind(given(1.0, 2.0)).of_rollout(tokens).metrics == {"of_rule": 3.0}

    class Advantages(TokenCredit):
        def of_rollout(self, tokens):
            return Credit(advantages=torch.ones(2))

    with pytest.raises(
        TokenCreditError, match=rf"{kind.__name__} changes weights, but Advantages\(\) gives advantages"
    ):
        kind(Advantages()).of_rollout(tokens)


@CONTROLS
def test_a_control_credits_nothing_where_its_rule_does_not(kind):
    tokens = tokens_with(torch.ones(3))
    nothing = kind(TokenCredit())
    assert nothing.of_rollout(tokens) is None
    assert nothing.of_micro_batch(tokens) is None
    assert not nothing.credits_rollouts
    assert not nothing.credits_micro_batches


@CONTROLS
def test_a_control_leaves_neutral_credit_as_it_is(kind):
    tokens = tokens_of(random_batch(2, zero_share=1.0))
    neutral = DelTA().of_rollout(tokens)
    assert neutral.neutral
    rule = SimpleNamespace(of_rollout=lambda tokens: neutral)
    assert kind(rule).of_rollout(tokens) is neutral


@pytest.mark.parametrize(
    "rule",
    [
        "delta:refinement_steps=-1",
        "delta:refinement_steps=true",
        "delta:lambda_min=1.3",  # above lambda_max
        "delta:lambda_min=-0.1",
        "delta:lambda_max=.inf",
        "delta:lambda_max=0,lambda_min=0",
        "delta:assignment=half",
        "delta:temperature_mode=half",
        "delta:token_gradient_top_k=0",
        "side_weights:losers=-1",
        "side_weights:winners=0,losers=0",
        "random:lambda_min=2.0",
        "selected:which=middle",
        "selected:fraction=0",
        "within_side:token_gradient=full",
        "within_side:token_gradient=topk_hidden",
        "given:outside=-1,source=math.prod",
        "given:outcome_weight=-1,source=math.prod",
        "given:discount=1.5,source=math.prod",
        "fipo:decay=0",
        "fipo:decay=null",
        "fipo:clip=true",
    ],
)
def test_options_out_of_range(rule):
    option = rule.split(":")[1].split("=")[0]
    with pytest.raises(ValueError, match=f"{option}="):
        make_rule(rule)


@pytest.mark.parametrize(
    "rule",
    [
        "fipo:decay=.inf,clip=.inf",
        "delta:lambda_min=1,lambda_max=1",
        "random:lambda_min=0,lambda_max=0.1",
        "given:discount=0,outside=0,outcome_weight=0,source=math.prod",
        "selected:fraction=1",
    ],
)
def test_options_at_their_bounds(rule):
    make_rule(rule)


def test_a_value_may_have_a_colon():
    assert make_rule("given:source=column:turn_rewards,outside=0") == Given("column:turn_rewards", outside=0)


def test_a_recipes_options_make_a_rule_again_and_again():
    options = {"rule_kwargs": {"lambda_max": 1.5}}  # of delta
    first, second = (make_rule("selected:fraction=0.2", options) for _ in range(2))
    assert first == second == Selected(DelTA(lambda_max=1.5), fraction=0.2)
    assert options == {"rule_kwargs": {"lambda_max": 1.5}}


def test_options_of_a_wrapped_rule_are_its_own():
    options = {"rule": "random", "rule_kwargs": {"lambda_max": 1.5}}
    assert make_rule("shuffled", options) == Shuffled(RandomCredit(lambda_max=1.5))
    assert make_rule("shuffled", {"rule": RandomCredit()}) == Shuffled(RandomCredit())
    nested = {"rule": "selected", "rule_kwargs": {"fraction": 0.1, "rule_kwargs": {"refinement_steps": 0}}}
    assert make_rule("side_mean", nested) == SideMean(Selected(DelTA(refinement_steps=0), fraction=0.1))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("delta:lambda_max=2", {"lambda_max": 1.5}, "token_credit_kwargs: lambda_max"),
        ("delta:lambda_max=[1", {}, "NAME:key=value"),
        ("shuffled", {"rule": "dleta"}, "rule 'dleta'.*mean 'delta'"),
        ("shuffled", {"rule_kwargs": {"lambda_mx": 1.5}}, "lambda_mx"),
        ("collections.OrderedDict", {}, "expected a subclass"),
        ("math.prod", {}, "expected a subclass"),
        (False, {}, "YAML reads `no`"),
    ],
)
def test_rules_that_cannot_be_made_are_named_at_once(name, options, message):
    """Before anything is constructed."""
    with pytest.raises(ValueError, match=message):
        find_rule(name, options)
