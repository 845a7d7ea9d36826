"""Says which reward function failed, and on which completion."""

import functools
import time
from collections.abc import Callable, Iterator

from torch import nn
from trl.trainer.utils import is_async_callable


SEARCH_SECONDS = 30.0  # for the completion that a reward function fails on


class RewardFunctionError(RuntimeError):
    """A reward function raised. The original exception is the cause."""


def explain_failures(func: Callable | nn.Module, name: str) -> Callable | nn.Module:
    """
    Wrap a reward function so that an exception names the function and the completion that it failed on.

    Reward functions get a whole batch, so after a failure the function is called again on one completion at a time, up
    to the first that fails alone, or for `SEARCH_SECONDS`. Reward models are returned as they are.
    """
    if isinstance(func, nn.Module):
        return func

    if is_async_callable(func):

        @functools.wraps(func)
        async def wrapped(**kwargs):
            try:
                return await func(**kwargs)
            except Exception as error:
                for index, single in _one_by_one(kwargs):
                    try:
                        await func(**single)
                    except Exception:
                        raise _error(name, kwargs, index) from error
                raise _error(name, kwargs, None) from error

    else:

        @functools.wraps(func)
        def wrapped(**kwargs):
            try:
                return func(**kwargs)
            except Exception as error:
                for index, single in _one_by_one(kwargs):
                    try:
                        func(**single)
                    except Exception:
                        raise _error(name, kwargs, index) from error
                raise _error(name, kwargs, None) from error

    return wrapped


def _one_by_one(kwargs: dict) -> Iterator[tuple[int, dict]]:
    size, start = len(kwargs["completions"]), time.monotonic()
    per_completion = {key for key, value in kwargs.items() if isinstance(value, list) and len(value) == size}
    for index in range(size):
        if time.monotonic() - start > SEARCH_SECONDS:
            return
        single = {key: [value[index]] if key in per_completion else value for key, value in kwargs.items()}
        # what a repeated call logs must not reach the completions table
        yield index, {**single, "log_extra": lambda *_: None, "log_metric": lambda *_: None}


def _error(name: str, kwargs: dict, index: int | None) -> RewardFunctionError:
    size = len(kwargs["completions"])
    if index is None:
        return RewardFunctionError(
            f"The reward function '{name}' raised on a batch of {size} completions, though not on one alone of those "
            f"that were tried within {SEARCH_SECONDS:g} s."
        )
    completion = str(kwargs["completions"][index])
    if len(completion) > 1000:
        completion = f"{completion[:500]} … {completion[-500:]}"
    return RewardFunctionError(
        f"The reward function '{name}' raised on completion {index + 1} of {size}: {completion!r}. A reward function "
        "should return None for a completion that it cannot score."
    )
