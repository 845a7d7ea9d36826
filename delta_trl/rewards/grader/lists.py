r"""Lists, tuples, sets, intervals and inequalities. Brackets decide whether the order counts; multiplicities do."""

import itertools
import re

import sympy

from .expressions import number
from .forms import RefusedError, operations, refuse_work
from .normalization import split_top_level, squeeze
from .numerals import exact
from .parsing import UnreadableError


OR = re.compile(r"\\(?:lor|vee)(?![A-Za-z])|\\text\s*\{\s*,?\s*or\s*\}|(?<![A-Za-z\\])or(?![A-Za-z])")
AND = re.compile(r"\\(?:land|wedge)(?![A-Za-z])|\band\b")
SEPARATOR = re.compile(
    rf"\s*(?:,|;|{OR.pattern}|\\text\s*\{{\s*,?\s*and\s*,?\s*\}}|(?<![A-Za-z\\])and(?![A-Za-z])"
    r"|\\(?:land|wedge)(?![A-Za-z]))+\s*"
)
SYSTEMS = re.compile(rf"\s*(?:;|,?\s*(?:{OR.pattern}))\s*")
INEQUALITY = re.compile(r"<|>|\\(?:le|ge|neq)(?![A-Za-z])")
SET_SIGN = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset)(?![A-Za-z])")
EQUALS = re.compile(r"(?<![<>!:])=(?!=)")
NAME = re.compile(r"[A-Za-z](?:'|_\s*(?:\{\w+\}|\w))?|\\[a-z]+(?:_\s*\w)?|[a-z]\([a-z\d]\)")
TUPLE_OF_NAMES = re.compile(r"\(\s*([A-Za-z]\w*(?:\s*,\s*[A-Za-z]\w*)+)\s*\)\s*=\s*(?=[(\\\d-])")
MEMBER = re.compile(r"^\s*[A-Za-z]\s*\\in(?![A-Za-z])\s*")
BUILDER = re.compile(
    r"\\lbrace\s*([A-Za-z])\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:)\s*(.*[<>].*|.*\\(?:le|ge|neq).*)\\rbrace"
)
RATIO = re.compile(":")
BRACKETS = {"(": ")", "[": "]", "\\lbrace": "\\rbrace", "\\langle": "\\rangle"}
# Brackets of the gold and of the answer that may differ
LOOSE = {("", "()"), ("", "[]"), ("", "\\lbrace\\rbrace"), ("()", ""), ("\\lbrace\\rbrace", "")}
FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}


def read_list(text: str) -> tuple[str, list[str]]:
    """Brackets and elements. Brackets are "" for a bare list and for a single value."""
    text = text.strip()
    for left, right in BRACKETS.items():
        for close in {right, ")", "]"} if left in "([" else {right}:
            inner = text[len(left) : -len(close)]
            if text.startswith(left) and text.endswith(close) and len(text) > len(left) and _balanced(inner):
                elements = split_elements(inner)
                if len(elements) > 1 or left == "\\lbrace":
                    if left == "\\langle" or (left == "[" and close == "]" and len(elements) > 2):
                        return "()", elements  # vectors
                    return left + close, elements
    if len(terms := split_top_level(text, RATIO)) > 2:
        return ":", terms
    return "", split_elements(text)


def split_elements(text: str) -> list[str]:
    r"""The elements of a list; `a \pm b` gives two."""
    elements = [element.strip() for element in split_top_level(text, SEPARATOR)]
    return list(itertools.chain.from_iterable(_signs(element) for element in elements if element))


def is_order_free(gold_brackets: str, brackets: str) -> bool | None:
    """Whether the order of elements is free; None if the brackets do not fit."""
    if gold_brackets != brackets and (gold_brackets, brackets) not in LOOSE:
        return None
    return {gold_brackets, brackets} <= {"", "\\lbrace\\rbrace"}


def as_points(text: str) -> tuple[str, tuple[str, ...] | None]:
    """
    `x = 2, y = 3` as the tuple `(2, 3)` in the order of the names, with the names, and several such systems as a list
    of tuples. Values of one name (`x_1 = 2, x_2 = 3`) become a bare list. Other texts are returned with None.
    """
    if INEQUALITY.search(text):
        return text, None
    if (match := TUPLE_OF_NAMES.match(text)) and not EQUALS.search(text, match.end()):
        names = [name.strip() for name in match[1].split(",")]
        return text[match.end() :], tuple(sorted(names)) if names == sorted(names) else None
    systems = [split_elements(system) for system in split_top_level(text, SYSTEMS)]
    if len(systems) > 1 and not all(len(system) > 1 for system in systems):
        systems = [split_elements(text)]
    points, all_names = [], set()
    for system in systems:
        pairs = [[side.strip() for side in split_top_level(equation, EQUALS)] for equation in system]
        if len(pairs) < 2 or not all(len(pair) == 2 and NAME.fullmatch(pair[0]) and pair[1] for pair in pairs):
            return text, None
        values = {squeeze(name): value for name, value in pairs}
        if len(pairs) > 1 and len(values) == 1:
            return f"\\lbrace {', '.join(value for _, value in pairs)} \\rbrace", None
        if len({re.sub(r"_\{?\w+\}?$", "", name) for name in values}) == 1:
            return ", ".join(value for _, value in pairs), None
        if len(values) < len(pairs):
            return text, None
        all_names.add(tuple(sorted(values)))
        points.append(f"({', '.join(values[name] for name in sorted(values))})")
    if len(points) == 1 and OR.search(text):
        return f"\\lbrace {points[0][1:-1]} \\rbrace", None
    return (", ".join(points), all_names.pop()) if len(all_names) == 1 else (text, None)


def is_set(text: str) -> bool:
    return bool(INEQUALITY.search(text) or SET_SIGN.search(text))


def equal_sets(gold: str, answer: str) -> bool | None:
    """Whether unions of intervals or inequalities in one variable describe the same; None if one is neither."""
    bounds: list[list[str]] = [[], []]
    variables: list[set[str]] = [set(), set()]
    try:
        first = _as_set(gold, bounds[0], variables[0])
        second = _as_set(answer, bounds[1], variables[1])
    except UnreadableError:
        return None
    if first is None or any(len(names) > 1 for names in variables):
        return None
    if second is None:
        return None if EQUALS.search(answer) else False
    if all(variables) and variables[0] != variables[1]:
        return False
    refuse_work(gold, answer)
    wanted, given = ([bound for bound in some if "\\infty" not in bound] for some in bounds)
    if len(set(map(squeeze, given))) > len(set(map(squeeze, wanted))):
        raise RefusedError("no final form: more bounds")
    most = max(map(operations, wanted), default=0)
    for bound in given:
        if operations(bound) > most + (not all(exact(one) is not None for one in wanted)):
            raise RefusedError("no final form: a bound")
    try:
        return bool(first == second or first.symmetric_difference(second).is_empty)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return False


def _as_set(text: str, bounds: list[str], variables: set[str]) -> sympy.Set | None:
    """The real numbers that a text describes, with its bounds and its variables; None if it describes none."""
    text = text.strip()
    if builder := BUILDER.fullmatch(text):
        text = builder[2]
    for pattern, join in ((OR, sympy.Union), (re.compile(r"\\cup(?![A-Za-z])"), sympy.Union)):
        if len(pieces := split_top_level(text, pattern)) > 1:
            return _joined(pieces, join, bounds, variables)
    text = MEMBER.sub("", text)
    if len(pieces := split_top_level(text, re.compile(r"\\setminus(?![A-Za-z])"))) == 2:
        whole, removed = (_as_set(piece, bounds, variables) for piece in pieces)
        return None if whole is None or removed is None else whole - removed
    if len(pieces := split_top_level(text, SEPARATOR)) > 1:
        if re.fullmatch(r".*\\neq[^<>]*", pieces[0]) and not any(map(INEQUALITY.search, pieces[1:])):
            name = pieces[0].partition("\\neq")[0]  # `x \neq 1, 2` excludes both
            pieces = [pieces[0], *(rf"{name}\neq {piece}" for piece in pieces[1:])]
        both = _joined(pieces, sympy.Intersection, bounds, variables)
        if both is None or not both.is_empty or AND.search(text):
            return both
        return _joined(pieces, sympy.Union, bounds, variables)  # "x < 1, x > 3": no number is both
    if INEQUALITY.search(text):
        return _of_inequality(text, bounds, variables)
    if re.fullmatch(r"\\mathbb\s*\{R\}", text):
        return sympy.S.Reals
    if text == "\\emptyset" or squeeze(text) == "\\lbrace\\rbrace":
        return sympy.S.EmptySet
    brackets, elements = read_list(text)
    if brackets == "\\lbrace\\rbrace":
        return sympy.FiniteSet(*(_bound(element, bounds) for element in elements))
    if len(elements) == 2 and brackets:
        low, high = (_bound(element, bounds) for element in elements)
        return sympy.Interval(low, high, brackets[0] == "(", brackets[1] == ")")
    return None


def _joined(pieces: list[str], join: type, bounds: list[str], variables: set[str]) -> sympy.Set | None:
    sets = [_as_set(piece, bounds, variables) for piece in pieces]
    return None if None in sets else join(*sets)


def _of_inequality(text: str, bounds: list[str], variables: set[str]) -> sympy.Set | None:
    """The set of `x > 3` or `1 < x \\le 2`: a variable alone on one side of each sign."""
    sides = [side.strip() for side in split_top_level(text, INEQUALITY)]
    signs = INEQUALITY.findall(text)
    if len(sides) != len(signs) + 1 or not all(sides):
        return None
    names = [side for side in sides if NAME.fullmatch(side) and side not in ("e", "\\pi", "\\infty")]
    if len(names) != 1:
        return None
    variables.add(squeeze(names[0]))
    result: sympy.Set = sympy.S.Reals
    for left, sign, right in zip(sides, signs, sides[1:], strict=False):
        if left == names[0]:
            sign, side = sign, right
        elif right == names[0]:
            sign, side = FLIPPED.get(sign, sign), left
        else:
            return None
        bound = _bound(side, bounds)
        if sign == "\\neq":
            result -= sympy.FiniteSet(bound)
        elif sign in ("<", "\\le"):
            result &= sympy.Interval(-sympy.oo, bound, True, sign == "<")
        else:
            result &= sympy.Interval(bound, sympy.oo, sign == ">", True)
    return result


def _bound(text: str, bounds: list[str]) -> sympy.Expr:
    bounds.append(text)
    value = number(text).doit()
    if value.free_symbols or not value.is_extended_real:
        raise UnreadableError(text)
    return value


def _balanced(text: str) -> bool:
    depth = 0
    for bracket in re.findall(r"[()\[\]{}]|\\(?:[lr]brace|[lr]angle)(?![A-Za-z])", text):
        depth += 1 if bracket in ("(", "[", "{", "\\lbrace", "\\langle") else -1
        if depth < 0:
            return False
    return depth == 0


def _signs(element: str) -> list[str]:
    r"""`a \pm b` as two values."""
    if not re.search(r"\\(?:pm|mp)(?![A-Za-z])", element):
        return [element]
    upper = re.sub(r"\\mp(?![A-Za-z])", "-", re.sub(r"\\pm(?![A-Za-z])", "+", element))
    lower = re.sub(r"\\mp(?![A-Za-z])", "+", re.sub(r"\\pm(?![A-Za-z])", "-", element))
    return [re.sub(r"(^|=)\s*\+", r"\1", upper), lower]
