r"""Whether an answer equals the gold. Runs in a worker process only.

Types: number, expression, tuple, set or interval, equation, word, quantity; matrices are tuples of rows. A gold of any
other type is unusable.
"""

import functools
import itertools
import re

import sympy

from .brackets import split_top_level, squeeze
from .expressions import equal_equations, nearly_equal, numeric
from .forms import WORK, RefusedError, refuse, refuse_large_text, refuse_more_operations
from .lists import as_points, is_order_free, read_list
from .normalization import normalize
from .numerals import exact
from .parsing import UnreadableError, parse_together, with_symbols
from .sets import equal_sets, is_set
from .units import equal_quantities, parse_unit, split_unit
from .words import choice_of, in_symbols, is_wordy, plain_words, same_words, split_label


MAX_GOLD_LENGTH = 1000
MAX_GOLD_WORDS = 12
EQUALITY = re.compile(r"(?<![<>!:])=+(?![<>])")
APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])")
RELATION = re.compile(r"=|<|>|\\(?:le|ge|neq|approx)(?![A-Za-z])")
ROUNDED = re.compile(r"-?\d*\.?\d+")
CHOICE_GOLD = re.compile(r"\W*(?:text)?\W*[A-J]\W*")
BASE = re.compile(r"\(?([0-9A-Fa-f.]*\d[0-9A-Fa-f.]*)\)?\s*_\s*\{?\s*(\d+)\s*\}?")
UNREAD = re.compile(
    r"\\(?:mapsto|to|rightarrow|equiv|cong|sim|parallel|perp|subset|subseteq|begin)(?![A-Za-z])|\\[bp]?mod"
)
CUT_OFF = sympy.Rational(999, 1000)  # less than one unit, whatever the last digit of a decimal
NAMING = re.compile(r"[A-Za-z]|[A-Z]{2,3}|\\[a-z]+|[A-Za-z]\s*\([^()=]*\)|\\angle\s*[A-Z]{1,3}")
NO_TERM = re.compile(r"\\?\||[A-Za-z]+\s*\(")  # a norm, a function


def judge(gold: str, answer: str | None) -> str:
    """
    The verdict on an answer.

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
    try:
        return "right" if _equal(target, normalize(answer)) else "wrong"
    except UnreadableError:
        return "wrong"
    except RefusedError as error:
        return f"refused: {error}"


@functools.lru_cache(maxsize=4096)
def read_gold(gold: str) -> str | None:
    """A gold in its normal spelling; None if it cannot be used: empty, too long, or of no type that is compared."""
    if not gold or len(gold) > MAX_GOLD_LENGTH:
        return None
    text = normalize(gold)
    if not text or UNREAD.search(text):
        return None
    if is_wordy(text):
        return text if len(plain_words(text).split()) <= MAX_GOLD_WORDS else None
    try:
        return text if _is_readable(text) else None
    except (RefusedError, UnreadableError):
        return None


def _is_readable(text: str) -> bool:
    """Whether every element of a text can be read. Raises UnreadableError or RefusedError otherwise."""
    brackets, elements = read_list(text)
    if brackets or len(elements) > 1:
        return bool(elements) and all(map(_is_readable, elements))
    if exact(text) is not None or BASE.fullmatch(text) or is_wordy(text) or equal_sets(text, text) is not None:
        return True
    sides = split_top_level(_value(text), RELATION)
    if len(sides) > 1:
        return _is_readable(sides[-1].strip())
    value, unit = split_unit(sides[0])
    parse_together(value if unit and (parse_unit(unit) or "\\text" in unit) else sides[0])
    return True


def _equal(gold: str, answer: str) -> bool:
    """Compare two texts of any type."""
    if squeeze(gold) == squeeze(answer):
        return True
    if CHOICE_GOLD.fullmatch(gold) and (letter := choice_of(gold)) is not None:
        return choice_of(answer) == letter
    (gold_label, gold), (label, answer) = split_label(gold), split_label(answer)
    letter = label or choice_of(answer)
    if gold_label and letter and (letter != gold_label or not label):
        return letter == gold_label
    refuse_large_text(gold, answer)
    if _is_words(gold) and same_words(gold, answer):
        return True
    return _equal_lists(in_symbols(gold), in_symbols(answer))


def _equal_lists(gold: str, answer: str) -> bool:
    """Compare two texts that are no choices."""
    if squeeze(gold) == squeeze(answer):
        return True
    (gold, gold_names), (answer, names) = as_points(gold), as_points(answer)
    if gold_names and names and gold_names != names:
        return False
    if (is_set(gold) or is_set(answer)) and (same := equal_sets(_value(gold), _value(answer))) is not None:
        return same
    (gold_brackets, wanted), (brackets, given) = read_list(gold), read_list(answer)
    is_single, is_single_answer = not gold_brackets and len(wanted) == 1, not brackets and len(given) == 1
    if is_single and is_single_answer:
        return _equal_single(wanted[0], given[0])
    if is_single and _value(gold) != gold:
        return _equal_sides(gold, answer)
    if is_single_answer and _value(answer) != answer:
        return _equal_lists(gold, _value(answer))
    order_free = is_order_free(gold_brackets, brackets)
    if order_free is None or len(wanted) != len(given):
        return False
    if not order_free:
        return all(_equal_lists(one, other) for one, other in zip(wanted, given, strict=True))
    left = sorted(given, key=lambda other: squeeze(other) not in map(squeeze, wanted))
    for one in sorted(wanted, key=lambda other: squeeze(other) not in map(squeeze, given)):
        found = next((other for other in left if _equal_elements(one, other)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _equal_elements(gold: str, answer: str) -> bool:
    """As `_equal_lists`: an element that is refused or unreadable equals nothing."""
    try:
        return _equal_lists(gold, answer)
    except (RefusedError, UnreadableError):
        return False


def _equal_single(gold: str, answer: str) -> bool:
    """Compare two texts that are no lists."""
    if any(map(EQUALITY.search, (gold, answer))) or APPROXIMATELY.search(gold + answer):
        return _equal_sides(gold, answer)
    if (gold_base := BASE.fullmatch(gold)) or BASE.fullmatch(answer):
        given = BASE.fullmatch(answer) or re.fullmatch(r"([0-9A-Fa-f.]+)()", answer)
        if not gold_base or not given:
            return False
        return gold_base[1].upper() == given[1].upper() and given[2] in ("", gold_base[2])
    if _is_words(gold) or _is_words(answer):
        return same_words(gold, answer)
    return equal_quantities(gold, answer)


def _is_words(text: str) -> bool:
    """Whether a text is made of words, and no value with a unit."""
    return is_wordy(text) and not split_unit(text)[1]


def _equal_sides(gold: str, answer: str) -> bool:
    """Compare two texts of which at least one is an equation: its last side counts, unless it relates unknowns."""
    gold_sides, sides = _sides(gold), _sides(answer)
    are_equations = len(gold_sides) == len(sides) == 2
    if len(gold_sides) == 2 and _relates_unknowns(gold_sides[0]):
        if not are_equations:
            return False
        refuse(WORK, gold, answer)
        refuse_more_operations(gold_sides, sides, 2)  # a term may change its side
        return equal_equations(gold_sides, sides)
    if are_equations and _is_name(gold_sides[0]):
        if _is_name(sides[0]) and _name(gold_sides[0]) != _name(sides[0]):
            return equal_equations(gold_sides, sides)
        if not _is_name(sides[0]) and numeric(gold_sides[1]) is None and equal_equations(gold_sides, sides):
            refuse_more_operations(gold_sides, sides, 2)
            return True
    return _equal_lists(_value(gold), _value(answer, "." in gold))


def _value(text: str, may_be_rounded: bool = False) -> str:
    r"""
    The last side of an equation, whose numbers have to agree; the first in `42 = x`. Of `\sqrt{2} \approx 1.41` it is
    the exact side, or where the gold is a decimal the last one.
    """
    first, *rounded = [part.strip() for part in split_top_level(text, APPROXIMATELY)]
    sides = _sides(first)
    if len(sides) == 1 and not rounded:
        return sides[0]
    values = {side: None if is_wordy(side) else numeric(side.replace("\\usd", "")) for side in sides}
    for side, other in itertools.pairwise(side for side in sides if values[side] is not None):
        written = exact(side), exact(other)
        if not nearly_equal(values[side], values[other]) or (None not in written and written[0] != written[1]):
            raise RefusedError("the sides disagree")
    value = sides[0] if len(sides) == 2 and _is_name(sides[1]) and not _is_name(sides[0]) else sides[-1]
    for side in rounded:
        exact_value, unit = values[value], split_unit(side)[1]
        if exact_value is not None and not unit and not (ROUNDED.fullmatch(side) and _rounds_to(exact_value, side)):
            raise RefusedError("the sides disagree")
    return rounded[-1] if rounded and (may_be_rounded or values[value] is None) else value


def _rounds_to(value: sympy.Expr, text: str) -> bool:
    """Whether a decimal is the value, rounded to the nearest or cut off."""
    rest, unit = value - sympy.Rational(text), sympy.Rational(1, 10 ** len(text.partition(".")[2]))
    return bool(2 * abs(rest) <= unit or ("." in text and abs(rest) < unit * CUT_OFF and rest * value > 0))


def _sides(text: str) -> list[str]:
    sides = [side.strip() for side in split_top_level(text, EQUALITY)]
    return [re.sub(r"^[A-Za-z]\s*\\in(?![A-Za-z])\s*", "", side) for side in (sides if all(sides) else [text])]


def _name(text: str) -> str:
    return squeeze(re.sub(r"\\text(?![a-z])|[{}]", "", text)).lower()


def _is_name(text: str) -> bool:
    """Whether a side only names a value: a symbol, a word, a segment `AB`, `f(x)`."""
    rest = re.sub(r"Q_\{\d+\}", "x", with_symbols(text)).strip()
    return bool(NAMING.fullmatch(rest)) and rest not in ("e", "i", "\\pi", "\\infty", "\\emptyset")


def _relates_unknowns(left: str) -> bool:
    """Whether the left side of a gold is an expression of unknowns, and no name or operation: `x + y`, `x^2`."""
    if _is_name(left) or NO_TERM.match(left) or any(re.match(pattern, left) for pattern in WORK.values()):
        return False
    try:
        (expression,) = parse_together(left)
    except UnreadableError:
        return False
    return isinstance(expression, (sympy.Add, sympy.Mul, sympy.Pow)) and bool(expression.free_symbols)
