r"""Answers in words: names, yes and no, the letter of a choice.

Words are compared as words: math-verify reads "cat" as the product of three symbols, which equals "act".
"""

import re


SYNONYMS = {
    "dne": "does not exist", "none": "no solution", "no solutions": "no solution", "no real solution": "no solution",
    "no real solutions": "no solution", "empty set": "no solution", "all reals": "all real numbers",
    "infinitely many solutions": "infinitely many", "not defined": "undefined", "divergent": "diverges",
    "convergent": "converges",
}  # fmt: skip
SYMBOLS = {
    "no solution": r"\emptyset", "all real numbers": r"(-\infty,\infty)", "infinity": r"\infty",
    "negative infinity": r"-\infty",
}  # fmt: skip
DROPPED = frozenset("a an the is are it its answer and".split())
WORD = re.compile(r"[^\W_]+(?:\.\d+)?|(?<![^\W\d_])-|-(?![^\W\d_])|[^\w\s.,;:!?'\"`{}$\\~=()-]|_")
LETTERS = "ABCDEFGHIJ"
CHOICE = re.compile(r"(?:option|choice|answer)?\s*(?:\(\s*([A-J])\s*\)|([A-J]))\s*[.:)]?", re.IGNORECASE)
LABELLED = re.compile(r"(?:[Oo]ption\s*|[Cc]hoice\s*)?(?:\(([A-J])\)\s*[.:]?|([A-J])[.:)](?=\s))\s*(.+)", re.DOTALL)
ALTERNATIVE = re.compile(r"^\W*(?:or|and|nor|not|but)\b|\b(?:or|and)\s+\(?[A-J]\b|\([A-J]\)|[,;]\s*[A-J][.:)]")


def unwrap(text: str) -> str:
    r"""The words of `\text{...}` without it."""
    return re.sub(r"\s+", " ", re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)).strip(" ,;:!'\".")


def plain_words(text: str) -> str:
    """Lower case, no punctuation, no articles, synonyms replaced: equal strings mean the same."""
    words = WORD.findall(unwrap(text).replace("'", "").replace("\\emptyset", "empty set"))
    joined = " ".join(word for word in words if word == "A" or word.lower() not in DROPPED).lower()
    return SYNONYMS.get(joined, joined)


def is_wordy(text: str) -> bool:
    """Whether a text is made of words, not of mathematics with at most a unit."""
    inside = " ".join(re.findall(r"\\text\s*\{([^{}]*)\}", text))
    outside = re.sub(r"\\(?:begin|end)\s*\{[a-z]*\*?\}|\\[A-Za-z]+|_\s*(?:\{[^{}]*\}|\w+)", " ", text)
    has_words = re.search("[A-Za-z]{2}", inside) or re.search(
        "(?<![A-Za-z])(?:[A-Za-z]{3,}|[Nn]o|[A-Z]{2,})(?![A-Za-z])", outside
    )
    return bool(has_words) and not re.search(r"[=<>^_]|\\(?:le|ge|frac|sqrt|cdot|times)\b", text)


def in_symbols(text: str) -> str:
    """The symbol for words that have one, such as the empty set; other texts as they are."""
    return SYMBOLS.get(plain_words(text), text) if is_wordy(text) else text


def choice_of(text: str) -> str | None:
    """The letter that `B`, `(B)`, `B.`, `(B) 42` or `B. 42` names; None if the text names no letter or several."""
    text = unwrap(text)
    if match := CHOICE.fullmatch(text):
        return (match[1] or match[2]).upper()
    return split_label(text)[0]


def split_label(text: str) -> tuple[str | None, str]:
    """`("B", "42")` for `(B) 42`; `(None, text)` if it has no label."""
    match = LABELLED.fullmatch(re.sub(r"^\\text\s*\{\s*([^{}]*)\}", r"\1 ", text).strip())
    if not match or ALTERNATIVE.search(match[3]):  # "(A) or (B)" chooses nothing
        return None, text
    return (match[1] or match[2]), match[3].strip()


def same_words(gold: str, answer: str) -> bool:
    """Whether two texts say the same."""
    wanted = plain_words(gold)
    return bool(wanted) and wanted == plain_words(answer)
