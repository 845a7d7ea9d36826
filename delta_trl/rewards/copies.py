"""Whether an answer is copied from the prompt: restating a problem does not solve it."""

import functools
import re

from .grader.extraction import MAX_ANSWER_LENGTH, content_text
from .grader.forms import operations
from .grader.normalization import normalize
from .grader.numerals import exact
from .grader.words import split_label


# What stands between formulas, from the largest parts to the smallest. Words touch no operator (`xy+xz` is a formula);
# after a number a word may be its unit.
DELIMITER = re.compile(r"\$+|\\[()\[\]]|\n")
WORD = re.compile(r"(?<!\S)[A-Za-z]{2,}(?=[\s.,;:?!]|\Z)")
WORD_NO_UNIT = re.compile(rf"(?<!\d ){WORD.pattern}")
PROSE = re.compile(rf"{WORD.pattern} {WORD.pattern}")
CLAUSE_END = re.compile(r"[,;:?]|\.(?!\d)")
SIDES = re.compile(r"[=<>≤≥⩽⩾≠≈]|\\(?:[lg]e(?:q(?:slant)?)?|neq?|approx)(?![A-Za-z])")
# A value and its unit
QUANTITY = re.compile(
    r"(.*?)(?:\s*+(?:\\text\s*+\{[^{}]*+\}|[%°/]|\^\\circ|\\(?:usd|mu|Omega)(?![A-Za-z])|\^\s?\{?-?\d\}?"
    r"|(?<![\\A-Za-z])[A-Za-z]{2,}+|(?<=[\s/])[A-Za-z](?![A-Za-z])))*+",
    re.DOTALL,
)
TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|\.\d+|\S")
UNORDERED = r"( ) [ ] { } \lbrace \rbrace + * \cdot \times , 0 \text".split()
DIVISION = (r"\frac", r"\div", ":")


def is_copied(answer: str, gold: str, prompt: str | list[dict]) -> bool:
    """
    Whether an answer, or its last side, stands in the prompt: a formula with an operation in it, however it is
    arranged, or a numeral or a quantity. What the gold has itself is no copy, nor is the letter of a choice.
    """
    if split_label(gold)[0] is not None:
        return False
    text = prompt if isinstance(prompt, str) else "\n".join(map(content_text, prompt))
    asked = _formulas(text)
    whole = normalize(answer)
    sides = SIDES.split(whole)
    last = sides[-1]
    numeral = _numeral(last)
    golds = list(filter(None, map(_numeral, SIDES.split(normalize(gold)))))
    if numeral and golds and _terms(last) in asked:
        return _terms(numeral) not in map(_terms, golds)
    written = {_terms(side) for side in (whole, last) if operations(side)}
    from_answer = {_terms(side) for side in sides if operations(side)}
    return bool(written & asked) and not from_answer & _formulas(gold)


@functools.lru_cache(maxsize=256)
def _formulas(text: str) -> set[tuple[str, ...]]:
    """The terms of all formulas, numerals and quantities in a text, and of their sides."""
    parts = {text}
    for between in (DELIMITER, WORD_NO_UNIT, WORD, CLAUSE_END, SIDES):
        parts.update(*map(between.split, parts))
    formulas = [part for part in parts if 2 < len(part) <= MAX_ANSWER_LENGTH and not PROSE.search(part)]
    return set(map(_terms, formulas))


def _terms(formula: str) -> tuple[str, ...]:
    """The sorted tokens of a formula, numbers by their value, without brackets, product signs and plus signs."""
    tokens = map(_by_value, TOKEN.findall(normalize(formula)))
    return tuple(sorted(token for token in tokens if token not in UNORDERED))


def _by_value(token: str) -> str:
    """One spelling for numbers that are equal, and for all signs of division."""
    value = exact(token)
    if value is None:
        return "/" if token in DIVISION else token
    return str(value)


def _numeral(text: str) -> str | None:
    """The numeral of a text that is one, with or without a unit; None for any other text."""
    amount = text.replace("\\usd", "").strip()
    quantity = QUANTITY.fullmatch(amount)
    assert quantity is not None  # the value may be everything
    return next((value for value in (amount, quantity[1]) if exact(value) is not None), None)
