"""
Benchmarks of `delta-trl audit` whose tokens have exact labels: the studies' tasks, and those of recipes/SmolLM2-135M.
From the root of the repository:

    delta-trl audit --model_name_or_path scripts/studies/models/arithmetic \\
        --benchmarks scripts.studies.audit_benchmarks.study_arithmetic --output_dir outputs/audit
    delta-trl audit --model_name_or_path outputs/models/SmolLM2-135M-Instruct \\
        --benchmarks scripts.studies.audit_benchmarks.language_sums --output_dir outputs/audit-sums
"""

import json
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from delta_trl.arguments.errors import UsageError
from delta_trl.audit.sampled import SampledBenchmark
from delta_trl.rewards import math_reward

from .tasks import TASKS, Task, first_mistake, make_problems, right_tokens
from .tasks.language import FOLDER


class WorkedBenchmark(SampledBenchmark):
    """
    Problems whose right text is known. In losers, the first wrong token is marked; in winners, every position at which
    a losing sibling has its first wrong token.
    """

    def first_wrong(self, token_ids: list[int], problem: dict) -> int | None:
        """Number of the first wrong token; `None` if all are right."""
        raise NotImplementedError

    def mark(self, siblings: list[dict], problem: dict) -> None:
        mistakes = [self.first_wrong(row["token_ids"], problem) for row in siblings]
        wrong = {m for m, row in zip(mistakes, siblings, strict=True) if row["reward"] == 0 and m is not None}
        for mistake, row in zip(mistakes, siblings, strict=True):
            if row["reward"] == 1 and mistake is None:
                row["marked"] = sorted(m for m in wrong if m < len(row["unit"]))
            elif row["reward"] == 0 and mistake is not None:
                row["marked"] = [mistake]
            elif row["reward"] is not None:
                row["unlabelled"] = "right by another text" if row["reward"] == 1 else "wrong without a wrong token"


class StudyBenchmark(WorkedBenchmark):
    """A task of the studies. Takes a `task` instead of problems, reward and length."""

    def __init__(self, name: str, tokenizer: PreTrainedTokenizerBase, args: Any, task: Task):
        problems, _ = make_problems(task)
        tokens = [token for choice in right_tokens(task, problems[0]) for token in choice]
        unknown = set(tokens) - set(tokenizer.get_vocab())
        if unknown:
            raise UsageError(
                f"{name}: the tokenizer of {args.model_name_or_path} does not know {min(unknown)!r}. This benchmark "
                "is for models that were made for its task, by scripts/studies/start_models.py."
            )
        super().__init__(name, problems, task.reward, task.max_completion_length, tokenizer, args)
        self.task = task

    def first_wrong(self, token_ids: list[int], problem: dict) -> int | None:
        return first_mistake(right_tokens(self.task, problem), self.tokenizer.convert_ids_to_tokens(token_ids))


class LanguageBenchmark(WorkedBenchmark):
    """Problems of recipes/SmolLM2-135M, `NAME_train.jsonl`."""

    def __init__(self, name: str, tokenizer: PreTrainedTokenizerBase, args: Any, task: str):
        lines = (FOLDER / f"{task}_train.jsonl").read_text().splitlines()
        super().__init__(name, list(map(json.loads, lines)), math_reward, 40, tokenizer, args)

    def first_wrong(self, token_ids: list[int], problem: dict) -> int | None:
        right = problem["worked_answer"]
        for i, token in enumerate(token_ids):
            text = self.tokenizer.decode(token_ids[: i + 1], skip_special_tokens=True)
            stops_early = token == self.tokenizer.eos_token_id and text != right
            if stops_early or not right.startswith(text):
                return i
        return None


study_arithmetic = partial(StudyBenchmark, task=TASKS["arithmetic"])
study_arithmetic_0 = partial(StudyBenchmark, task=TASKS["arithmetic_0"])
study_arithmetic_24 = partial(StudyBenchmark, task=TASKS["arithmetic_24"])
study_programs = partial(StudyBenchmark, task=TASKS["programs"])
study_sparse = partial(StudyBenchmark, task=TASKS["sparse"])
study_own_errors = partial(StudyBenchmark, task=TASKS["own_errors"])
study_long = partial(StudyBenchmark, task=TASKS["long"])
study_longest = partial(StudyBenchmark, task=TASKS["longest"])
language_sums = partial(LanguageBenchmark, task="sums")
language_fruits = partial(LanguageBenchmark, task="fruits")
