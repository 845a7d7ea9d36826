r"""Reads a text into values. A text may have several readings: `(1, 4)` is a point and an interval."""

import functools
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import sympy

from .brackets import is_balanced, split_top_level
from .expressions import nearly_equal, numeric
from .forms import RefusedError
from .lists import EQUALITY, INEQUALITY, NAME, OR, SYSTEMS, read_list, split_elements
from .normalization import normalize
from .numerals import exact
from .parsing import UnreadableError, parse_together, with_symbols
from .sets import MEMBER, SET_SIGN, read_set
from .units import parse_unit, split_unit
from .values import (
    Choice,
    Collection,
    Equation,
    Expression,
    Quantity,
    Readings,
    RealSet,
    Tuple,
    Value,
    Words,
    read_number,
    read_term,
)
from .words import SYMBOLS, TEXT, is_wordy, plain_words, split_label, split_words, unwrap


MAX_GOLD_LENGTH = 1000
MAX_GOLD_WORDS = 12
WORD = r"(?<![\\A-Za-z])[A-Za-z]{3,}(?![A-Za-z])"
ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{\w+\}(?:\s*\{\w+\})?")
APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])")
ROUNDED = re.compile(r"-?\d*\.?\d+")
BASES = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
BASE = re.compile(
    rf"\(?([0-9A-Fa-f.]*\d[0-9A-Fa-f.]*)\)?\s*_\s*\{{?\s*(?:(\d+)|\\text\s*\{{\s*({'|'.join(BASES)})\s*\}})\s*\}}?"
)
UNREAD = re.compile(
    r"\\(?:mapsto|to|rightarrow|equiv|cong|sim|parallel|perp|subset|subseteq)(?![A-Za-z])|\\begin(?!\s*\{(?:[pbB]?matrix|array)\})|\\[bp]?mod"
)
NAMING = re.compile(r"[A-Za-z]|[A-Z]{2,3}|\\[a-z]+|[A-Za-z]\s*\([^()=]*\)|\\angle\s*[A-Z]{1,3}")
SENTENCE = re.compile(rf"(?=.*\d)(?:.*?{WORD}){{4}}|(?:.*?{WORD}){{{MAX_GOLD_WORDS + 1}}}", re.DOTALL)
NAMED_VALUE = re.compile(rf"\s*({NAME.pattern})\s*=\s*([^=<>]+?)\s*")
JOINT = re.compile(r"[\s,;]|\band\b")
LETTERS = re.compile("[A-J]{2,}")  # of several choices
TURNED = {">": "<", "\\ge": "\\le"}


CONDITION = re.compile(
    rf"(?P<value>.*?)\s*(?:{TEXT}\s*(?P<all>[A-Za-z])|(?:[,;(]|{TEXT})[\s(]*(?P<name>[A-Za-z])\s*"
    r"(?:\\in(?![A-Za-z])(?P<set>.*)|(?:[<>]|\\(?:neq|ge|le)(?![A-Za-z])).*))\)?",
    re.DOTALL,
)
CONSTANT = re.compile(r".*\+\s*([Cc])\s*")
MATRIX = re.compile(
    r"(?P<scalar>[^&=,()]*?)\s*[(\[]?\s?\\begin\s?\{(?P<kind>[pbB]?matrix|array)\}(?:\s?\{[clr| ]*\})?"
    r"(?P<rows>(?:(?!\\end).)*)\\end\s?\{(?P=kind)\}\s?[)\]]?",
    re.DOTALL,
)
ROW_END = re.compile(r"\\\\(?:\s?\[[^\]]*\])?")


class Target(NamedTuple):
    """A gold: its text in the normal spelling, its readings, and the name of a free constant or integer in it."""

    text: str
    readings: Readings
    bound: str | None = None


@functools.lru_cache(maxsize=4096)
def read_gold(gold: str) -> Target | None:
    """A gold; None if it cannot be used: empty, too long, or of no type that is compared."""
    text = normalize(gold) if len(gold) <= MAX_GOLD_LENGTH else ""
    if not text or UNREAD.search(text) or SENTENCE.match(ENVIRONMENT.sub("", text)):
        return None
    bare, bound = without_condition(text)
    try:
        readings = tuple(filter(_is_readable, read(bare)))
    except RefusedError:
        return None
    if base := BASE.fullmatch(text):  # which an answer may leave out
        readings += read(base[1])
    return Target(text, readings, bound) if readings else None


def _is_readable(value: Value) -> bool:
    """Whether a value of a gold can be compared."""
    match value:
        case Expression():
            try:
                parse_together(value.text)
            except UnreadableError:
                return False
            return "\\begin" not in value.text
        case Quantity():
            return _is_readable(value.value)
        case Tuple() | Collection():
            return all(any(map(_is_readable, item)) for item in value.items)
        case Equation():
            return _is_readable(value.left) and _is_readable(value.right)
    return True


def without_condition(text: str) -> tuple[str, str | None]:
    r"""
    A value without the condition on its variable, `(x \neq 0)` or `k \in \mathbb{Z}`, and the name in it that may be
    any other: of an integer that runs, or of the constant of an integral.
    """
    if match := CONDITION.fullmatch(text):
        value = match["value"]
        name = match["name"] or match["all"]
        has_condition = INEQUALITY.search(value) or MEMBER.match(value)
        has_name = re.search(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])", value)
        if has_name and not has_condition and is_balanced(value):
            return value, name
    constant = CONSTANT.fullmatch(text)
    return text, constant[1] if constant else None


def read(text: str) -> Readings:
    """
    The readings of a text in its normal spelling, the preferred one first.

    Raises:
        RefusedError: If it is an equation whose sides disagree.
    """
    if (numeral := read_number(text)) is not None:
        return (numeral,)
    letters = JOINT.sub("", unwrap(text))
    if LETTERS.fullmatch(letters):
        return (Collection(tuple((Choice(letter),) for letter in letters)),)
    letter, content = split_label(text)
    if letter:
        named = read(content) if content != text else ()
        return (
            Choice(letter, named),
            *(value for value in named or _read_value(text) if not isinstance(value, Choice)),
        )
    if not is_wordy(text):
        return _read_mathematics(MEMBER.sub("", text))
    words = plain_words(text)
    values = read(SYMBOLS[words]) if words in SYMBOLS else _read_mathematics(text)
    return (*values, Words(words))


def _read_mathematics(text: str) -> Readings:
    """The readings of a text but for the letter of a choice and words."""
    if (matrix := MATRIX.fullmatch(text)) is not None:
        return _read_matrix(matrix)
    if system := _read_system(text):
        return system
    if (SET_SIGN.search(text) or INEQUALITY.search(text)) and (points := read_set(text)) is not None:
        return (points,)
    brackets, elements = read_list(text)
    if brackets or len(elements) != 1:
        return _read_list(text, brackets, elements)
    return _read_sides(elements[0]) or _read_value(elements[0])


def _read_matrix(match: re.Match) -> Readings:
    """A matrix as the tuple of its rows; a single row or column is a tuple that knows which of the two it is."""
    rows = []
    for text in ROW_END.split(match["rows"]):
        if text.strip():
            cells = text.split("&")
            rows.append(tuple(_scaled(match["scalar"], cell) for cell in cells))
    if len(rows) == 1:
        return (Tuple(rows[0], "row"),)
    if max(map(len, rows), default=0) > 1:
        return (Tuple(tuple((Tuple(row),) for row in rows)),)
    return (Tuple(tuple(itertools.chain(*rows)), "column"),)


def _scaled(scalar: str, cell: str) -> Readings:
    """The readings of a matrix's cell, multiplied by the factor before the matrix."""
    if not scalar:
        return read(cell)
    factor = exact(scalar)
    value = exact(cell)
    return read(f"{scalar}({cell})" if factor is None or value is None else str(factor * value))


def _read_system(text: str) -> Readings:
    """
    `x = 2, y = 3` as a tuple in the order of its names, and several such systems as a collection. Values of one name
    (`x = 2, x = 3`) are a collection; of names that are counted (`x_1 = 2, x_2 = 3`), too.
    """
    systems = [split_elements(system) for system in split_top_level(text, SYSTEMS)]
    if min(map(len, systems)) < 2:
        systems = [split_elements(text)]
    points = []
    for system in systems:
        equations = list(filter(None, map(NAMED_VALUE.fullmatch, system)))
        if len(equations) < max(2, len(system)):
            return ()
        pairs = [equation.groups() for equation in equations]
        together = Collection(tuple(read(value) for _, value in pairs))
        point = _named(pairs)
        if point is None or (len(systems) == 1 and re.search(OR, text)):
            return (together,)
        points.append(point)
    if len(points) > 1:
        return (Collection(tuple((point,) for point in points)),)
    stems = {name.partition("_")[0] for name, _ in pairs}
    return (*points, together) if len(stems) == 1 else (*points,)


def _named(pairs: Sequence[tuple[str, ...]]) -> Tuple | None:
    """Values with names as a tuple in the order of the names; None if they do not tell all values apart."""
    names = sorted({name for name, _ in pairs})
    if len(names) < len(pairs):
        return None
    return Tuple(tuple(read(value) for _, value in sorted(pairs)), " ".join(names))


def _read_list(text: str, brackets: str, elements: list[str]) -> Readings:
    """A list as a tuple, a collection, a set of real numbers, as its brackets allow."""
    items = tuple(_point(read(element)) for element in elements)
    lists: Readings
    if brackets == "()":
        lists = (Tuple(items),)
    elif brackets == "\\lbrace\\rbrace":
        lists = (Collection(items),)
    elif brackets:  # those of an interval between unknowns count, as does the colon of a ratio
        lists = (Tuple(((Words(brackets),), *items)),)
    elif named := _read_counts(elements):
        lists = (named,)
    else:
        lists = (Collection(items), Tuple(items))
    points = read_set(text) if brackets or "\\infty" in text else None  # finite pairs are points
    return lists if points is None else (*lists, points)


def _read_counts(elements: list[str]) -> Tuple | None:
    """The values of `5 red, 3 blue`, named by their words; None if the words are units, or name no value."""
    pairs = []
    for before, value, after in map(split_words, elements):
        word = plain_words(f"{before} {after}")
        if parse_unit(word):
            return None
        pairs.append((word, value))
    return _named(pairs)


def _point(readings: Readings) -> Readings:
    """The readings of an element of a list, in which `(1, 4)` is a point, or part of the set that the list is."""
    return tuple(value for value in readings if not isinstance(value, RealSet)) or readings


def _read_sides(text: str) -> Readings:
    r"""
    An equation or inequality, and the value that it gives: the last side, whose numbers have to agree; the first in
    `42 = x`. `\sqrt{2} \approx 1.41` gives both sides.
    """
    first, *rounded = [part.strip() for part in split_top_level(text, APPROXIMATELY)]
    sides = [side.strip() for side in split_top_level(first, EQUALITY)]
    if not all(sides):
        sides = [first]
    if len(sides) == 1 and not rounded:
        return _read_inequality(text)
    values = {side: numeric(side.replace("\\usd", "")) for side in sides}
    for side, other in itertools.pairwise(side for side in sides if values[side] is not None):
        written = exact(side), exact(other)
        if not nearly_equal(values[side], values[other]) or (None not in written and written[0] != written[1]):
            raise RefusedError("the sides disagree")
    is_turned = len(sides) == 2 and _name(sides[1]) and not _name(sides[0])
    value = sides[0] if is_turned else sides[-1]
    for side in rounded:
        exact_value = values[value]
        decimal = re.sub(r"\\usd\s*|,", "", side)
        if exact_value is None or split_unit(decimal)[1]:
            continue
        if not (ROUNDED.fullmatch(decimal) and _rounds_to(exact_value, decimal)):
            raise RefusedError("the sides disagree")
    readings = read(value)
    if rounded:
        approximation = read(rounded[-1])
        if values[value] is None:
            return approximation
        return (*readings, *approximation) if "." in rounded[-1] else readings
    if len(sides) != 2:
        return readings
    left, right = map(Expression, sides)
    return (Equation(left, "=", right, _name(sides[0]), readings), *readings)


def _read_inequality(text: str) -> Readings:
    """An inequality that describes no set of real numbers, such as `x^2 < 4`."""
    sides = split_top_level(text, INEQUALITY)
    if len(sides) != 2 or not all(sides):
        return ()
    sign = INEQUALITY.findall(text)[0]
    left, right = map(Expression, sides)
    if sign in TURNED:
        return (Equation(right, TURNED[sign], left),)
    return (Equation(left, sign, right),)


def _read_value(text: str) -> Readings:
    """A value with its unit, without the words around it, or in another base."""
    if base := BASE.fullmatch(text):
        return (Words(f"{base[1].upper()} base {base[2] or BASES.index(base[3]) + 2}"),)
    before, rest, after = split_words(text)
    if before:
        return read(f"{rest} {after}")
    value, written = split_unit(text)
    if unit := parse_unit(written):
        return (Quantity(read_term(value), *unit),)
    if after:
        return read(rest)
    return () if is_wordy(text) else (Expression(text),)


def _rounds_to(value: sympy.Expr, text: str) -> bool:
    """Whether a decimal is the value, rounded or cut off."""
    rest = value - sympy.Rational(text)
    last_digit = sympy.Rational(1, 10 ** len(text.partition(".")[2]))
    return bool(2 * abs(rest) <= last_digit or (abs(rest) < last_digit and rest * value > 0))


def _name(text: str) -> str | None:
    """The side of an equation that only names a value: a symbol, a word, a segment `AB`, `f(x)`; else None."""
    rest = re.sub(r"Q_\{\d+\}", "x", with_symbols(text)).strip()
    return re.sub(r"\\text(?![a-z])|[{} ]", "", text) if NAMING.fullmatch(rest) else None
