r"""Whether an answer is worked out as far as the gold.

A gold that is a numeral wants a numeral: `48 \div 2` and `\binom{8}{2}` leave the work to the grader. Any other gold
allows its own number of operations and one more. Each function gives the reason why an answer is refused, or "".
"""

import re
from collections.abc import Iterable

from .values import Equation, Number, RealSet, Term


COMPLEX_INTEGER = re.compile(r"(?=.*i)[-+]?\s*(?:\d+|(?:\d+\s*)?i)\s*(?:[-+]\s*(?:\d+|(?:\d+\s*)?i))?")


def undone(gold: Iterable[Term], answer: Iterable[Term], more: int | None = None) -> str:
    """
    Why terms are not worked out, or "": they have an operation that leaves the work to the grader and that the gold
    has not, or more than `more` operations beyond the gold's.
    """
    allowed = {kind for term in gold for kind in term.work}
    for term in answer:
        for kind in term.work - allowed:
            return kind
    if more is not None and sum(term.operations for term in answer) > sum(term.operations for term in gold) + more:
        return "too many operations"
    return ""


def undone_in_value(gold: Term, answer: Term) -> str:
    """Why a value without a unit is not worked out as far as the gold, or ""."""
    if isinstance(answer, Number):
        is_integer = isinstance(gold, Number) and not gold.is_fraction and gold.value == gold.value // 1
        return "a fraction for an integer" if is_integer and answer.is_fraction else ""
    if isinstance(gold, Number):
        return undone([gold], [answer]) or "not a numeral"
    if COMPLEX_INTEGER.fullmatch(gold.text) and not COMPLEX_INTEGER.fullmatch(answer.text):
        return "not a complex integer"
    return undone([gold], [answer], 1)


def undone_in_equation(gold: Equation, answer: Equation) -> str:
    """Why an equation is not worked out, or "". A term may change its side."""
    return undone([gold.left, gold.right], [answer.left, answer.right], 2)


def undone_in_set(gold: RealSet, answer: RealSet) -> str:
    """Why a set is not worked out, or "": its bounds are no final values, or are more than the gold has."""
    allowed = max((bound.operations for bound in gold.bounds), default=0)
    if len(answer.bounds) > len(gold.bounds) or any(bound.operations > allowed for bound in answer.bounds):
        return "bounds to be worked out"
    return undone(gold.bounds, answer.bounds)
