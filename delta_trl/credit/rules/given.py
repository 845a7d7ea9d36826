"""
Evidence from outside: weights or step rewards that a function of the user's gives to tokens or spans of text, such as
a process reward model or a judge.
"""

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch

from ...arguments.lookup import import_dotted
from ..coefficients import divide_by_mean
from ..options import check_choices, check_number
from ..rule import Credit, TokenCredit, TokenCreditError, Tokens, all_reduce


Span = tuple[int, int, float]  # first and last token (both inside), and the value


@dataclass
class Given(TokenCredit):
    """
    Weights or step rewards of a function of your own. It is called once per rollout batch, after the rewards, on each
    process with its own rows, like a reward function: `source(completions, prompts, completion_ids, **columns)`, sync
    or async. Completions are without special tokens and without a tool's text. Beside those of the dataset, there are
    the columns `trainer_state` and `turns`: the spans (start, end) that a tool's text separates. For each completion,
    it returns one of

    - a list with one number per token of `completion_ids`;
    - a list of spans `(start, end, value)` in characters of the completion's text. A token that a span cuts counts
      whole;
    - `None`: nothing is known of it.

    With `what="rewards"`, each value is the reward of a step, which ends at the end of its span. Advantages are those
    of process supervision in DeepSeekMath (arXiv 2402.03300, section 4.1.3): the rewards of all steps of a group are
    normalised together. A token's advantage is the sum over the steps that end at it or later.

    Args:
        source (`Callable` or `str`): The function, or its dotted path.
        what (`str`, *optional*, defaults to `"weights"`): Whether values are `"weights"` or `"rewards"`.
        outside (`float`, *optional*, defaults to `1.0`): The weight of tokens outside all spans.
        normalize (`bool`, *optional*, defaults to `False`): Divide weights by their mean over the rollout batch.
        outcome_weight (`float`, *optional*, defaults to `1.0`):
            Factor of the response's own advantage, which is added to that of its steps.

    Raises:
        ValueError: If an option is out of range, or the source cannot be found.
        TokenCreditError: In training, if the source returns something else.
    """

    source: Callable | str
    what: str = "weights"
    outside: float = 1.0
    normalize: bool = False
    outcome_weight: float = 1.0

    def __post_init__(self):
        check_choices(self, what=("weights", "rewards"))
        check_number(self, "outside", "[0, inf)")
        check_number(self, "outcome_weight", "[0, inf)")
        self._call = import_dotted("source", self.source, ()) if isinstance(self.source, str) else self.source

    def of_rollout(self, tokens: Tokens) -> Credit:
        spans = self._spans(tokens)
        return self._weights(tokens, spans) if self.what == "weights" else self._advantages(tokens, spans)

    def _weights(self, tokens: Tokens, spans: list[list[Span] | None]) -> Credit:
        weights = torch.ones_like(tokens.advantages)
        for row, found in enumerate(spans):
            of_row = (tokens.row == row).nonzero()[:, 0]
            if found is not None:
                weights[of_row] = self.outside
            for first, last, value in found or ():
                weights[of_row[first : last + 1]] = value
        return Credit(divide_by_mean(weights, 0.0) if self.normalize else weights)

    def _advantages(self, tokens: Tokens, spans: list[list[Span] | None]) -> Credit:
        ends, rewards = [], []  # of each step: its last token among the N, and its reward
        for row, found in enumerate(spans):
            of_row = (tokens.row == row).nonzero()[:, 0].tolist()
            ends += [of_row[last] for _, last, _ in found or ()]
            rewards += [value for _, _, value in found or ()]
        at = torch.tensor(ends, dtype=torch.long, device=tokens.row.device)
        r = torch.tensor(rewards, dtype=torch.float64, device=tokens.row.device)
        group = tokens.group[at]
        groups = int(all_reduce(tokens.group.max()[None].clone() if len(tokens) else tokens.group.new_zeros(1), "MAX"))
        sums = r.new_zeros(3, groups + 1)  # a group may be spread over processes
        for i, power in enumerate((r**0, r, r**2)):
            sums[i].index_add_(0, group, power)
        count, mean, square = all_reduce(sums)
        mean, square = mean / count.clamp(min=1), square / count.clamp(min=1)
        std = ((square - mean**2).clamp(min=0) * count / (count - 1).clamp(min=1)).sqrt()
        normalised = (r - mean[group]) / (std[group] + 1e-4)
        steps = r.new_zeros(len(tokens)).index_add_(0, at, normalised)
        to_come = tokens.flat(tokens.padded(steps).flip(1).cumsum(1).flip(1))  # Σ of the steps that end at or after
        advantages = self.outcome_weight * tokens.advantages + to_come.to(tokens.advantages)
        return Credit(advantages=advantages, neutral=not count.any())

    def _spans(self, tokens: Tokens) -> list[list[Span] | None]:
        responses = tokens.policy.responses()
        given = self._call(
            completions=responses.completions,
            prompts=responses.prompts,
            completion_ids=responses.ids,
            **responses.columns,
        )
        if inspect.isawaitable(given):
            given = asyncio.run(_awaited(given))
        if not isinstance(given, Sequence) or len(given) != len(responses.ids):
            size = f"{len(given)} values" if isinstance(given, Sequence) else f"{type(given)}"
            raise TokenCreditError(f"{self._name()} returned {size}: expected one for each of {len(responses.ids)}.")
        return [None if one is None else self._read(i, one, responses.texts[i]) for i, one in enumerate(given)]

    def _read(self, row: int, given: Any, texts: list[str | None]) -> list[Span]:
        """Spans in tokens, from what the source returned for one completion."""
        name, bounds, length = (
            f"{self._name()}, completion {row + 1}",
            bounds_of(texts),
            len("".join(filter(None, texts))),
        )
        numbers = len(given) > 0 and all(isinstance(value, Real) for value in given)
        if numbers and len(given) != len(texts):
            raise TokenCreditError(f"{name}: {len(given)} numbers for {len(texts)} tokens.")
        spans = []
        for i, value in enumerate(given):
            if numbers:
                spans.append((i, i, float(value)))
            else:
                start, end, value = value
                if not 0 <= start < end <= length:
                    raise TokenCreditError(f"{name}: the span {start}:{end} is not in a text of {length} characters.")
                inside = [j for j, bound in enumerate(bounds) if bound and bound[0] < end and bound[1] > start]
                spans.append((inside[0], inside[-1], float(value)))
            if not math.isfinite(value) or (self.what == "weights" and value < 0):
                expected = "finite numbers" if self.what == "rewards" else "finite numbers >= 0"
                raise TokenCreditError(f"{name}: {value!r}: expected {expected}.")
        return spans

    def _name(self) -> str:
        return f"source={getattr(self._call, '__name__', self._call)!r}"


def bounds_of(texts: list[str | None]) -> list[tuple[int, int] | None]:
    """
    Where each token lies in the joined text. Tokens that are only a part of a character have the bounds of the token
    that completes it; special tokens (`None`) have none.
    """
    bounds: list[tuple[int, int] | None] = []
    end = len("".join(filter(None, texts)))
    latest = None
    for text in reversed(texts):
        if text:
            latest = (end - len(text), end)
            end = latest[0]
        bounds.append(None if text is None else latest)
    return bounds[::-1]


async def _awaited(value: Any) -> Any:
    return await value
