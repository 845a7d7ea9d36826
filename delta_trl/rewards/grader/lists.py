"""Compares lists, tuples, sets, intervals and inequalities: brackets decide whether the order of elements counts."""

import itertools
import re
from collections.abc import Callable

import sympy
from sympy.core.relational import Relational

from .guards import RefusedError, is_undone, refuse_large, refuse_restatement, refuse_shape
from .normalization import split_top_level, squeeze
from .parsing import UnreadableError, parse
from .quantities import equal_quantities
from .units import is_quantity
from .values import INEQUALITY, is_name, split_equation
from .words import is_wordy, unwrap


SEPARATOR = re.compile(
    r"\s*(?:,|;|\\text\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|vee|land|wedge)\b"
    r"|\\(?:lor|vee)(?![A-Za-z]))+\s*"
)
OR = re.compile(r"(?<![A-Za-z\\])or(?![A-Za-z])|\\(?:lor|vee)(?![A-Za-z])|\\text\s*\{\s*or\s*\}")
AND = re.compile(r"(?<![A-Za-z\\])and(?![A-Za-z])|\\(?:land|wedge)(?![A-Za-z])|\\text\s*\{\s*,?\s*and\s*\}")
EMPTY = re.compile(r"(?:[A-Za-z]\s*(?:=|\\in)\s*)?(?:\\emptyset|\\lbrace\s*\\rbrace)")
SET = re.compile(r"\\(?:cup|cap|setminus|mathbb)(?![A-Za-z])")
MEMBER = re.compile(r"^\s*\(?[A-Za-z](?:\s*,\s*[A-Za-z])*\)?\s*\\in(?![A-Za-z])\s*")
VECTOR = re.compile(  # may be written (1, 2)
    r"\\begin\s*\{[pb]matrix\}((?:(?!&|\\end).)*|(?:(?!\\\\|\\end).)*)\\end\s*\{[pb]matrix\}"
)
NAMED = re.compile(r"([A-Za-z](?:_\{?\d\}?)?)\s*=")  # `y = 2, x = 1` is the point (1, 2)
NAMED_TUPLE = re.compile(r"^\(\s*([A-Za-z](?:\s*,\s*[A-Za-z])+)\s*\)\s*=\s*")
VARIABLE = re.compile(
    r"\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|varphi|rho|sigma|omega|tau|psi|xi|eta|nu)(?![A-Za-z])"
    r"|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])"
)
WORDS = re.compile(r"\\(?:mathbb|text)\s*\{[^{}]*\}|_\s*\{\w+\}|_\s*\w")
SIZE = re.compile(r"\|\s*[A-Za-z]\s*\|")  # |x| < 2 may stay
BRACKET = re.compile(r"[()\[\]{}]|\\(?:[lr]brace|[lr]angle)(?![A-Za-z])")
BRACKETS = {"(": ")", "[": "]", "\\lbrace": "\\rbrace", "\\langle": "\\rangle", "]": "["}


def read_list(text: str) -> tuple[str, list[str]]:
    """Brackets and elements. Brackets are "" for a bare list and for a single value."""
    text = text.strip()
    for left, right in BRACKETS.items():
        for close in {right, ")", "]"} if left in "([" else {right}:
            if not (text.startswith(left) and text.endswith(close) and len(text) > len(left) + len(close)):
                continue
            inner = text[len(left) : -len(close)]
            if not _balanced(inner):
                continue
            elements = split_elements(inner)
            if len(elements) > 1 or left == "\\lbrace":
                return left + close, elements
    return "", split_elements(text)


def _balanced(text: str) -> bool:
    depth = 0
    for bracket in BRACKET.findall(text):
        depth += 1 if bracket in ("(", "[", "{", "\\lbrace", "\\langle") else -1
        if depth < 0:
            return False
    return depth == 0


def split_elements(text: str) -> list[str]:
    r"""The elements of a list; `a \pm b` gives two."""
    elements = [element.strip() for element in split_top_level(text, SEPARATOR)]
    elements = [element for element in elements if element]
    return list(itertools.chain.from_iterable(map(_signs, elements)))


def _signs(element: str) -> list[str]:
    r"""`a \pm b` as two values."""
    if not re.search(r"\\(?:pm|mp)(?![A-Za-z])", element):
        return [element]
    upper = re.sub(r"\\mp(?![A-Za-z])", "-", re.sub(r"\\pm(?![A-Za-z])", "+", element))
    lower = re.sub(r"\\mp(?![A-Za-z])", "+", re.sub(r"\\pm(?![A-Za-z])", "-", element))
    return [re.sub(r"(^|=)\s*\+", r"\1", upper), lower]


def equal_lists(gold: str, answer: str) -> bool:
    if is_wordy(gold) and not is_quantity(gold):  # \text{Alice and Bob} is a list too
        gold, answer = unwrap(gold), unwrap(answer)
    elif re.fullmatch(r"\\text\s*\{[^{}]*\}", answer):
        answer = unwrap(answer)
    elif any(empty := [EMPTY.fullmatch(text.strip()) for text in (gold, answer)]):
        return all(empty)  # a condition that nothing meets, or a list, does not say that there is no solution
    refuse_unsolved(gold, answer)
    if _are_sets(gold, answer) and (equal := _equal_sets(gold, answer)) is not None:
        return equal
    gold, answer = _points(gold), _points(answer)
    if _about_several(gold) and bool(OR.search(gold)) != bool(OR.search(answer)):
        return False
    tuples = ("()", "\\langle\\rangle")
    if VECTOR.fullmatch(gold) and read_list(answer)[0] in tuples:
        gold = _tuple(gold)
    elif VECTOR.fullmatch(answer) and read_list(gold)[0] in tuples:
        answer = _tuple(answer)
    gold_brackets, wanted = read_list(gold)
    brackets, given = read_list(answer)
    if len(wanted) == 1 and len(given) == 1 and gold_brackets == brackets == "":
        return equal_quantities(wanted[0], given[0])
    if len(wanted) == 1 and not gold_brackets:  # each of several answers has to equal the gold
        return bool(given) and not brackets and all(equal_quantities(wanted[0], element) for element in given)
    names = [match[1] for match in map(NAMED.match, wanted) if match]
    if brackets in ("()", "[]") and len(set(names)) < len(names):  # the solutions x = 1, x = 2 are not a point
        return False
    ordered = bool(gold_brackets) and gold_brackets != "\\lbrace\\rbrace"
    if ordered and not brackets and any(NAMED.match(element) for element in given):
        if (values := _by_name(given)) is None:
            return False
        given = values
    if len(wanted) != len(given) and not ordered:
        given = list(dict.fromkeys(given))
        wanted = list(dict.fromkeys(wanted))
    if len(wanted) != len(given):
        return len(given) == 1 and "=" not in answer and bool(_equal_sets(gold, answer))
    if brackets and gold_brackets != brackets:
        angled = {gold_brackets, brackets} <= {"()", "\\langle\\rangle"}
        loose = gold_brackets == "" and (
            brackets in ("()", "\\lbrace\\rbrace") or (brackets == "[]" and len(given) > 2)
        )
        if not angled and not loose and not (gold_brackets == "\\lbrace\\rbrace" and brackets == ""):
            return False
        ordered = ordered or brackets in ("()", "[]")
    elif gold_brackets and not brackets and gold_brackets not in ("()", "\\lbrace\\rbrace", "\\langle\\rangle"):
        return False
    return _match(wanted, given, ordered)


def equal_named(gold: str, answer: str) -> bool | None:
    """Compare the values of several names, which also stand in their order; None if the gold has no such values."""
    wanted, given = _named_values(gold), _named_values(answer)
    if wanted is None:
        name, several = split_equation(split_elements(gold)[0])[0], len(split_elements(gold)) > 1
        if given is not None and several and NAMED.match(gold) and {squeeze(name)} != set(given):
            return False  # x = 1, y = 2 are no two values of x
        return None
    if given is not None:
        if len({name.lower() for name in wanted}) == len(wanted):  # R and r are not the same
            wanted, given = ({name.lower(): value for name, value in of.items()} for of in (wanted, given))
        if wanted.keys() != given.keys():
            return None
        return all(_equal_elements(value, given[name]) for name, value in wanted.items())
    brackets, values = read_list(answer)
    if "=" in answer or len(values) != len(wanted):
        return None
    if OR.search(answer) or brackets == "\\lbrace\\rbrace":
        return False
    orders = [list(wanted), *([sorted(wanted)] if brackets else [])]
    return any(_match([wanted[name] for name in names], values, ordered=True) for names in orders)


def _named_values(text: str) -> dict[str, str] | None:
    """The values of `x = 2, y = 3`, `(x, y) = (2, 3)` or `x = y = 2` by name; None unless the names differ."""
    if OR.search(text) or INEQUALITY.search(text):
        return None
    if match := NAMED_TUPLE.match(text.strip()):
        names, (brackets, values) = match[1].split(","), read_list(text.strip()[match.end() :])
        pairs = list(zip(names, values, strict=False)) if brackets == "()" and len(names) == len(values) else []
    else:
        equations = [split_equation(element) for element in split_elements(text)]
        pairs = [(name, sides[-1]) for sides in equations for name in sides[:-1]]
        if any(len(sides) < 2 or not sides[-1] for sides in equations):
            return None
    named = {squeeze(name): value for name, value in pairs}
    several = len({re.sub(r"_\{?\w+\}?$", "", name) for name in named})  # x_1 and x_2 are values of x
    return named if 1 < several == len(pairs) and all(map(is_name, named)) else None


def _about_several(text: str) -> bool:
    """Whether statements are about different unknowns: `x > 0, y > 0`."""
    pieces = [piece for piece in split_elements(text) if "=" in piece or INEQUALITY.search(piece)]
    unknowns = [set(VARIABLE.findall(WORDS.sub(" ", piece))) for piece in pieces]
    return len(unknowns) > 1 and not set.intersection(*unknowns)


def refuse_unsolved(gold: str, answer: str) -> None:
    """Refuse an inequality that is still to be solved for its variable (`x^2 < 4`), unless the gold is one."""
    if INEQUALITY.search(answer) and _is_unsolved(answer) and not _is_unsolved(gold):
        raise RefusedError("restates the problem: inequality")


def _is_unsolved(text: str) -> bool:
    """Whether, in an inequality in one variable, a side holds more than the variable or its absolute value."""
    variables = set(VARIABLE.findall(WORDS.sub(" ", MEMBER.sub("", text)))) - {"e"}
    if len(variables) != 1:
        return False
    (name,) = variables
    alone = re.compile(rf"\|?\s*{re.escape(name)}\s*(?:_\s*\{{?\w\}}?)?\s*\|?")
    for relation in split_top_level(text, SEPARATOR):
        sides = [side.strip() for side in split_top_level(MEMBER.sub("", relation), INEQUALITY)]
        if len(sides) > 1 and sum(bool(VARIABLE.search(WORDS.sub(" ", side))) for side in sides) != sum(
            bool(alone.fullmatch(side)) for side in sides
        ):
            return True
    return False


def _tuple(vector: str) -> str:
    match = VECTOR.fullmatch(vector)
    assert match is not None
    return "(" + match[1].replace("\\\\", ",").replace("&", ",") + ")"


def _match(wanted: list[str], given: list[str], ordered: bool) -> bool:
    if ordered:
        return all(_equal_elements(gold, answer) for gold, answer in zip(wanted, given, strict=True))
    remaining = list(given)
    for gold in wanted:
        found = next((answer for answer in remaining if squeeze(answer) == squeeze(gold)), None)
        if found is None:
            found = next((answer for answer in remaining if _equal_elements(gold, answer)), None)
        if found is None:
            return False
        remaining.remove(found)
    return True


def _equal_elements(gold: str, answer: str) -> bool:
    gold, answer = (NAMED_TUPLE.sub("", text) for text in (gold, answer))
    gold_brackets, answer_brackets = read_list(gold)[0], read_list(answer)[0]
    if gold_brackets or answer_brackets:
        return equal_lists(gold, answer)
    return equal_quantities(gold, answer)


def _by_name(equations: list[str]) -> list[str] | None:
    """The values of `y = 2, x = 1` in the order of the names; None unless each has a different name."""
    named = {match[1]: element[match.end() :].strip() for element in equations if (match := NAMED.match(element))}
    return [named[name] for name in sorted(named)] if len(named) == len(equations) else None


def _points(text: str) -> str:
    r"""`x = 1, y = 2 \text{ or } x = 2, y = 1` as the points (1, 2), (2, 1)."""
    systems = [split_elements(piece) for piece in split_top_level(text, OR)]
    points = [_by_name(system) if len(system) > 1 else None for system in systems]
    if len(points) < 2 or None in points:
        return text
    return ", ".join(f"({', '.join(point)})" for point in points if point)


def _are_sets(gold: str, answer: str) -> bool:
    """Whether to compare the two as sets of numbers: for inequalities (except one against one) and set operations."""
    signs = [len(INEQUALITY.findall(text)) for text in (gold, answer)]
    if signs == [1, 1]:
        return any(len(split_elements(text)) > 1 for text in (gold, answer))
    return any(signs) or any(map(SET.search, (gold, answer)))


def _equal_sets(gold: str, answer: str) -> bool | None:
    """Whether two conditions or unions describe the same numbers; None if the gold is about several variables."""
    refuse_shape(gold, answer)
    if squeeze(gold) == squeeze(answer):
        return True
    refuse_restatement(re.sub(SIZE, "x", gold), re.sub(SIZE, "x", answer))
    names = [_letters(gold), _letters(answer)]
    if all(names) and names[0] != names[1]:
        return False
    try:
        first, second = _as_set(gold), _as_set(answer, is_answer=True)
        if first is None or second is None:
            return None if len(names[0]) > 1 else False
        return bool(first == second or first.symmetric_difference(second).is_empty)
    except (AttributeError, NotImplementedError, TypeError, UnreadableError, ValueError):
        return False


def _as_set(text: str, is_answer: bool = False) -> sympy.Set | None:
    """The numbers that a condition or a union allows; None if the text is neither."""
    if len(pieces := split_top_level(text, OR)) > 1:
        return _joined(pieces, sympy.Union, is_answer)
    text = MEMBER.sub("", re.sub(r"(\\neq)(?=[^<>]*$)", r"\1 ", text))
    if len(pieces := split_elements(text)) > 1:
        if INEQUALITY.search(text):
            if "\\neq" in pieces[0]:  # `x \neq 1, 2` excludes both
                name = pieces[0].partition("\\neq")[0]
                pieces = [piece if INEQUALITY.search(piece) else rf"{name}\neq {piece}" for piece in pieces]
            both = _joined(pieces, sympy.Intersection, is_answer)
            if both is None or not both.is_empty:
                return both
            # "x > 1, x < 3" means both, "x < 1, x > 3" one of them
            return None if AND.search(text) else _joined(pieces, sympy.Union, is_answer)
        if is_answer and all(read_list(piece)[0] for piece in pieces):
            return _joined(pieces, sympy.Union, is_answer)
    expression = parse(text, False, True)
    refuse_large(expression)
    if is_answer and is_undone(expression):
        raise RefusedError("restates the problem: arithmetic")
    if isinstance(expression, sympy.Tuple) and len(expression) == 2:
        return None
    if isinstance(expression, sympy.Set):
        return expression.doit()
    relations = getattr(expression, "_unsorted_args", (expression,))
    if not all(isinstance(relation, Relational) and relation.lhs != relation.rhs for relation in relations):
        return None
    if len(expression.free_symbols) != 1 or any(relation.has(sympy.Set) for relation in relations):
        return None
    return sympy.Intersection(*[relation.doit().as_set() for relation in relations])


def _joined(pieces: list[str], how: Callable[..., sympy.Set], is_answer: bool) -> sympy.Set | None:
    """The sets of several pieces as one; None if one is no set, or if they are about different unknowns."""
    sets = [_as_set(piece.strip(), is_answer) for piece in pieces]
    if None in sets or len(set().union(*map(_letters, pieces)) - {"e"}) > 1:
        return None
    return how(*sets)


def _letters(text: str) -> set[str]:
    """Names in a text, in lower case."""
    text = re.sub(r"\\mathbb\s*\{[A-Z]\}|\\[A-Za-z]+|\bor\b|\band\b", "", text)
    return set(re.findall(r"[a-z]", text.lower()))
