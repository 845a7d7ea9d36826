"""Rollout batches sampled from the model."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..arguments.errors import UsageError
from ..evaluation.evaluate import call_reward, sample_seed
from ..evaluation.generation import Generate
from ..policy.prompts import prompt_ids
from .labels import fingerprint, text_of


class SampledBenchmark:
    """
    Problems whose completions are sampled from the model and graded. They have no labels, unless a subclass sets them
    in `mark`.

    Args:
        name (`str`): Its name.
        problems (`list[dict]`): Rows with `prompt` and the reward's columns.
        reward (`Callable`): The reward function.
        max_completion_length (`int`): Tokens of a completion.
        tokenizer (`PreTrainedTokenizerBase`): The model's.
        args ([`AuditArguments`]): The audit's arguments.

    Attributes:
        sizes (`list[int]`): How many completions each rollout batch has.
        references (`int`): How many more batches there are, for the reference gradient.
        left_out (`Counter`): Why data is not audited: reasons with their counts.
        chats (`bool`): Whether its prompts are chats, not texts.
        fingerprint (`str`): A hash of the problems.

    Raises:
        UsageError: If there are too few problems.
    """

    def __init__(
        self,
        name: str,
        problems: list[dict],
        reward: Callable,
        max_completion_length: int,
        tokenizer: PreTrainedTokenizerBase,
        args: Any,
    ):
        self.name, self.reward, self.max_completion_length = name, reward, max_completion_length
        self.tokenizer, self.args = tokenizer, args
        per_batch, self.references = args.prompts_per_batch, args.reference_batches
        count = args.num_prompts + self.references * per_batch
        if count > len(problems):
            raise UsageError(
                f"{name}: num_prompts={args.num_prompts} and reference_batches={self.references} of {per_batch} "
                f"prompts are {count:,} prompts, but it has {len(problems):,}."
            )
        if self.references and args.num_prompts % per_batch:
            raise UsageError(
                f"{name}: num_prompts={args.num_prompts} is no multiple of prompts_per_batch={per_batch}, and "
                "gradients of a smaller batch cannot be compared. Change one of them, or set reference_batches=0."
            )
        chosen = random.Random(args.seed).sample(problems, count)
        starts = [*range(0, args.num_prompts, per_batch), *range(args.num_prompts, count, per_batch), count]
        self._batches = [chosen[a:b] for a, b in pairwise(starts)]
        scored = len(self._batches) - self.references
        self.sizes = [len(batch) * args.num_generations for batch in self._batches[:scored]]
        self.left_out: Counter = Counter()
        self.chats = not isinstance(chosen[0]["prompt"], str)
        self.fingerprint = fingerprint(chosen)

    def rows(self, number: int, generate: Generate) -> list[dict]:
        """The completions of a rollout batch. The last batches are those of the reference."""
        k, problems = self.args.num_generations, self._batches[number]
        repeated = [problem for problem in problems for _ in range(k)]
        rows = sample(self.name, repeated, self.reward, generate, self.tokenizer, self.args, number)
        for i, row in enumerate(rows):
            row |= {"group": i // k, "unit": list(range(len(row["token_ids"]))), "marked": []}
        for group, problem in enumerate(problems):
            self.mark(rows[group * k : (group + 1) * k], problem)
        return rows

    def mark(self, siblings: list[dict], problem: dict) -> None:
        """Set `marked`, the indices of the marked units, in the completions of a problem."""


def sample(
    name: str,
    problems: list[dict],
    reward: Callable,
    generate: Generate,
    tokenizer: PreTrainedTokenizerBase,
    args: Any,
    place: int,
) -> list[dict]:
    """A completion of each problem, graded: rows with `prompt`, `prompt_ids`, `token_ids` and `reward`."""
    rows: list[dict] = []
    for start in range(0, len(problems), args.batch_size):
        some = problems[start : start + args.batch_size]
        ids = prompt_ids(tokenizer, [problem["prompt"] for problem in some])
        seeds = [sample_seed(args.seed, name, place, start + i) for i in range(len(some))]
        for problem, prompt, one in zip(some, ids, generate(ids, seeds), strict=True):
            rows.append({"prompt": text_of(problem["prompt"]), "prompt_ids": prompt, "token_ids": one.ids})
    texts = tokenizer.batch_decode([row["token_ids"] for row in rows], skip_special_tokens=True)
    rewards, _ = call_reward(reward, problems, texts, [row["token_ids"] for row in rows])
    return [{**row, "reward": reward} for row, reward in zip(rows, rewards, strict=True)]
