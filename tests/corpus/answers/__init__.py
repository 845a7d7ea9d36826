r"""Labelled answers. The label is what a careful mathematician says who grades the final answer only.

`ANSWERS`: kind -> (gold, right answers, wrong answers), each answer standing in a `\boxed{...}`.
`COMPLETIONS`: kind -> (gold, completion, score), whole completions.
"""

from collections.abc import Iterator
from typing import Any

from . import boxes, expressions, golds, hacks, numbers, sets, texts, words


def labelled_cases() -> Iterator[tuple[str, Any, Any, float | None]]:
    """Yields (kind, gold, completion, score), every pair of a gold and a completion once."""
    seen = set()
    for kind, gold, completion, score in _labelled():
        if (key := (repr(gold), repr(completion))) not in seen:
            seen.add(key)
            yield kind, gold, completion, score


def _labelled() -> Iterator[tuple[str, Any, Any, float | None]]:
    for module in (numbers, expressions, sets, words, hacks):
        for kind, groups in module.ANSWERS.items():
            for gold, right, wrong in groups:
                for score, answers in ((1.0, right), (0.0, wrong)):
                    for answer in answers:
                        yield kind, gold, f"So the result is $\\boxed{{{answer}}}$.", score
    for module in (boxes, texts, golds):
        for kind, cases in module.COMPLETIONS.items():
            for gold, completion, score in cases:
                yield kind, gold, completion, score
