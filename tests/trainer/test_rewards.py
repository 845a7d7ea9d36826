"""Failing rewards, and rewards without contrast."""

import math

import numpy as np
import pytest
import torch

from delta_trl.rewards import failures
from delta_trl.trainer.dynamic_sampling import has_contrast, total_rewards

from ..corpus import tiny
from ..trainers import response_advantages


@pytest.fixture
def make_plain(make_trainer):
    return lambda **options: make_trainer(token_credit="none", **options)


def reward_that_fails_on_e(completions, **kwargs):
    if any("e" in text for text in completions):
        raise KeyError("e")
    return [0.0] * len(completions)


async def async_reward_that_fails_on_e(completions, **kwargs):
    return reward_that_fails_on_e(completions)


@pytest.mark.parametrize("func", [reward_that_fails_on_e, async_reward_that_fails_on_e])
def test_a_failing_reward_names_itself_and_the_completion(make_plain, func):
    trainer = make_plain(reward_funcs=[tiny.reward_letters, func], max_completion_length=32)
    with pytest.raises(KeyError, match="e") as error:
        trainer.train()
    [note] = error.value.__notes__
    assert func.__name__ in note
    assert "8 completions" in note


@pytest.mark.parametrize(("end", "error"), [(ConnectionError, ConnectionError), (SystemExit, RuntimeError)])
def test_a_failing_reward_is_not_called_again(make_plain, end, error):
    calls = []

    def fails_once(completions, **kwargs):
        calls.append(len(completions))
        if len(calls) == 1:
            raise end("busy")
        return [0.0] * len(completions)

    with pytest.raises(error, match="busy") as raised:
        make_plain(reward_funcs=fails_once).train()
    assert calls == [8]
    assert "'fails_once' raised this" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (None, TypeError, "'mine' returned None"),
        ("1" * 8, TypeError, "'mine' returned '11111111'"),
        ([0.5], ValueError, "'mine' returned"),
        (["1"] * 8, TypeError, "'mine' returned"),
        ([0.0, 1e300] * 4, ValueError, "'mine' returned"),
        ([0.0] * 7 + [math.inf], ValueError, "'mine' returned"),
    ],
    ids=repr,
)
def test_what_is_no_reward_is_refused(make_plain, rollout, returned, error, message):
    def mine(completions, **kwargs):
        return returned

    with pytest.raises(error, match=message):
        rollout(make_plain(reward_funcs=mine))


@pytest.mark.parametrize(
    "kind",
    [tuple, np.array, torch.tensor, lambda x: [True, *map(np.float32, x[1:6]), None, math.nan]],
    ids=["tuple", "array", "tensor", "mixture"],
)
def test_what_is_a_reward_is_taken(make_plain, rollout, kind):
    """As in TRL, both `None` and NaN are of completions that a function cannot score."""
    trainer = make_plain(reward_funcs=lambda completions, **_: kind([1.0] + [0.0] * 5 + [math.nan] * 2))
    rollout(trainer)
    taken = trainer.last_rewards[:, 0].tolist()
    assert taken == pytest.approx([1.0] + [0.0] * 5 + [math.nan] * 2, nan_ok=True)


def test_the_functions_stay_those_that_were_given(make_plain):
    """A callback may change a reward by the trainer's `reward_funcs`, which are wrapped only while they are called."""

    class Growing:
        __name__, bonus = "growing", 0.0

        def __call__(self, completions, **kwargs):
            return [self.bonus] * len(completions)

    trainer = make_plain(reward_funcs=[tiny.reward_letters, Growing()])
    trainer.reward_funcs[1].bonus = 2.0
    trainer.train()
    assert trainer.last_rewards[:, 1].tolist() == [2.0] * 8
    assert trainer.reward_funcs[0] is tiny.reward_letters


def test_sums_and_variance_of_rewards(make_plain, rollout):
    """Weighted as TRL sums them; NaN where no function could score."""
    first, second = [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, None, None], [0.3] * 7 + [None]
    funcs = [lambda completions, **_: list(first), lambda completions, **_: list(second)]
    trainer = make_plain(reward_funcs=funcs, reward_weights=[1.0, 0.1])
    rollout(trainer)
    total = total_rewards(trainer, trainer.last_rewards).tolist()
    assert total == pytest.approx([1.03] * 4 + [0.03, 1.03, 0.03, math.nan], nan_ok=True)
    assert has_contrast(trainer, trainer.last_rewards).tolist() == [False, True]


@pytest.mark.parametrize(
    ("rewards", "options", "at_mean"),
    [
        ([[0.7, 0.6, 1.0, 0.1] * 2], {}, 2),
        ([[1, 1, 0, 0] * 2, [1, 0, 1, 0, 0, 0, 1, 1]], {"multi_objective_aggregation": "normalize_then_sum"}, 6),
    ],
)
def test_a_reward_at_its_groups_mean_has_no_credit(make_trainer, rollout, rewards, options, at_mean):
    """Rounding makes its advantage 1e-8, which would count it as a winner or a loser."""

    functions = [lambda completions, row=row, **_: list(map(float, row)) for row in rewards]
    trainer = make_trainer(reward_funcs=functions, **options)
    batch = rollout(trainer)
    assert (response_advantages(batch) == 0).sum() == at_mean


def test_sums_that_differ_by_rounding_are_no_contrast(make_plain, rollout):
    first, second = [0.1, 0.2] * 2 + [1000.0, 1000.1, 1000.0, 1000.0], [0.6, 0.5] * 2 + [0.0] * 4
    funcs = [lambda completions, **_: list(first), lambda completions, **_: list(second)]
    trainer = make_plain(reward_funcs=funcs)
    rollout(trainer)
    totals = total_rewards(trainer, trainer.last_rewards)
    assert totals[0] != totals[1]
    assert has_contrast(trainer, trainer.last_rewards).tolist() == [False, True]
    trainer.reward_weights = torch.tensor([1.0, -1.0])  # sizes are those of the summands
    assert has_contrast(trainer, trainer.last_rewards).tolist() == [True, True]


def test_rewards_of_environments_may_be_asked_without_completions():
    func = failures.explain_failures(lambda environments, **_: [1.0, None], "Game")
    assert func(environments=[object(), object()]) == [1.0, None]
