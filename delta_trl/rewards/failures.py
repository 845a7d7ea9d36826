"""Adds the function's name and the completion to errors of reward functions, and checks what they return."""

import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from trl.trainer.utils import is_async_callable


SEARCH_SECONDS = 30.0  # spent looking for the completion on which a reward function fails


def explain_failures(func: Callable | nn.Module, name: str) -> Callable | nn.Module:
    """
    Wrap a reward function. An exception gets a note with the function's name and the completion that caused it, and
    the rewards that it returns are checked, see [`check_rewards`].

    A reward function gets a whole batch. After a failure it is called again with one completion at a time, until one
    fails alone or `SEARCH_SECONDS` have passed. Reward models are not wrapped. Rewards of a call without completions,
    as TRL makes for environments, are not checked.
    """
    if isinstance(func, nn.Module):
        return func

    if is_async_callable(func):

        @functools.wraps(func)
        async def wrapped(**kwargs):
            try:
                rewards = await func(**kwargs)
            except Exception as error:
                found = None
                for index, single in _one_by_one(kwargs):
                    try:
                        await func(**single)
                    except Exception:
                        found = index
                        break
                error.add_note(_note(name, kwargs["completions"], found))
                raise
            return check_rewards(name, rewards, kwargs["completions"]) if "completions" in kwargs else rewards

    else:

        @functools.wraps(func)
        def wrapped(**kwargs):
            try:
                rewards = func(**kwargs)
            except Exception as error:
                found = None
                for index, single in _one_by_one(kwargs):
                    try:
                        func(**single)
                    except Exception:
                        found = index
                        break
                error.add_note(_note(name, kwargs["completions"], found))
                raise
            return check_rewards(name, rewards, kwargs["completions"]) if "completions" in kwargs else rewards

    return wrapped


def check_rewards(name: str, rewards: Any, completions: list) -> list[float | None]:
    """
    The rewards as a list of numbers and `None`. NaN becomes `None`, as in TRL.

    Raises:
        TypeError: If they are not a list of numbers and `None`.
        ValueError: If there is not one for each completion, or one is infinite.
    """
    expected = f"expected a list of {len(completions)} numbers, one for each completion, None if it cannot be scored."
    if isinstance(rewards, (str, bytes, dict)) or not hasattr(rewards, "__iter__") or _is_scalar(rewards):
        raise TypeError(f"The reward function '{name}' returned {_short(rewards)}: {expected}")
    rewards = list(rewards)
    if len(rewards) != len(completions):
        raise ValueError(f"The reward function '{name}' returned {len(rewards)} rewards: {expected}")
    for i, reward in enumerate(rewards):
        if reward is None:
            continue
        said = f"The reward function '{name}' returned {_short(reward)} for completion {i + 1} of {len(rewards)}"
        try:
            rewards[i] = float(reward if not isinstance(reward, (str, bytes)) else None)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{said}: {expected}") from error
        if math.isnan(rewards[i]):
            rewards[i] = None
        elif math.isinf(rewards[i]):
            raise ValueError(f"{said}, {_short(completions[i])}: expected a finite number, or None for no reward.")
    return rewards


def _is_scalar(value: Any) -> bool:
    return getattr(value, "ndim", 1) == 0  # NumPy's and torch's scalars have an __iter__, too


def _one_by_one(kwargs: dict) -> Iterator[tuple[int, dict]]:
    size, start = len(kwargs["completions"]), time.monotonic()
    per_completion = {key for key, value in kwargs.items() if isinstance(value, list) and len(value) == size}
    for index in range(size):
        if time.monotonic() - start > SEARCH_SECONDS:
            return
        single = {key: [value[index]] if key in per_completion else value for key, value in kwargs.items()}
        # a repeated call must not log to the completions table again
        yield index, {**single, "log_extra": lambda *_: None, "log_metric": lambda *_: None}


def _note(name: str, completions: list, index: int | None) -> str:
    if index is None:
        return (
            f"The reward function '{name}' raised this on a batch of {len(completions)} completions, though not on "
            f"any single one of those that were tried within {SEARCH_SECONDS:g} s."
        )
    return (
        f"The reward function '{name}' raised this on completion {index + 1} of {len(completions)}: "
        f"{_short(completions[index])}. A reward function should return None for a completion that it cannot score."
    )


def _short(value: Any) -> str:
    return without_middle(repr(value), 1000)


def without_middle(text: str, limit: int) -> str:
    """A text; one that is longer than `limit` characters keeps half of them from its start and half from its end."""
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"
