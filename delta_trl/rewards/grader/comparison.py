"""Whether an answer equals the gold: one function for each type of value."""

import itertools
import operator
import re
from collections.abc import Callable
from fractions import Fraction

import sympy

from .expressions import equal_expressions, is_proportional, number, same_value
from .finished import refuse_value, refuse_work
from .forms import RefusedError, refuse_large_text
from .normalization import normalize
from .parsing import UnreadableError
from .reading import alone, read, read_gold, without_condition
from .values import (
    Choice,
    Collection,
    Equation,
    Expression,
    Number,
    Quantity,
    Readings,
    RealSet,
    Term,
    Tuple,
    Words,
)


ROUNDING = Fraction(1, 10**9)


def judge(gold: str, answer: str | None) -> str:
    """
    The verdict on an answer. Runs in a worker process only.

    Args:
        gold (`str`): The gold as it was extracted.
        answer (`str` or `None`): The answer as it was extracted.

    Returns:
        `str`: `"right"`, `"wrong"`, `"no answer"`, `"unusable gold"`, or `"refused: ..."` and why.
    """
    target = read_gold(gold)
    if target is None:
        return "unusable gold"
    if answer is None:
        return "no answer"
    text = normalize(answer)
    if text == target.text:
        return "right"
    try:
        refuse_large_text(target.text, text)
        text, bound = without_condition(text)
        if bound and target.bound:  # any name will do
            text = re.sub(alone(bound), target.bound, text)
        return "right" if equal(target.readings, read(text)) else "wrong"
    except RefusedError as error:
        return f"refused: {error}"


def equal(gold: Readings, answer: Readings) -> bool:
    """
    Whether two texts, given by their readings, are equal. The first type that both have decides.

    Raises:
        RefusedError: If the answer would be equal, or may be, but is no final form.
    """
    if isinstance(gold[0], Equation) and gold[0].relates_unknowns:
        gold = gold[:1]
    shared: Callable | None = None
    refused: RefusedError | None = None
    for gold_reading, answer_reading in itertools.product(gold, answer):
        compare = COMPARE[type(gold_reading)]
        if compare is not COMPARE[type(answer_reading)]:
            continue
        shared = shared or compare
        if compare is not shared:
            continue
        try:
            if compare(gold_reading, answer_reading):
                return True
        except UnreadableError:
            continue
        except RefusedError as error:
            refused = error
    if refused is not None:
        raise refused
    return False


def _disagree(name: str | None, other: str | None) -> bool:
    """Whether two names are given and are different."""
    return None not in (name, other) and name != other


def _equal_elements(gold: Readings, answer: Readings) -> bool:
    """Whether two elements of collections are equal. An element that is refused equals nothing."""
    try:
        return equal(gold, answer)
    except RefusedError:
        return False


def equal_numbers(gold: Term, answer: Term) -> bool:
    """Compare two values without units; an answer has to be in a final form."""
    if isinstance(gold, Expression) or isinstance(answer, Expression):
        refuse_value(gold, answer)
        return equal_expressions(gold.text, answer.text)
    if gold.value != answer.value:
        if "." not in gold.text:
            return False
        last_digit = Fraction(1, 10 ** len(gold.text.partition(".")[2]))  # a decimal gold may be rounded
        return abs(gold.value - answer.value) < min(last_digit, abs(gold.value) * ROUNDING)
    refuse_value(gold, answer)
    return True


def equal_quantities(gold: Term | Quantity, answer: Term | Quantity) -> bool:
    """Compare two values with or without units. A missing unit is forgiven, one of another dimension is not."""
    gold_in_symbols, answer_in_symbols = (isinstance(value, Quantity) and value.in_symbols for value in (gold, answer))
    if gold_in_symbols or (answer_in_symbols and isinstance(gold, Expression)):
        return False
    if isinstance(gold, Term) and isinstance(answer, Term):
        return equal_numbers(gold, answer)
    wanted = _with_unit(gold)
    answered = _with_unit(answer)
    have_one_dimension = wanted.dimension == answered.dimension
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        if not have_one_dimension:
            return False
        if wanted.factor != answered.factor:
            return _equal_scaled(wanted, answered)
    elif have_one_dimension:  # of percent or degrees
        if _equal_scaled(wanted, answered):
            # `9\pi` is an area more likely than an angle
            return not (isinstance(gold, Expression) and (number(gold.text) / sympy.pi).is_integer)
        if isinstance(gold, Number) and abs(gold.value) < 1:  # the share 0.5 is not 0.5 %
            return False
    return equal_numbers(wanted.value, answered.value)


def _with_unit(value: Term | Quantity) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(value, sympy.S.One, sympy.S.One)


def _equal_scaled(gold: Quantity, answer: Quantity) -> bool:
    """Compare after converting the units. 90 degrees are π/2, with an operation more."""
    refuse_work([gold.value.text], [answer.value.text], 1)
    return same_value(number(gold.value.text) * gold.factor, number(answer.value.text) * answer.factor)


def equal_choices(gold: Choice, answer: Choice) -> bool:
    """Compare letters, and what stands there for them. A capital letter may be answered by a small one."""
    if gold.letter not in (answer.letter, answer.letter.upper()):
        return False
    return not gold.content or not answer.content or equal(gold.content, answer.content)


def equal_tuples(gold: Tuple, answer: Tuple) -> bool:
    """Compare elements in order; labels have to agree if both have one."""
    if len(gold.items) != len(answer.items) or _disagree(gold.label, answer.label):
        return False
    return all(map(equal, gold.items, answer.items))


def equal_collections(gold: Collection, answer: Collection) -> bool:
    """Compare elements without order. Each of the gold's takes one of the answer's: multiplicities count."""
    if len(gold.items) != len(answer.items):
        return False
    left = list(answer.items)
    for element in gold.items:
        match = next((other for other in left if _equal_elements(element, other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def equal_sets(gold: RealSet, answer: RealSet) -> bool:
    """Compare two sets of real numbers, whose bounds have to be worked out."""
    if _disagree(gold.name, answer.name):
        return False
    if len(answer.bounds) > len(gold.bounds):
        raise RefusedError("too many bounds")
    refuse_work(gold.bounds, answer.bounds, 0)
    return gold.points.symmetric_difference(answer.points).is_empty is True


def equal_equations(gold: Equation, answer: Equation) -> bool:
    """
    Compare two equations. A relation of unknowns equals a proportional one. Where the left side of the gold only names
    a value, an answer has the same value under that name, or without a name.
    """
    gives_value = not gold.relates_unknowns and not _disagree(gold.name, answer.name)
    is_number = gives_value and isinstance(gold.value[0], Number)  # `2x = 10` is not solved
    if not is_number and is_proportional(gold, answer):
        refuse_work([gold.left, gold.right], [answer.left, answer.right], 2)  # a term may change its side
        return True
    return gives_value and equal(gold.value, answer.value)


COMPARE: dict[type, Callable[..., bool]] = {
    Number: equal_quantities,
    Expression: equal_quantities,
    Quantity: equal_quantities,
    Words: operator.eq,
    Choice: equal_choices,
    Tuple: equal_tuples,
    Collection: equal_collections,
    RealSet: equal_sets,
    Equation: equal_equations,
}
