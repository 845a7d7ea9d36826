r"""The parts of lists, tuples and sets in braces. Brackets decide whether the order counts."""

import itertools
import re

from .brackets import is_balanced, split_top_level


OR = r"(?:\\(?:lor|vee)(?![A-Za-z])|\\text\s*\{\s*,?\s*or\s*,?\s*\}|(?<![A-Za-z\\])or(?![A-Za-z]))"
AND = r"(?:\\(?:land|wedge)(?![A-Za-z])|\\text\s*\{\s*,?\s*and\s*,?\s*\}|(?<![A-Za-z\\])and(?![A-Za-z]))"
SEPARATOR = re.compile(rf"\s*(?:,|;|{OR}|{AND})+\s*")
RATIO = re.compile(":")
EQUALITY = re.compile(r"(?<![<>!:])=+(?![<>])")
INEQUALITY = re.compile(r"<|>|\\(?:le|ge|neq)(?![A-Za-z])")
NAME = re.compile(r"[A-Za-z](?:'|_\s*(?:\{\w+\}|\w))?|\\[a-z]+(?:_\s*\w)?|[a-z]\([a-z\d]\)")
MAX_SIGNS = 3
BRACKETED = re.compile(r"[A-Z]?\s*(\(|\[|\\lbrace|\\langle)(.*)(\)|\]|\\rbrace|\\rangle)", re.DOTALL)


def read_list(text: str) -> tuple[str, list[str]]:
    """Brackets and elements. Brackets are "" for a bare list and for a single value, ":" for a ratio of three."""
    text = text.strip()
    match = BRACKETED.fullmatch(text)
    if match and is_balanced(match[2]):
        brackets = match[1] + match[3]
        elements = split_elements(match[2])
        is_vector = match[1] == "\\langle" or (brackets == "[]" and len(elements) > 2)
        if len(elements) > 1 or match[1] == "\\lbrace":
            return "()" if is_vector else brackets, elements
    terms = split_top_level(text, RATIO)
    if len(terms) > 2:
        return ":", terms
    return "", split_elements(text)


def split_elements(text: str) -> list[str]:
    r"""The elements of a list; `a \pm b` gives two."""
    elements = filter(None, split_top_level(text, SEPARATOR))
    return list(itertools.chain.from_iterable(map(_signs, elements)))


def _signs(element: str) -> list[str]:
    r"""`a \pm b` as two values, `\pm a \pm b` as four. `\mp` has the other sign of all `\pm`."""
    if "\\mp" in element or element.count("\\pm") > MAX_SIGNS:
        return [element.replace("\\pm", upper).replace("\\mp", lower) for upper, lower in ("+-", "-+")]
    before, sign, after = element.partition("\\pm")
    if not sign:
        return [element]
    return [f"{before}{chosen}{rest}" for chosen in "+-" for rest in _signs(after)]
