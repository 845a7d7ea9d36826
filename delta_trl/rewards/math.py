"""The mathematics reward: 1.0 if the final answer equals the gold, 0.0 if not, None if the gold cannot be used."""

from decimal import Decimal
from numbers import Real
from typing import Any

from ..arguments.values import COUNT, POSITIVE, check_values
from .copies import is_copied
from .grader.client import NOT_CHECKED, check_answers, get_pool
from .grader.extraction import Completions, extract_answer
from .reasoning import Log, graded_texts, no_log, refuse_ungradable


METRICS = {  # share of the verdicts that begin so
    "timeouts": ("timeout",),
    "failed_checks": ("crash", "memory", "error"),
    "unusable_gold": ("unusable gold",),
    "not_checked": (NOT_CHECKED,),
}
MISSING = ("None", "nan", "NaN", "N/A", "n/a", "null", "<NA>")  # how a column's missing values are written


class MathReward:
    r"""
    Verified mathematics reward.

    The final answer is extracted from the completion (`grader/extraction.py`) and compared with the gold in a worker
    process (`grader/comparison.py`): exactly where both are numerals, else at random points.
    math-verify (https://github.com/huggingface/Math-Verify) parses.

    Args:
        timeout (`float`, *optional*, defaults to `3.0`):
            Seconds that one check may take; an answer whose check takes longer scores 0.
        num_workers (`int`, *optional*, defaults to `2`):
            Worker processes of each training process. They start at the first call and end with the process.
        reasoning_opened (`bool`, *optional*):
            Whether the chat template ends the prompt with `<think>`, which rewards do not see. A completion that does
            not close it scores 0. By default, the trainer and the commands ask the template.

    Raises:
        ValueError: If an option is out of range.

    Example:

    ```python
    >>> math_reward([r"Half of it: \boxed{\frac{1}{2}}", "The answer is 3."], solution=["0.5", "4"])
    [1.0, 0.0]
    ```
    """

    __name__ = "math_reward"

    def __init__(self, timeout: float = 3.0, num_workers: int = 2, reasoning_opened: bool | None = None):
        self.timeout = timeout
        self.num_workers = num_workers
        self.reasoning_opened = reasoning_opened
        check_values(self, timeout=POSITIVE, num_workers=COUNT)

    def __call__(
        self,
        completions: Completions,
        solution: list[str],
        log_extra: Log = no_log,
        log_metric: Log = no_log,
        prompts: list | None = None,
        **kwargs: Any,
    ) -> list[float | None]:
        r"""
        Score a batch.

        Args:
            completions (`list[str] | list[list[dict]]`):
                Texts, or lists of chat messages; the last assistant message counts.
            solution (`list[str]`):
                The golds: LaTeX or words, bare, in `$...$`, in `\boxed{...}` or after `####`; or numbers. `None` where
                there is none.
            log_extra (`Log`, *optional*):
                Called with columns for TRL's completions table: the gold, the extracted answer, the verdict.
            log_metric (`Log`, *optional*):
                Called with the shares of timeouts, failed checks, golds that cannot be used, and answers not checked.
            prompts (`list`, *optional*):
                Of each completion. One that ends with `<think>` opens its reasoning. What stands in the prompt is no
                answer, see `is_copied`.
            **kwargs: The other columns of the data set; not used.

        Returns:
            `list[float | None]`: 1.0, 0.0, or `None` where the gold cannot be used or no worker was available for the
            check.

        Raises:
            TypeError: If a gold is neither text nor a number.
            ValueError: If there are not as many golds as completions.
        """
        refuse_ungradable(completions, solution=solution)
        texts = graded_texts(completions, prompts, self.reasoning_opened)
        golds = list(map(_read_gold, solution))
        answers = list(map(extract_answer, texts))
        pairs = list(zip(golds, answers, strict=True))
        verdicts = check_answers(get_pool(self.num_workers), pairs, self.timeout)
        for i, prompt in enumerate(prompts or []):
            if verdicts[i] == "right" and is_copied(answers[i] or "", golds[i], prompt):
                verdicts[i] = "refused: a formula of the prompt"

        log_extra("gold", golds)
        log_extra("extracted_answer", [answer or "" for answer in answers])
        log_extra("verdict", verdicts)
        for name, beginning in METRICS.items():
            count = sum(verdict.startswith(beginning) for verdict in verdicts)
            log_metric(f"math_reward/{name}", count / (len(verdicts) or 1))
        return [None if v in (NOT_CHECKED, "unusable gold") else float(v == "right") for v in verdicts]


def _read_gold(gold: Any) -> str:
    """
    The gold, found as in a completion, or else the whole text; empty where it is missing. Of another type its text
    would be a gold that nothing equals.
    """
    if not isinstance(gold, (str, Real, Decimal, type(None))):
        raise TypeError(
            f"math_reward: a gold in `solution` is {gold!r:.200}, of type {type(gold).__name__}: expected a text, a "
            "number, or None where there is none. Convert the column with `dataset.map`."
        )
    text = str(gold).strip()
    return "" if text in MISSING else extract_answer(text) or text


math_reward = MathReward()
