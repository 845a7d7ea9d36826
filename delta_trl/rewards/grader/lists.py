r"""Lists, tuples and sets in braces. Brackets decide whether the order counts; multiplicities do."""

import itertools
import re

from .brackets import is_balanced, split_top_level, squeeze


OR, AND = (
    rf"(?:\\(?:{signs})(?![A-Za-z])|\\text\s*\{{\s*,?\s*{word}\s*,?\s*\}}|(?<![A-Za-z\\]){word}(?![A-Za-z]))"
    for word, signs in (("or", "lor|vee"), ("and", "land|wedge"))
)
SEPARATOR = re.compile(rf"\s*(?:,|;|{OR}|{AND})+\s*")
SYSTEMS = re.compile(rf"\s*(?:;|,?\s*{OR})\s*")
RATIO = re.compile(":")
EQUALS = re.compile(r"(?<![<>!:])=(?!=)")
INEQUALITY = re.compile(r"<|>|\\(?:le|ge|neq)(?![A-Za-z])")
NAME = re.compile(r"[A-Za-z](?:'|_\s*(?:\{\w+\}|\w))?|\\[a-z]+(?:_\s*\w)?|[a-z]\([a-z\d]\)")
SIGN = re.compile(r"\\(pm|mp)(?![A-Za-z])")
BRACKETED = re.compile(r"(\(|\[|\\lbrace|\\langle)(.*)(\)|\]|\\rbrace|\\rangle)", re.DOTALL)
BRACKETS = {"()", "[]", "(]", "[)", "\\lbrace\\rbrace", "\\langle\\rangle"}
# Brackets of the gold and of the answer that may differ
LOOSE = {("", "()"), ("", "[]"), ("", "\\lbrace\\rbrace"), ("()", ""), ("\\lbrace\\rbrace", "")}


def read_list(text: str) -> tuple[str, list[str]]:
    """Brackets and elements. Brackets are "" for a bare list and for a single value."""
    text = text.strip()
    if (match := BRACKETED.fullmatch(text)) and is_balanced(match[2]):
        brackets, elements = match[1] + match[3], split_elements(match[2])
        if brackets in BRACKETS and (len(elements) > 1 or match[1] == "\\lbrace"):
            is_vector = match[1] == "\\langle" or (brackets == "[]" and len(elements) > 2)
            return "()" if is_vector else brackets, elements
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
    of tuples. Values of one name (`x = 2, x = 3`) become a set. Other texts are returned with None.
    """
    if INEQUALITY.search(text):
        return text, None
    systems = [split_elements(system) for system in split_top_level(text, SYSTEMS)]
    if min(map(len, systems)) < 2:
        systems = [split_elements(text)]
    points, all_names = [], set()
    for system in systems:
        pairs = [[side.strip() for side in split_top_level(equation, EQUALS)] for equation in system]
        if len(pairs) < 2 or not all(len(pair) == 2 and NAME.fullmatch(pair[0]) and pair[1] for pair in pairs):
            return text, None
        values = {squeeze(name): value for name, value in pairs}
        if len(values) == 1 or (len(systems) == 1 and re.search(OR, text)):
            return f"\\lbrace {', '.join(value for _, value in pairs)} \\rbrace", None
        all_names.add(tuple(sorted(values)))
        points.append(f"({', '.join(values[name] for name in sorted(values))})")
    return (", ".join(points), all_names.pop()) if len(all_names) == 1 else (text, None)


def _signs(element: str) -> list[str]:
    r"""`a \pm b` as two values."""
    if not SIGN.search(element):
        return [element]
    upper = SIGN.sub(lambda sign: {"pm": "+", "mp": "-"}[sign[1]], element)
    lower = SIGN.sub(lambda sign: {"pm": "-", "mp": "+"}[sign[1]], element)
    return [re.sub(r"(^|=)\s*\+", r"\1", upper), lower]
