"""Adds the function's name and its first completion to errors of reward functions, and checks what they return."""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from trl.trainer.utils import is_async_callable

from ..arguments.errors import name_users_code, users_code


LARGEST = 3.4e38  # of float32, in which TRL keeps rewards


def explain_failures(func: Callable | nn.Module, name: str) -> Callable | nn.Module:
    """
    Wrap a reward function. An exception gets a note with the function's name and the batch's first completion, and the
    rewards that it returns are checked, see [`check_rewards`]. It is not called again: a call may cost money or time.
    Reward models are not wrapped.
    """
    if isinstance(func, nn.Module):
        return func

    if is_async_callable(func):

        @functools.wraps(func)
        async def wrapped(**kwargs):
            with _named(name, kwargs):
                rewards = await func(**kwargs)
            return check_rewards(name, rewards, **kwargs)

    else:

        @functools.wraps(func)
        def wrapped(**kwargs):
            with _named(name, kwargs):
                rewards = func(**kwargs)
            return check_rewards(name, rewards, **kwargs)

    return wrapped


def _named(name: str, kwargs: dict) -> AbstractContextManager:
    """The context in which a reward function is called: an error says which one, and on what."""
    completions = kwargs.get("completions") or [None]
    prompts = kwargs.get("prompts") or [None]
    return users_code(
        f"The reward function '{name}' raised this on a batch of {len(completions)} completions, the first of which "
        f"is {completions[0]!r:.1000}, of the prompt {prompts[0]!r:.200}. A reward function should return None for a "
        "completion that it cannot score."
    )


def check_rewards(name: str, rewards: Any, /, completions: list | None = None, **columns: Any) -> list[float | None]:
    """
    The rewards as a list of numbers and `None`. NaN becomes `None`, as in TRL. Where TRL calls without
    completions, as for environments, they are not checked.

    Raises:
        TypeError: If they are not a list of numbers and `None`.
        ValueError: If there is not one for each completion, or one is infinite in float32.
    """
    if completions is None:
        return rewards
    problem = (
        f"The reward function '{name}' returned {rewards!r:.1000}: expected a list of {len(completions)} finite "
        "numbers (of float32), None for what cannot be scored."
    )
    try:
        numbers = [math.nan if reward is None else float(reward) for reward in rewards]
    except (TypeError, ValueError, RuntimeError) as error:
        raise name_users_code(TypeError(problem), problem) from error
    if len(numbers) != len(completions) or any(abs(number) > LARGEST for number in numbers):
        raise name_users_code(ValueError(problem), problem)
    return [None if math.isnan(number) else number for number in numbers]
