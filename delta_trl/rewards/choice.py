"""The multiple-choice reward (GPQA, MMLU-Pro): 1.0 if the letter of the final answer is the gold's."""

from collections.abc import Callable
from numbers import Integral
from typing import Any

from .grader.extraction import Completions, extract_answer, extract_gold
from .grader.normalization import normalize
from .grader.words import LETTERS, choice_of
from .inputs import known_golds
from .reasoning import graded_texts


class MultipleChoiceReward:
    r"""
    Multiple-choice reward. Compares strings only: no worker process, no mathematics.

    The final answer is found as `MathReward` finds it: the last `\boxed{...}`, else the line after `<answer>`, `####`,
    "Answer:" or "the answer is". It may be "B", "(B)", "B.", "Option B", or the letter with the text of the choice,
    "(B) 42". Letters go from A to J.

    Args:
        reasoning_opened (`bool`, *optional*, defaults to `False`):
            Whether the chat template ends the prompt with `<think>`, which rewards do not see. A completion that does
            not close it scores 0.
    """

    __name__ = "multiple_choice_reward"

    def __init__(self, reasoning_opened: bool = False):
        self.reasoning_opened = reasoning_opened

    def __call__(
        self,
        completions: Completions,
        solution: list[str],
        log_extra: Callable[[str, list], None] | None = None,
        prompts: list | None = None,
        **kwargs: Any,
    ) -> list[float | None]:
        """
        Score a batch.

        Args:
            completions (`list[str] | list[list[dict]]`):
                Texts, or lists of chat messages; the last assistant message counts.
            solution (`list[str]`): The right letters, or their indices counted from 0, as in MMLU.
            log_extra (`Callable[[str, list], None]`, *optional*):
                Called with columns for TRL's completions table: the gold and the chosen letter.
            prompts (`list`, *optional*): Of each completion. One that ends with `<think>` opens its reasoning.
            **kwargs: The other columns of the data set; not used.

        Returns:
            `list[float | None]`: 1.0, 0.0, or `None` where the gold is not one of the letters.

        Raises:
            TypeError: If a gold is neither text nor an integer.
            ValueError: If there are not as many golds as completions.
        """
        golds = list(map(_letter_of, known_golds(self.__name__, solution, (str, Integral))))
        texts = graded_texts(completions, prompts, self.reasoning_opened)
        chosen = [choice_of(normalize(extract_answer(text) or "")) for text in texts]
        if log_extra is not None:
            log_extra("gold", [gold or "[unusable]" for gold in golds])
            log_extra("chosen", [letter or "[none]" for letter in chosen])
        return [None if gold is None else float(letter == gold) for gold, letter in zip(golds, chosen, strict=True)]


def _letter_of(gold: str | Integral | None) -> str | None:
    if isinstance(gold, Integral):
        return dict(enumerate(LETTERS)).get(int(gold))
    return choice_of(normalize(extract_gold(gold or "")))


multiple_choice_reward = MultipleChoiceReward()
