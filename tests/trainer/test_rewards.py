"""Failing rewards, and rewards without contrast."""

import asyncio
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trl.rewards import think_format_reward

from delta_trl.arguments.errors import UsageError
from delta_trl.credit import Given
from delta_trl.rewards.failures import explain_failures
from delta_trl.trainer.contrast import outcomes, stands_out
from delta_trl.trainer.reward_watch import RewardWatch

from ..corpus import tiny
from ..trainers import TRL, logged, same_weights


CALLS: list[tuple[list[str], list[str]]] = []
NONE = math.nan


def fails(prompts, completions, **kwargs):
    CALLS.append((prompts, completions))
    raise KeyError("busy")


async def fails_later(**kwargs):
    fails(**kwargs)


@pytest.mark.parametrize("func", [fails, fails_later])
def test_a_failing_reward_is_named_and_not_called_again(make_trainer, func):
    """The trainer's `reward_funcs`, by which a callback may change one, stay those that were given."""
    CALLS.clear()
    trainer = make_trainer(reward_funcs=[tiny.reward_letters, func])
    with pytest.raises(KeyError, match="busy") as error:
        trainer.train()
    assert trainer.reward_funcs == [tiny.reward_letters, func]
    [(prompts, completions)] = CALLS
    [note] = error.value.__notes__
    assert f"'{func.__name__}'" in note
    assert "8 completions" in note
    assert repr(completions[0]) in note
    assert repr(prompts[0]) in note


def test_a_failing_reward_of_a_library_is_named():
    reward = explain_failures(think_format_reward, "think_format_reward")
    with pytest.raises(TypeError) as error:
        reward(completions=["no chat" * 1000])
    [note] = error.value.__notes__
    assert "'think_format_reward' raised this" in note
    assert len(note) < 2000


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (None, TypeError),
        ("right" * 1000, TypeError),
        (["right"] * 8, TypeError),
        ([0.5], ValueError),
        ([0.0, 3.5e38] * 4, ValueError),
        ([0.0] * 7 + [math.inf], ValueError),
        ([0.0] * 7 + [-math.inf], ValueError),
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_what_is_no_reward_is_refused(returned, error):
    with pytest.raises(error, match="'mine' returned") as raised:
        explain_failures(lambda **_: returned, "mine")(completions=["a"] * 8)
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize(
    "kind",
    [tuple, np.array, torch.tensor, lambda x: [True, *map(np.float32, x[1:6]), None, math.nan]],
    ids=["tuple", "array", "tensor", "mixture"],
)
def test_what_is_a_reward_is_taken(kind):
    """As in TRL, both `None` and NaN are of completions that a function cannot score."""

    async def given(**kwargs):
        return kind([1.0] + [0.0] * 5 + [math.nan] * 2)

    func = explain_failures(given, "mine")
    taken = asyncio.run(func(completions=["a"] * 8))
    assert taken == [1.0] + [0.0] * 5 + [None] * 2


# Dynamic sampling asks for rewards several times a batch.
@pytest.mark.parametrize(("dynamic_sampling", "refuses"), [(False, False), (True, True)])
def test_runs_without_rewards_and_without_contrast(make_trainer, caplog, dynamic_sampling, refuses):
    """The trainer warns of both. In a command, a run without rewards ends."""

    def reward(completions, trainer_state, **kwargs):
        step = trainer_state.global_step
        if step == 1:
            return [float(i == 0) for i in range(len(completions))]  # contrast in one of two groups
        return [float(step) if step < 12 else None] * len(completions)

    trainer = make_trainer(reward_funcs=reward, max_steps=16, dynamic_sampling=dynamic_sampling)
    if refuses:
        trainer.reward_watch.refuses = True
    problem = "reward: 3 batches in a row got no reward"
    if refuses:
        with pytest.raises(UsageError, match=problem):
            trainer.train()
        assert trainer.state.global_step == 14
    else:
        trainer.train()
        assert trainer.state.global_step == 16
        assert caplog.text.count(problem) == 1
    assert caplog.text.count("reward: in 10 rollout batches in a row") == 1
    assert "The last ones had [[11.0]]" in caplog.text


def test_batches_without_rewards_count_in_a_row():
    """Two, one in which one function has one reward of 0, two, and a third one: only then there are three in a row."""
    watch = RewardWatch()
    watch.refuses = True
    without = torch.full((4, 2), math.nan)
    rewards = without.clone()
    rewards[2, 1] = 0.0
    for batch in (without, without, rewards, without, without):
        watch.observe(["mine", "other"], batch, has_contrast=False)
    with pytest.raises(UsageError, match="mine, other: 3 batches in a row"):
        watch.observe(["mine", "other"], without, has_contrast=False)


SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM = "sum_then_normalize", "normalize_then_sum"


@pytest.mark.parametrize(
    ("first", "second", "weights", "aggregation"),
    [
        # what differs by rounding has no contrast; sizes are those of the summands
        ([0.1, 0.2] * 2 + [1000.0, 1000.1] * 2, [0.6, 0.5] * 2 + [0.0] * 4, [1.0, 1.0], SUM_THEN_NORMALIZE),
        ([1000.1, 0.1] * 2 + [0.1, 0.2] * 2, [-1000.0, 0.0] * 2 + [0.0] * 4, [1.0, 1.0], SUM_THEN_NORMALIZE),
        ([1000.1, 1000.2] * 2 + [1.0, 0.0] * 2, [1000.0, 1000.1] * 2 + [0.0] * 4, [1.0, -1.0], SUM_THEN_NORMALIZE),
        ([0.5] * 4 + [1.0, 0.0] * 2, [1e7, 0.0] * 4, [1.0, 0.0], SUM_THEN_NORMALIZE),
        ([0.5] * 4 + [1.0, 0.0] * 2, [1e7, 0.0] * 4, [1.0, 0.0], NORMALIZE_THEN_SUM),
        ([0.3, 0.1, 0.1, 0.3] * 2, [0.1, 0.3, 0.3, 0.1, 0.2, 0.6, 0.6, 0.4], [1.0, 1.0], NORMALIZE_THEN_SUM),
    ],
)
def test_groups_with_contrast(first, second, weights, aggregation):
    trainer = SimpleNamespace(
        num_generations=4, reward_weights=torch.tensor(weights), multi_objective_aggregation=aggregation
    )
    rewards = torch.tensor([first, second]).T
    of_groups = stands_out(trainer, rewards).view(2, 4)
    assert of_groups.any(dim=1).tolist() == [False, True]


@pytest.mark.parametrize(("weights", "only_verified"), [([1.0, 1.0], True), ([-1.0, 1.0], True), ([0.0, 1.0], False)])
def test_outcomes_are_those_of_verified_rewards_that_train(weights, only_verified):
    trainer = SimpleNamespace(reward_func_names=["math_reward", "length"], reward_weights=torch.tensor(weights))
    rewards = torch.tensor([[1.0, 0.5], [0.0, 0.25]])
    verified = torch.tensor([[1.0, math.nan], [0.0, math.nan]])
    expected = verified if only_verified else rewards
    torch.testing.assert_close(outcomes(trainer, rewards), expected, equal_nan=True)


def test_a_group_has_an_advantage_though_some_of_its_completions_are_average(make_trainer):
    def reward(completions, **_):
        return [[0.0, 1.0, 0.5, 0.5][i % 4] for i in range(len(completions))]

    trainer = make_trainer(reward_funcs=reward, num_generations=4, max_steps=1)
    trainer.train()
    assert logged(trainer, "credit/no_advantage") == [0.0]


def test_small_differences_of_large_rewards_train_as_in_grpo(make_trainer):
    """64 units in the last place of float32; credit of 1 for each token changes nothing."""

    def reward(completions, **_):
        return [1000.0 + 0.004 * (i % 2) for i in range(len(completions))]

    theirs = make_trainer(reward_funcs=reward, **TRL)
    theirs.train()
    assert min(logged(theirs, "grad_norm")) > 1
    no_weights = Given(lambda completions, **_: [None] * len(completions))
    for sampling in (False, True):
        ours = make_trainer(
            reward_funcs=reward,
            token_credit=no_weights,
            dynamic_sampling=sampling,
            trim_padding=False,
            epsilon_high=None,
        )
        ours.train()
        assert logged(ours, "grad_norm") == logged(theirs, "grad_norm")
        assert same_weights(ours, theirs)


@pytest.mark.parametrize("functions", [1, 2, 8])
@pytest.mark.parametrize("size", [4, 256])
def test_equal_sums_have_no_contrast_however_they_round(functions, size):
    """Sums of decimals that are equal as fractions. A thousandth more is contrast."""
    rng = np.random.default_rng(0)
    terms = rng.integers(-30, 31, (100, size, functions))
    terms[:, :, -1] = 7 - terms[:, :, :-1].sum(axis=-1)
    trainer = SimpleNamespace(
        num_generations=size,
        reward_weights=torch.ones(functions),
        multi_objective_aggregation=SUM_THEN_NORMALIZE,
    )
    rewards = torch.tensor(terms.reshape(-1, functions) * 0.1, dtype=torch.float32)
    assert not stands_out(trainer, rewards).any()
    is_first = torch.arange(len(rewards)) % size == 0
    rewards[is_first, 0] += 0.001
    assert stands_out(trainer, rewards)[is_first].all()


def test_rewards_of_environments_may_be_asked_without_completions():
    func = explain_failures(lambda environments, **_: [1.0, None], "Game")
    assert func(environments=[object(), object()]) == [1.0, None]
    with pytest.raises(ZeroDivisionError):
        explain_failures(lambda environments: 1 / 0, "Game")(environments=[object()])


def test_reward_models_stay_themselves():
    model = torch.nn.Linear(1, 1)
    assert explain_failures(model, "model") is model
