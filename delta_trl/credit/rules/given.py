"""
Evidence from outside: weights or step rewards that a function, a column or an environment gives to tokens, spans of
text or turns, such as a process reward model or a judge.
"""

import asyncio
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn, Protocol

import torch

from ...arguments.lookup import import_dotted
from ...arguments.values import NOT_NEGATIVE, SHARE, check_values
from ..coefficients import divide_by_mean
from ..policy_outputs import Responses, Turn
from ..ranks import all_reduce, normalised_by_group
from ..rule import Credit, TokenCredit, TokenCreditError, Tokens


Step = tuple[int, int, float]  # first and last token of a completion (both inside), and the value
PER_TURN = ("column", "environment")


class SamplingTrainer(Protocol):
    """What the rule asks of a trainer."""

    dynamic_sampling: Any


class CountMismatchError(Exception):
    """A completion has another number of turns or tokens than of numbers."""


@dataclass
class Given(TokenCredit):
    """
    Weights or step rewards that come from outside. The source is one of

    - a function, sync or async, or its dotted path. It is called once per rollout batch, after the rewards, on each
      process with its own rows: `source(completions, prompts, completion_ids, **columns)`, with what TRL gave the
      reward functions, and one more column, `turns`: for each completion, its [`Turn`]s;
    - `"column:NAME"`: a column of the dataset, or a field that a `rollout_func` returned;
    - `"environment:NAME"`: an attribute of the completion's environment.

    A column or an environment has one number for each turn of a completion. A function returns, for each completion,

    - a list with one number per token of `completion_ids`; those of a tool's tokens have no effect;
    - a list of spans `(start, end, value)` in characters of the policy's text, that is, of its turns without special
      tokens. A token that a span cuts counts whole. A special token belongs to the text before it in its turn; at the
      beginning of a turn, to the text after it. The span of a turn is all its tokens, also without text.

    `None` in place of a list says that nothing is known of the completion. Another number of numbers than of turns or
    tokens says the same: what the policy writes may be a turn that the source does not see. The metric
    `mismatched_completions` is the share of such completions.

    With `what="rewards"`, each value is the reward of a step, which ends at the end of its span. Advantages are those
    of process supervision in DeepSeekMath (arXiv 2402.03300, section 4.1.3): the rewards of all steps of a group are
    normalised together. A token's advantage is the sum over the steps that end at it or later.

    Args:
        source (`Callable` or `str`): Where the values come from.
        what (`str`, *optional*, defaults to `"weights"`): Whether values are `"weights"` or `"rewards"`.
        outside (`float`, *optional*, defaults to `1.0`): The weight of tokens outside all spans.
        normalize (`bool`, *optional*, defaults to `False`): Divide weights by their mean over the rollout batch.
        outcome_weight (`float`, *optional*, defaults to `1.0`):
            Factor of the response's own advantage, which is added to that of its steps.
        discount (`float`, *optional*, defaults to `1.0`):
            Factor for each step that lies between a token's own step and a later one.

    Raises:
        ValueError: If an option is out of range, or the source cannot be found.
        TokenCreditError:
            In training, if the source returns something else, or if all completions of a rollout batch are mismatched.
    """

    source: Callable | str
    what: str = "weights"
    outside: float = 1.0
    normalize: bool = False
    outcome_weight: float = 1.0
    discount: float = 1.0

    def __post_init__(self):
        check_values(self, what=("weights", "rewards"), discount=SHARE)
        check_values(self, outside=NOT_NEGATIVE, outcome_weight=NOT_NEGATIVE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._function: Any = self.source  # `None`: the source has a number for each turn
        self._kind, _, self._column = str(self.source).partition(":")
        if self._kind in PER_TURN:
            self._function = None
        elif isinstance(self.source, str):
            self._function = import_dotted("source", self.source, ())

    def check(self, trainer: SamplingTrainer) -> None:
        if self.what == "rewards" and trainer.dynamic_sampling:
            raise ValueError(
                "dynamic_sampling=True replaces groups whose rewards are equal, but with what='rewards' they train on "
                "their steps. Turn it off."
            )

    @property
    def reads_all_rows(self) -> bool:
        return self.what == "rewards"  # which train where all outcomes are equal, too

    def of_rollout(self, tokens: Tokens) -> Credit:
        responses = tokens.policy.responses()
        evidence = self._per_turn(responses) if self._function is None else self._called(responses)
        steps: list[list[Step] | None] = [None] * len(evidence)
        mismatches = []
        # nothing is read of a row that the loss masks as a whole, say because it is cut off
        for row in tokens.row.unique().tolist():
            try:
                steps[row] = self._steps(row, evidence[row], responses)
            except CountMismatchError as mismatch:
                mismatches.append(mismatch)
        counts = torch.tensor([len(mismatches), len(evidence)], device=tokens.mask.device)
        n_mismatches, n = all_reduce(counts).tolist()
        if n_mismatches == n:  # not what the policy wrote
            raise TokenCreditError(f"{mismatches[0]} No completion of the rollout batch has the right number.")
        credit = self._weights(tokens, steps) if self.what == "weights" else self._advantages(tokens, steps)
        credit.metrics["mismatched_completions"] = n_mismatches / n
        return credit

    def _weights(self, tokens: Tokens, steps: list[list[Step] | None]) -> Credit:
        weights = torch.ones(tokens.mask.shape, dtype=tokens.advantages.dtype, device=tokens.mask.device)
        for of_row, row_steps in zip(weights, steps, strict=True):
            if row_steps is None:
                continue
            of_row.fill_(self.outside)
            for first, last, value in row_steps:
                of_row[first : last + 1] = value
        flat = tokens.flat(weights)
        return Credit(divide_by_mean(flat, 0.0) if self.normalize else flat)

    def _advantages(self, tokens: Tokens, steps: list[list[Step] | None]) -> Credit:
        device = tokens.mask.device
        steps_of_rows = [row_steps or [] for row_steps in steps]
        groups = tokens.group.new_zeros(len(steps_of_rows))  # (B,)
        groups[tokens.row] = tokens.group
        counts = torch.tensor(list(map(len, steps_of_rows)), device=device)
        values = [value for row_steps in steps_of_rows for _, _, value in row_steps]
        rewards = torch.tensor(values, dtype=torch.float64, device=device)
        normalised = normalised_by_group(rewards, groups.repeat_interleave(counts))
        rest = iter(normalised.tolist())
        to_come = torch.zeros_like(tokens.mask, dtype=torch.float64)
        at_ends = torch.full_like(to_come, math.nan)
        for row, row_steps in enumerate(steps_of_rows):
            ends = [(last, next(rest), value) for _, last, value in row_steps]
            total = 0.0
            for last, advantage, value in sorted(ends, reverse=True):
                total = advantage + self.discount * total
                to_come[row, : last + 1] = total  # an earlier step overwrites what lies before its own end
                at_ends[row, last] = value + at_ends[row, last].nan_to_num()
        of_outcome = self.outcome_weight * tokens.advantages
        advantages = of_outcome + tokens.flat(to_come).to(of_outcome)
        n_steps = all_reduce(counts.sum())
        return Credit(advantages=advantages, neutral=not n_steps, step_rewards=tokens.flat(at_ends))

    # --- what the source says ---

    def _per_turn(self, responses: Responses) -> list:
        """One value per turn, from a column or from the environments."""
        columns = responses.columns
        if self._kind == "column":
            if self._column not in columns:
                self._refuse(f"no such column. There are {', '.join(columns)}")
            return columns[self._column]
        if "environments" not in columns:
            self._refuse("there are no environments. The trainer needs an `environment_factory`")
        return [self._of_environment(environment) for environment in columns["environments"]]

    def _of_environment(self, environment: Any) -> Any:
        try:
            return getattr(environment, self._column)
        except AttributeError:
            names = [name for name in dir(environment) if not name.startswith("_")]
            attributes = [name for name in names if not callable(inspect.getattr_static(environment, name, None))]
            self._refuse(
                f"{type(environment).__name__} has no such attribute, or its property fails. There are "
                f"{', '.join(attributes) or 'none'}"
            )

    def _called(self, responses: Responses) -> Sequence:
        if "turns" in responses.columns:
            self._refuse("the data have a column 'turns', a name that the source needs for the turns: rename it")
        returned = self._function(
            completions=responses.completions,
            prompts=responses.prompts,
            completion_ids=responses.ids,
            turns=responses.turns,
            **responses.columns,
        )
        if inspect.isawaitable(returned):
            returned = self._awaited(returned)
        is_list = isinstance(returned, list | tuple)
        if not is_list or len(returned) != len(responses.ids):
            size = f"{len(returned)} values" if is_list else f"{type(returned)}"
            self._refuse(
                f"returned {size}: expected a list with an entry for each of {len(responses.ids)} completions"
            )
        return returned

    def _awaited(self, value: Awaitable) -> Any:
        """The value, from one loop for all rollout batches: clients that the source keeps belong to their loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def waited() -> Any:
            return await value

        return asyncio.run_coroutine_threadsafe(waited(), self._loop).result()

    def _steps(self, row: int, values: Any, responses: Responses) -> list[Step] | None:
        """The steps of a completion, from what the source says of it."""
        if values is None:
            return None
        turns = responses.turns[row]
        texts = responses.texts[row]
        if not isinstance(values, list | tuple):
            self._refuse(f"{type(values)}: expected a list of numbers or of spans (start, end, value)", row)
        if self._function is None:
            if len(values) != len(turns):
                self._check_numbers(values, row)
                self._mismatch(f"{len(values)} numbers for {len(turns)} turns", row)
            steps = [(turn.first, turn.last, value) for turn, value in zip(turns, values, strict=True)]
        elif values and all(isinstance(value, Real) for value in values):
            if len(values) != len(texts):
                self._mismatch(f"{len(values)} numbers for {len(texts)} tokens", row)
            steps = [(i, i, values[i]) for turn in turns for i in range(turn.first, turn.last + 1)]
        else:
            bounds = bounds_of(texts, turns)
            steps = [self._step(row, span, bounds, turns) for span in values]
        self._check_numbers([value for _, _, value in steps], row)
        return [(first, last, float(value)) for first, last, value in steps]

    def _check_numbers(self, values: Sequence, row: int) -> None:
        least = 0.0 if self.what == "weights" else -math.inf
        for value in values:
            if not isinstance(value, Real) or not math.isfinite(value) or value < least:
                expected = "finite numbers >= 0" if self.what == "weights" else "finite numbers"
                self._refuse(f"{value!r}: expected {expected}", row)

    def _step(self, row: int, span: Any, bounds: list[tuple[int, int] | None], turns: Sequence[Turn]) -> tuple:
        """First and last token, and value, of a span in characters."""
        is_triple = isinstance(span, list | tuple) and len(span) == 3
        if not is_triple or not isinstance(span[0], int) or not isinstance(span[1], int):
            self._refuse(f"{span!r:.100}: expected a number for each token, or spans (start, end, value)", row)
        start, stop, value = span
        for turn in turns:
            if turn.start == start and turn.end == stop:
                return turn.first, turn.last, value
        inside = []
        for i, bound in enumerate(bounds):
            if bound and bound[0] < stop and bound[1] > start:
                inside.append(i)
        length = turns[-1].end if turns else 0
        if not 0 <= start < stop <= length or not inside:
            self._refuse(f"the span {start}:{stop} is not in a text of {length} characters", row)
        return inside[0], inside[-1], value

    def _refuse(self, problem: str, row: int | None = None) -> NoReturn:
        raise TokenCreditError(self._named(problem, row))

    def _mismatch(self, problem: str, row: int) -> NoReturn:
        raise CountMismatchError(self._named(problem, row))

    def _named(self, problem: str, row: int | None) -> str:
        name = self.source if isinstance(self.source, str) else getattr(self.source, "__name__", self.source)
        where = "" if row is None else f", completion {row + 1}"
        return f"source={name!r}{where}: {problem}."


def bounds_of(texts: list[str | None], turns: Sequence[Turn]) -> list[tuple[int, int] | None]:
    """
    Where each token lies in the policy's text: characters (start, end). A token that is only a part of a character has
    the bounds of the token that completes it. A special token (`None`) has those of the text before it in its turn, or
    at the beginning of the turn those of the text after it. Tools' tokens, and turns without text, have none.
    """
    bounds: list[tuple[int, int] | None] = [None] * len(texts)
    for turn in turns:
        place = turn.end
        latest = None  # bounds of the text that follows
        for i in range(turn.last, turn.first - 1, -1):
            if text := texts[i]:
                latest = (place - len(text), place)
                place = latest[0]
            bounds[i] = latest
        for i in range(turn.first + 1, turn.last + 1):
            if texts[i] is None:
                bounds[i] = bounds[i - 1]
    return bounds
