"""
The studies' tasks as benchmarks of `delta-trl audit`, from the root of the repository:

    delta-trl audit --model_name_or_path scripts/studies/models/arithmetic \\
        --benchmarks scripts.studies.audit_benchmarks.study_arithmetic --output_dir outputs/audit
"""

from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from delta_trl.arguments.errors import UsageError
from delta_trl.audit.sampled import SampledBenchmark

from .tasks import TASKS, Task, first_mistake, make_problems, right_tokens


class StudyBenchmark(SampledBenchmark):
    """
    A task that knows the right text. In losers, the first wrong token is marked; in winners, every position at which a
    losing sibling has its first wrong token. Takes a `task` instead of problems, reward and length.
    """

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

    def mark(self, siblings: list[dict], problem: dict) -> None:
        right = right_tokens(self.task, problem)
        mistakes = [first_mistake(right, self.tokenizer.convert_ids_to_tokens(row["token_ids"])) for row in siblings]
        wrong = {m for m, row in zip(mistakes, siblings, strict=True) if row["reward"] == 0 and m is not None}
        for mistake, row in zip(mistakes, siblings, strict=True):
            if row["reward"] == 1 and mistake is None:
                row["marked"] = sorted(m for m in wrong if m < len(row["unit"]))
            elif row["reward"] == 0 and mistake is not None:
                row["marked"] = [mistake]
            elif row["reward"] is not None:
                row["unlabelled"] = "right by another text" if row["reward"] == 1 else "wrong without a wrong token"


study_arithmetic = partial(StudyBenchmark, task=TASKS["arithmetic"])
study_programs = partial(StudyBenchmark, task=TASKS["programs"])
study_sparse = partial(StudyBenchmark, task=TASKS["sparse"])
study_own_errors = partial(StudyBenchmark, task=TASKS["own_errors"])
study_long = partial(StudyBenchmark, task=TASKS["long"])
study_longest = partial(StudyBenchmark, task=TASKS["longest"])
