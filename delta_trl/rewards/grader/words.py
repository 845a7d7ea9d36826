r"""Answers in words: names, yes and no, the letter of a choice.

Words are compared as words: latex2sympy reads "cat" as the product of three symbols, which equals "act".
"""

import re


SYNONYMS = {
    "dne": "does not exist", "none": "no solution", "no real solutions": "no solution", "empty set": "no solution",
    "convergent": "converges",
}  # fmt: skip
SYMBOLS = {"no solution": r"\emptyset", "all real numbers": r"(-\infty,\infty)", "infinity": r"\infty"}
DROPPED = "a an the is are it answer and".split()
WORD = re.compile(r"[^\W_]+(?:\.\d+)?|(?<![^\W\d_])-|-(?![^\W\d_])|[^\w\s.,;:!?'\"`{}$\\~=()-]|_")
CHOICE = re.compile(r"(?:option|choice|answer)?\s*\(?\s*([A-J])\s*\)?\s*[.:)]?", re.IGNORECASE)
LABELLED = re.compile(r"(?:[Oo]ption\s*|[Cc]hoice\s*)?(?:\(([A-J])\)\s*[.:]?|([A-J])[.:)](?=\s))\s*(.+)", re.DOTALL)
ALTERNATIVE = re.compile(r"^\W*(?:or|and|nor|not|but)\b|\b(?:or|and)\s+\(?[A-J]\b|\([A-J]\)|[,;]\s*[A-J][.:)]")
TEXT = r"\\text\s*\{(?:[^{}]|\{[^{}]*\})*\}"
# Words and unknown units: in \text{...}, of three small letters, or in a script without spaces
LOOSE_WORD = (
    rf"(?:{TEXT}|(?<![\\A-Za-z\d}}])(?:[^\W\d_][a-zß-ž\u0400-\u04ff]{{2,}}|is|of|in|at)(?![A-Za-z(^_])"
    r"|[\u3040-\u9fff\uac00-\ud7af]+)"
)
AROUND = re.compile(
    rf"(?P<before>(?:{LOOSE_WORD}[\s,.:!]*)*)(?P<value>.*?)(?P<after>(?:[\s,.]*{LOOSE_WORD})*[\s,.]*)", re.DOTALL
)
# Words that change the value beside them
MEANING = re.compile(
    r"\d|(?i:\b(?:or|and|not|nor|but|no|minus|negative|plus|times|over|root|squared|cubed|to|dozens?|hundreds?|thousands?"
    r"|[mb]illions?|trillions?|percent|half|halves|thirds?|quarters?|double|twice|triple|pairs?|(?:kilo|mega|giga|milli)\w*"
    r"|at least|at most|(?:more|less|fewer|greater) than|incorrect\w*|wrong|one|two|three|four|five|six|seven|eight"
    r"|nine|ten)\b)"
)


def unwrap(text: str) -> str:
    r"""The words of `\text{...}` without it."""
    return re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).strip(" ,;:!'\".")


def plain_words(text: str) -> str:
    """Lower case, no punctuation, no articles, synonyms replaced: equal strings mean the same."""
    words = WORD.findall(unwrap(text))
    joined = " ".join(word for word in words if word == "A" or word.lower() not in DROPPED).lower()
    return SYNONYMS.get(joined, joined)


def is_wordy(text: str) -> bool:
    """Whether a text is made of words, not of mathematics with at most a unit."""
    bare = re.sub(r"\\(?:begin|end)\s*\{[a-z]*\*?\}|\\[A-Za-z]+|_\s*(?:\{[^{}]*\}|\w+)", " ", text)
    has_words = re.search("(?<![A-Za-z])(?:[A-Za-z]{3,}|[Nn]o|[A-Z]{2,})(?![A-Za-z])", bare)
    return bool(has_words) and not re.search(r"[=<>^_]|\\(?:le|ge|frac|sqrt|cdot|times)\b", text)


def split_words(text: str) -> tuple[str, str, str]:
    """The words before a value, the value, and the words after it. Words that may change the value stay with it."""
    match = AROUND.fullmatch(text)
    assert match is not None  # the value may be everything
    before, value, after = match.groups()
    if not value.strip() or MEANING.search(f"{before} {after}"):
        return "", text, ""
    return before, value.strip(), after.strip(" ,.")


def split_label(text: str) -> tuple[str | None, str]:
    """
    The letter of a choice, and what stands there for it: `("B", "42")` for `(B) 42`, `("B", "(B)")` for `(B)`. None if
    the text names no letter, or several.
    """
    if match := CHOICE.fullmatch(unwrap(text)):
        return match[1], text
    match = LABELLED.fullmatch(re.sub(r"^\\text\s*\{\s*([^{}]*)\}", r"\1 ", text).strip())
    if not match or ALTERNATIVE.search(match[3]):  # "(A) or (B)" chooses nothing
        return None, text
    return (match[1] or match[2]), match[3].strip()
