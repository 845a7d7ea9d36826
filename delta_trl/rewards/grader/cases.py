r"""Piecewise functions (`\begin{cases}`): pairs of a value and its condition, in any order."""

import re
from collections.abc import Callable


CASES = re.compile(r"(?:[^=]+=\s*)?\\begin\s*\{cases\}(.*)\\end\s*\{cases\}", re.DOTALL)
ARRAY = re.compile(r"\\lbrace\s*\\begin\s*\{array\}\s*\{[^{}]*\}(.*)\\end\s*\{array\}", re.DOTALL)
ROW = re.compile(r"\\\\")
OTHERWISE = "otherwise"
IF = re.compile(
    r"^\s*(?:\\text\s*\{\s*(?:if|for|when|whenever)\s*\}|(?:if|for|when|whenever)\b|(?<=\{)\s*(?:if|for|when)\b)\s*"
)
EDGE = " ,;."


def read_cases(text: str) -> list[tuple[str, str]] | None:
    """The values and conditions of a piecewise function; None if the text is not one."""
    match = CASES.fullmatch(text.strip())
    rows = [row.strip(EDGE).split("&") for row in ROW.split(match[1])] if match else []
    rows = [row for row in rows if any(row)]
    if not rows or any(len(row) != 2 for row in rows):
        return None
    return [(value.strip(EDGE), _condition(condition)) for value, condition in rows]


def without_braces(text: str) -> str:
    r"""Turn a system of equations in `\\begin{cases}` into a list, and an array after a brace into `cases`."""
    text = ARRAY.sub(lambda match: rf"\begin{{cases}}{match[1]}\end{{cases}}", text)
    if (match := CASES.fullmatch(text.strip())) and "&" not in match[1]:
        rows = [row.strip(EDGE) for row in ROW.split(match[1]) if row.strip(EDGE)]
        return ", ".join(rows) if all("=" in row for row in rows) else text
    return text


def equal_cases(gold: list[tuple[str, str]], answer: list[tuple[str, str]], equal: Callable[[str, str], bool]) -> bool:
    """Whether both have the same values for the same conditions; each may have one condition "otherwise"."""
    if len(gold) != len(answer):
        return False
    remaining, left = list(answer), []
    for value, condition in gold:
        found = [
            case
            for case in remaining
            if case[1] == condition or (OTHERWISE not in (case[1], condition) and equal(condition, case[1]))
        ]
        if not found:
            left.append((value, condition))
        elif not equal(value, found[0][0]):
            return False
        else:
            remaining.remove(found[0])
    if not left:
        return True
    (value, condition), (given, under) = left[0], remaining[0]
    return len(left) == 1 and OTHERWISE in (condition, under) and equal(value, given)


def _condition(text: str) -> str:
    text = re.sub(r"^\\text\s*\{\s*(?:if|for|when|whenever)\s+([^{}]*)\}", r"\\text{\1}", text.strip(EDGE))
    text = re.sub(r"\\text\s*\{\s*\}", "", IF.sub("", text)).strip(EDGE)
    return OTHERWISE if re.search(r"\b(?:otherwise|else)\b", text) else text
