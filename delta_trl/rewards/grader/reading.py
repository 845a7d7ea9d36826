r"""Reads a text into values. A text may have several readings: `(1, 4)` is a point and an interval."""

import functools
import itertools
import re
from typing import NamedTuple

import sympy

from .brackets import is_balanced, split_top_level
from .expressions import equal_expressions, numeric
from .forms import RefusedError
from .lists import EQUALITY, INEQUALITY, NAME, OR, read_list
from .normalization import normalize
from .numerals import exact
from .parsing import GREEK_NAMES, UnreadableError, parse_together, with_symbols
from .sets import MEMBER, SET_SIGN, read_set
from .units import parse_unit, split_symbols, split_unit
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
    Value,
    Words,
    read_number,
    read_term,
)
from .words import MEANING, SYMBOLS, TEXT, is_wordy, plain_words, split_label, split_words, unwrap


MAX_GOLD_LENGTH = 1000
MAX_GOLD_WORDS = 12
WORD = r"(?<![\\A-Za-z])(?<!begin\{)(?<!end\{)(?![clr]+\})[A-Za-z]{3,}(?![A-Za-z])"
APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])")
DECIMAL = re.compile(r"-?\d*\.?\d+")
BASES = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
BASE = re.compile(
    rf"\(?([0-9A-Fa-f.]*\d[0-9A-Fa-f.]*)\)?\s*_\s*\{{?\s*(?:(\d+)|\\text\s*\{{\s*({'|'.join(BASES)})\s*\}})\s*\}}?"
)
UNREAD = re.compile(
    r"\\(?:mapsto|to|rightarrow|equiv|sim|parallel|perp|subset|subseteq|coth)(?![A-Za-z])"
    r"|\\begin(?!\s*\{(?:[pbB]?matrix|array)\})|\\[bp]?mod"
)
# Letters that are read as a product or a power, which no other spelling of what is meant equals: names of LaTeX and of
# Python without a backslash, a number of combinations
MISREAD = re.compile(
    rf"(?<![A-Za-z] )(?<![\\A-Za-z])(?:{GREEK_NAMES}|oo)(?![A-Za-z]| [A-Za-z])"
    r"|(?<![\\A-Za-z])(?:abs|[A-Z][a-z]{2,})\(|\A[CA]\s?_\s?\{?\s?\d+\s?\}?\s?\^\s?\{?\s?\d+\s?\}?\Z"
)
NAMING = re.compile(r"[A-Za-z]|[A-Z]{2,3}|\\[a-z]+|[A-Za-z]\s*\([^()=]*\)|\\angle\s*[A-Z]{1,3}")
SENTENCE = re.compile(rf"(?=.*\d)(?:.*?{WORD}){{4}}|(?:.*?{WORD}){{{MAX_GOLD_WORDS + 1}}}", re.DOTALL)
NAMED_VALUE = re.compile(rf"\s*({NAME.pattern}|{NAMING.pattern})\s*=\s*([^=<>]+?)\s*")
JOINT = re.compile(r"[\s,;]|\band\b")
LETTERS = re.compile("[A-J]{2,}")  # of several choices
TURNED = {">": "<", "\\ge": "\\le"}


CONDITION = re.compile(
    rf"(?P<value>.*?)\s*(?:{TEXT}\s*(?P<all>[A-Za-z])|(?:[,;(]|{TEXT})[\s(]*(?P<name>[A-Za-z])\s*"
    r"(?:\\in(?![A-Za-z]).*|(?:[<>]|\\(?:neq|ge|le)(?![A-Za-z])).*))\)?",
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
    bound: str | None


@functools.lru_cache(maxsize=4096)
def read_gold(gold: str) -> Target | None:
    """A gold; None if it cannot be used: empty, too long, or of no type that is compared."""
    text = normalize(gold) if len(gold) <= MAX_GOLD_LENGTH else ""
    if not text or UNREAD.search(text) or MISREAD.search(text) or SENTENCE.match(text):
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
            return not value.in_symbols and _is_readable(value.value)
        case Tuple() | Collection():
            return all(any(map(_is_readable, item)) for item in value.items)
        case Equation():
            return _is_readable(Expression(value.left)) and _is_readable(Expression(value.right))
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
        has_name = re.search(alone(name), value)
        between = text[len(value) : match.end("all") if match["all"] else match.start("name")]
        if has_name and not has_condition and not MEANING.search(between) and is_balanced(value):  # "or x" is a value
            return value, name
    constant = CONSTANT.fullmatch(text)
    return text, constant[1] if constant else None


def alone(name: str) -> str:
    """The pattern of a letter that is no part of a word."""
    return rf"(?<![A-Za-z\\]){name}(?![A-Za-z])"


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
    if factor is not None and value is not None:
        return read(str(factor * value))
    has_sign = not scalar[-1].isalpha() or scalar.endswith(("\\cdot", "\\times"))
    sign = "" if has_sign else "\\cdot"  # a letter before a bracket would be a function
    return read(f"{scalar}{sign}({cell})")


def _read_list(text: str, brackets: str, elements: list[str]) -> Readings:
    """A list as a tuple, a collection, a set of real numbers, as its brackets allow."""
    if not brackets and (named := _read_named(text, elements)):
        return named
    items = tuple(_point(read(element)) for element in elements)
    lists: Readings
    if brackets == "()":
        lists = (Tuple(items),)
    elif brackets == "\\lbrace\\rbrace":
        lists = (Collection(items),)
    elif brackets:  # those of an interval between unknowns count, as does the colon of a ratio
        lists = (Tuple(((Words(brackets),), *items)),)
    else:
        lists = (Collection(items), Tuple(items))
    points = read_set(text) if brackets or "\\infty" in text else None  # finite pairs are points
    return lists if points is None else (*lists, points)


def _read_named(text: str, elements: list[str]) -> Readings:
    """
    `x = 2, y = 3` or `2 red, 3 blue` as a tuple in the order of the names. Where all names are there again, each time
    is one tuple of a collection. Values of one name (`x = 2, x = 3`) are a collection; of names that are counted
    (`x_1 = 2, x_2 = 3`), too.
    """
    pairs = list(filter(None, map(_named_value, elements)))
    if len(pairs) < max(2, len(elements)):
        return ()
    values = [(name, read(value)) for name, value in pairs]
    together = Collection(tuple(value for _, value in values))
    names = sorted({name for name, _ in values})
    size = len(names)
    starts = range(0, len(values), size)
    systems = [dict(values[start : start + size]) for start in starts]
    if size == 1 or min(map(len, systems)) < size:
        return (together,)
    label = " ".join(names)
    points = [Tuple(tuple(map(system.__getitem__, names)), label) for system in systems]
    if len(points) > 1:
        return (Collection(tuple((point,) for point in points)),)
    if re.search(OR, text):
        return (together,)
    stems = {name.partition("_")[0] for name in names}
    return (*points, together) if len(stems) == 1 else (*points,)


def _named_value(element: str) -> tuple[str, str] | None:
    """Name and value of `x = 2` and of `2 red`; None if nothing names a value, or only a unit does."""
    if equation := NAMED_VALUE.fullmatch(element):
        return re.sub(r"[{}\s]", "", equation[1]), equation[2]
    before, value, after = split_words(element)
    around = f"{before} {after}"
    words = plain_words(around)
    return (words, value) if words and not parse_unit(around) else None


def _point(readings: Readings) -> Readings:
    """The readings of an element of a list, in which `(1, 4)` is a point, or part of the set that the list is."""
    return tuple(value for value in readings if not isinstance(value, RealSet)) or readings


def _read_sides(text: str) -> Readings:
    r"""
    An equation or inequality, and the value that it gives: the last side, whose numbers have to agree; the first in
    `42 = x`.
    """
    first, *rounded = split_top_level(text, APPROXIMATELY)
    if rounded:
        return _read_rounded(first, rounded)
    sides = [side.strip() for side in split_top_level(text, EQUALITY)]
    if len(sides) == 1 or not all(sides):
        return _read_inequality(text)
    amounts = [side.replace("\\usd", "") for side in sides]
    numbers = [amount for amount in amounts if numeric(amount) is not None]
    if not all(equal_expressions(*pair) for pair in itertools.pairwise(numbers)):
        raise RefusedError("the sides disagree")
    if len(sides) != 2:
        return read(sides[-1])
    left, right = sides
    name = _name(left)
    readings = read(left if _name(right) and not name else right)
    return (Equation(left, "=", right, name, readings), *readings)


def _read_rounded(first: str, rounded: list[str]) -> Readings:
    r"""Both sides of `\sqrt{2} \approx 1.41`. Decimals have to be the value of the first side, rounded or cut off."""
    readings = read(first)
    last = readings[-1]
    value = numeric(last.text) if isinstance(last, Term) else None
    if value is None:
        return read(rounded[-1])
    for side in rounded:
        decimal, unit = split_unit(side.replace("\\usd", ""))
        if not unit and not _rounds_to(value, decimal.strip()):
            raise RefusedError("the sides disagree")
    return (*readings, *read(rounded[-1])) if "." in rounded[-1] else readings


def _rounds_to(value: sympy.Expr, text: str) -> bool:
    """Whether a decimal is the value, rounded or cut off."""
    if not DECIMAL.fullmatch(text):
        return False
    whole, _, places = text.partition(".")
    scaled = value * 10 ** len(places)
    return int(whole + places) in (int(scaled), round(scaled))


def _read_inequality(text: str) -> Readings:
    """An inequality that describes no set of real numbers, such as `x^2 < 4`."""
    sides = split_top_level(text, INEQUALITY)
    if len(sides) != 2 or not all(sides):
        return ()
    sign = INEQUALITY.findall(text)[0]
    if sign in TURNED:
        sides.reverse()
    left, right = sides
    return (Equation(left, TURNED.get(sign, sign), right),)


def _read_value(text: str) -> Readings:
    """A value with its unit, without the words around it, or in another base."""
    if base := BASE.fullmatch(text):
        return (Words(f"{base[1].upper()} base {base[2] or BASES.index(base[3]) + 2}"),)
    before, rest, after = split_words(text)
    if before:
        return read(f"{rest} {after}")
    value, written = split_unit(text)
    in_symbols = _read_symbols(text)
    if unit := parse_unit(written):
        quantity = Quantity(read_term(value), *unit)
        # `5\mu\text{ m}` is 5 micrometres, too
        return (quantity,) if isinstance(quantity.value, Number) else (quantity, *in_symbols)
    if after:
        return (*read(rest), *in_symbols)
    return in_symbols if is_wordy(text) else (Expression(text), *in_symbols)


def _read_symbols(text: str) -> Readings:
    """A numeral with a unit in symbols; nothing for any other text."""
    numeral, written = split_symbols(text)
    value = read_number(numeral)
    unit = parse_unit(written, in_symbols=True) if value else None
    return (Quantity(value, *unit, in_symbols=True),) if value and unit else ()


def _name(text: str) -> str | None:
    """The side of an equation that only names a value: a symbol, a word, a segment `AB`, `f(x)`; else None."""
    rest = re.sub(r"Q_\{\d+\}", "x", with_symbols(text)).strip()
    return re.sub(r"\\text(?![a-z])|[{} ]", "", text) if NAMING.fullmatch(rest) else None
