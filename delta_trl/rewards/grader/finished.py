r"""Whether an answer is worked out as far as the gold.

A gold that is a numeral wants a numeral: `48 \div 2` and `\binom{8}{2}` leave the work to the grader. Any other gold
allows its own number of operations and one more. Each function refuses an answer that is not worked out.
"""

import math
import re
from collections.abc import Collection

from .forms import RefusedError, operations, work
from .values import Number, Term


COMPLEX_INTEGER = re.compile(r"(?=.*i)[-+]?\s*(?:\d+|(?:\d+\s*)?i)\s*(?:[-+]\s*(?:\d+|(?:\d+\s*)?i))?")


def refuse_work(gold: Collection[str], answer: Collection[str], more: float = math.inf) -> None:
    """
    Refuse texts with an operation that leaves the work to the grader and that the gold has not, or with more than
    `more` operations beyond the gold's.
    """
    for kind in work(answer) - work(gold):
        raise RefusedError(kind)
    if sum(map(operations, answer)) > sum(map(operations, gold)) + more:
        raise RefusedError("too many operations")


def refuse_value(gold: Term, answer: Term) -> None:
    """Refuse a value without a unit that is not worked out as far as the gold."""
    if isinstance(answer, Number):
        if answer.is_fraction and isinstance(gold, Number) and gold.is_integer:
            raise RefusedError("a fraction for an integer")
        return
    if isinstance(gold, Number):
        refuse_work([gold.text], [answer.text])
        raise RefusedError("not a numeral")
    refuse_work([gold.text], [answer.text], 1)
    if COMPLEX_INTEGER.fullmatch(gold.text) and not COMPLEX_INTEGER.fullmatch(answer.text):
        raise RefusedError("not a complex integer")
