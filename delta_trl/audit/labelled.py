"""Rollout batches of labelled completions and their siblings."""

import random
from collections import Counter
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from ..arguments.errors import UsageError
from ..evaluation.benchmarks import BOXED
from ..evaluation.generation import Generate
from ..policy.checks import check_ids, context_length, doubts, refuse_chats_without_template
from ..policy.prompts import prompt_ids
from ..rewards import math_reward
from .labels import Labelled, UnfitError, fingerprint, text_of, to_row
from .loading import LabelledData, by_problem, has_contrast, load_answers, load_labelled
from .sampled import sample


class LabelledBenchmark:
    """
    Labelled completions. Siblings are the completions of the same prompt in the data. If these are all right or all
    wrong and the problem's answer is known, `num_generations` more are sampled from the model and graded by
    `math_reward`.

    Args:
        name (`str`): Its name.
        data ([`LabelledData`]): Where the data is, and how it is read.
        tokenizer (`PreTrainedTokenizerBase`), args ([`AuditArguments`]): As in [`SampledBenchmark`].
        config (`PretrainedConfig`): The model's.

    Attributes:
        sizes, references, left_out, chats, fingerprint: As in [`SampledBenchmark`].
        max_completion_length (`int`): Tokens of a sampled completion, at most as many as fit after the longest prompt.

    Raises:
        UsageError: If the tokenizer does not fit, or nothing is left.
        ValueError, OSError: If the data cannot be loaded or read.
    """

    references = 0  # off-policy completions: their gradients would say nothing

    def __init__(
        self,
        name: str,
        data: LabelledData,
        tokenizer: PreTrainedTokenizerBase,
        args: Any,
        config: PretrainedConfig,
    ):
        self.name, self.data, self.tokenizer, self.args = name, data, tokenizer, args
        self._config, limit = config, context_length(config)
        if not tokenizer.is_fast:
            raise UsageError(
                f"{name}: the tokenizer of {args.model_name_or_path} does not say which characters a token stands "
                "for: labels need a fast tokenizer."
            )
        self.left_out: Counter = Counter()
        self._groups = self._choose()
        if not self._groups:
            reasons = "; ".join(f"{count} {reason}" for reason, count in self.left_out.items() if count)
            raise UsageError(f"{name}: nothing is left to audit: {reasons or 'it has no completions'}.")
        self.chats = not isinstance(self._prompt(self._groups[0][0]), str)
        size = args.prompts_per_batch
        self._batches = [self._groups[i : i + size] for i in range(0, len(self._groups), size)]
        self.sizes = [
            sum(len(rows) + (args.num_generations if answer is not None else 0) for _, rows, answer in batch)
            for batch in self._batches
        ]
        prompts = [rows[0]["prompt_ids"] for _, rows, answer in self._groups if answer is not None]
        self.max_completion_length = args.max_completion_length
        if limit is not None:
            self.max_completion_length = min(self.max_completion_length, limit - max(map(len, prompts), default=0))
        self.fingerprint = fingerprint([(rows, answer) for _, rows, answer in self._groups])

    def _choose(self) -> list[tuple[Labelled, list[dict], str | None]]:
        """For each prompt: a completion, the rows of all completions, and the answer if siblings are to be sampled."""
        groups = by_problem(load_labelled(self.name, self.data), exact=not self.data.template)
        labelled = {problem: group for problem, group in groups.items() if any(one.marks for one in group)}
        self.left_out["prompts without a label"] = len(groups) - len(labelled)
        answers = {} if all(map(has_contrast, labelled.values())) else load_answers(self.data)
        order = list(labelled.items())
        random.Random(self.args.seed).shuffle(order)
        chosen: list[tuple[Labelled, list[dict], str | None]] = []
        for problem, group in order:
            if len(chosen) == self.args.num_prompts:
                break
            answer = None if has_contrast(group) else group[0].solution or answers.get(problem)
            if not has_contrast(group) and answer is None:
                self.left_out["prompts without completions of both kinds"] += 1
            elif rows := self._fitting(group):
                chosen.append((group[0], rows, answer))
        return chosen

    def _fitting(self, group: list[Labelled]) -> list[dict]:
        """The rows of a prompt's completions; empty if those that fit the model have no label or no contrast."""
        prompt = self._prompt(group[0])
        refuse_chats_without_template([prompt], self.tokenizer, self.name)
        (ids,) = prompt_ids(self.tokenizer, [prompt])
        rows = []
        for one in group:
            try:
                row = to_row(one, ids, self.tokenizer, context_length(self._config))
            except UnfitError as reason:
                self.left_out[f"completions: {reason}"] += 1
                continue
            ids, what = row["prompt_ids"] + row["token_ids"], f"{self.name}: a completion"
            check_ids(ids, self._config, what)
            for doubt in doubts(ids, self.tokenizer, self._config, what):
                raise UsageError(doubt)
            rows.append(row)
        rewards = {row["reward"] for row in rows if row["reward"] is not None}
        if any(row["marked"] for row in rows) and (len(rewards) > 1 or not has_contrast(group)):
            return rows
        self.left_out["prompts of which too little fits"] += 1
        return []

    def _prompt(self, one: Labelled) -> Any:
        if not self.data.template:
            return one.prompt
        text = BOXED.replace("{prompt}", one.prompt)
        return [{"role": "user", "content": text}] if self.tokenizer.chat_template else text

    def rows(self, number: int, generate: Generate) -> list[dict]:
        """The completions of a rollout batch."""
        rows: list[dict] = []
        problems: list[dict] = []
        for group, (one, given, answer) in enumerate(self._batches[number]):
            rows += [{**row, "prompt": text_of(one.prompt), "group": group} for row in given]
            if answer is not None:
                problem = {"prompt": self._prompt(one), "solution": answer, "group": group}
                problems += [problem] * self.args.num_generations
        if problems:
            siblings = sample(self.name, problems, math_reward, generate, self.tokenizer, self.args, number)
            for row, problem in zip(siblings, problems, strict=True):
                row |= {"group": problem["group"], "unit": list(range(len(row["token_ids"]))), "marked": []}
            rows = sorted(rows + siblings, key=lambda row: row["group"])
        return rows
