r"""Answers in words: names, yes and no, dates, times of day, the letter of a choice.

Words are compared as words: math-verify reads "cat" as the product of three symbols, which equals "act".
"""

import re
from fractions import Fraction

from .normalization import squeeze


NUMBER_WORDS = dict(
    zip(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split(),
        range(21),
        strict=True,
    )
) | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
FRACTION_WORDS = {
    name + plural: denominator
    for names, denominator in (
        ("half", 2), ("third", 3), ("quarter", 4), ("fourth", 4), ("fifth", 5), ("sixth", 6), ("seventh", 7),
        ("eighth", 8), ("ninth", 9), ("tenth", 10), ("eleventh", 11), ("twelfth", 12), ("fifteenth", 15),
        ("sixteenth", 16), ("twentieth", 20), ("hundredth", 100), ("thousandth", 1000),
    )
    for name, plural in ((names, ""), (names, "s"))
} | {"halves": 2}  # fmt: skip
SYNONYMS = {
    "dne": "does not exist", "doesnt exist": "does not exist", "limit does not exist": "does not exist",
    "none": "no solution", "empty set": "no solution", "not defined": "undefined",
    "all reals": "all real numbers", "all real number": "all real numbers",
    "real numbers": "all real numbers", "any real number": "all real numbers", "infinite": "infinitely many",
    "infinitely many solutions": "infinitely many", "infinite solutions": "infinitely many", "y": "yes", "n": "no",
    "correct": "true", "incorrect": "false", "t": "true", "f": "false",
    "divergent": "diverges", "convergent": "converges",
}  # fmt: skip
NO_SOLUTION = re.compile(  # "there are no real solutions", "the equation has no solution", "no such x exists"
    r"(?:there|it|(?:this |given )?(?:equation|inequality|system|problem)(?: of equations)?)?\s*(?:has|have|exists?)?"
    r"\s*no (?:such |real |possible |valid )*(?:solutions?|roots?|values?|numbers?|[a-z])"
    r"(?: (?:of|for) [a-z])?(?: exists?)?"
)
SYMBOLS = {
    "no solution": r"\emptyset", "all real numbers": r"(-\infty,\infty)", "infinity": r"\infty",
    "negative infinity": r"-\infty",
}  # fmt: skip
YES_OR_NO = {"yes", "no", "true", "false"}
MONTHS = "january february march april may june july august september october november december".split()
DROPPED = frozenset("a an the is are it its answer option choice".split())
ARTICLE = re.compile(r"^A(?= (?!(?:and|or|will|can|has)\b)[a-z-]*[^\Ws]\b)")  # "A square", but not "A wins"
# A word, a number or a sign. The hyphen of "non-negative" is none, nor are parentheses around words.
WORD = re.compile(r"[^\W_]+(?:\.\d+)?|(?<![^\W\d_])-|-(?![^\W\d_])|[^\w\s.,;:!?'\"`{}$\\~=-]|_")
PARENTHESES = re.compile(r"\(([^\W\d_][^()\d\\+<>=^/_-]+)\)")
TIME = re.compile(r"(\d{1,2}):(\d{2})\s*(?:([ap])\.?\s?m\b\.?)?|(\d{1,2})\s*([ap])\.?\s?m\b\.?", re.IGNORECASE)
CHOICE = re.compile(r"(?:option|choice|answer)?\s*(?:\(\s*([A-Ja-j])\s*\)|([A-Ja-j]))\s*[.:)]?", re.IGNORECASE)
OTHER_CHOICE = re.compile(
    r"^\W*(?:text\W*)?(?:or|and|nor|not|but|maybe)\b|^[,/&]|\([A-J]\)|\bor\s+[A-J]\b|[,;]\s*[A-J][.:)]"
)
CHOICES = re.compile(r"[A-J](?:[A-J]+|(?:(?:\s*,\s*|\s*,?\s+and\s+)[A-J])+)")
STATEMENTS = re.compile(r"\(\d+\)(?:\s*(?:,|and|,\s*and)?\s*\(\d+\))*")
LABELLED = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s+)?(?:\(([A-J])\)\s*[.:]?|([A-J])[.:)](?=\s))\s*(.+)", re.DOTALL
)


def unwrap(text: str) -> str:
    r"""The words of `\text{...}` without it."""
    return re.sub(r"\s+", " ", re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)).strip(" ,;:!'\"").rstrip(" .,;:!'\"")


def plain_words(text: str) -> str:
    """
    Lower case, no punctuation, no articles, synonyms replaced: equal strings mean the same. Signs and operators stay,
    as in `-2 or x < 3`.
    """
    text = ARTICLE.sub("", unwrap(text)).replace("'", "").replace("\\emptyset", "empty set")
    words = WORD.findall(PARENTHESES.sub(r" \1 ", text))
    joined = " ".join(word for word in words if word == "A" or word.lower() not in DROPPED).lower()
    text = text.lower()
    if NO_SOLUTION.fullmatch(joined):
        return "no, a solution" if re.search(r"\bno\s*[,;.:]", text) else "no solution"
    return SYNONYMS.get(joined, joined)


def is_wordy(text: str) -> bool:
    """Whether a text is made of words, not of mathematics with at most a unit."""
    inside = " ".join(re.findall(r"\\text\s*\{([^{}]*)\}", text))
    if re.search(r"[A-Za-z]{2}", inside):
        return True
    outside = re.sub(r"\\(?:begin|end)\s*\{[a-z]*\*?\}|\\[A-Za-z]+|_\{[^{}]*\}", " ", text)
    if re.search(r"(?<![A-Za-z])(?:[A-Za-z]{3,}|[Nn]o|[A-Z]{2,})(?![A-Za-z])", outside):
        return not re.search(r"[=<>^_]|\\(?:le|ge|frac|sqrt|cdot|times)\b", text)
    return False


def number_of(text: str) -> Fraction | None:
    """The number that words such as "forty-two", "three hundred and five" or "two thirds" spell."""
    words = re.sub(r"(?<=[a-z])-(?=[a-z])|,", " ", re.sub(r"^\s*-", "minus ", unwrap(text).lower())).split()
    sign = -1 if words[:1] in (["minus"], ["negative"]) else 1
    words = words[1:] if sign < 0 else words
    if len(words) > 1 and words[-1] in FRACTION_WORDS:
        count = 1 if words[:-1] in (["a"], ["an"]) else _whole_number(words[:-1])
        return None if count is None else sign * Fraction(count, FRACTION_WORDS[words[-1]])
    number = _whole_number(words)
    return None if number is None else sign * Fraction(number)


def _whole_number(words: list[str]) -> int | None:
    for scale, factor in (("million", 10**6), ("thousand", 1000), ("hundred", 100)):
        if scale in words:
            split = words.index(scale)
            rest = words[split + 1 :]
            rest = rest[1:] if rest[:1] == ["and"] and len(rest) > 1 else rest
            high = 1 if words[:split] in ([], ["a"]) else _whole_number(words[:split])
            low = _whole_number(rest) if rest else 0
            return None if high is None or low is None or not 0 < high < 1000 or low >= factor else high * factor + low
    values = [NUMBER_WORDS[word] for word in words if word in NUMBER_WORDS]
    if len(values) < len(words):
        return None
    if len(values) == 1:
        return values[0]
    if len(values) == 2 and values[0] in range(20, 91, 10) and 0 < values[1] < 10:
        return values[0] + values[1]
    return None


def in_symbols(gold: str, answer: str) -> tuple[str, str] | None:
    """
    Both texts, with words replaced by their symbols: numbers, the empty set, the real line.

    None if neither has such words, or if other words remain.
    """
    translated = [_symbol(text) if is_wordy(text) else text for text in (gold, answer)]
    if translated == [gold, answer]:
        return None
    real_line = (r"\mathbb{R}", r"\lbracex\midx\in\mathbb{R}\rbrace")
    translated = [r"(-\infty,\infty)" if squeeze(text) in real_line else text for text in translated]
    translated = [r"\emptyset" if squeeze(text) == r"\lbrace\rbrace" else text for text in translated]
    return None if any(map(is_wordy, translated)) else (translated[0], translated[1])


def _symbol(text: str) -> str:
    number = number_of(text)
    return SYMBOLS.get(plain_words(text), text) if number is None else str(number)


def choice_of(text: str) -> str | None:
    """The letter of a choice, if that is all the text says."""
    match = CHOICE.fullmatch(unwrap(text))
    return (match[1] or match[2]).upper() if match else None


def choices_of(text: str) -> set[str] | None:
    """The letters of several choices, `AC` or "A, C", or the numbers of statements, "(1)(3)"; None for other texts."""
    text = unwrap(text)
    if CHOICES.fullmatch(text):
        letters = re.findall(r"[A-J]", text)
        in_order = letters == sorted(set(letters)) or not text.isalpha()  # CA is a name
        return set(letters) if in_order and len(set(letters)) == len(letters) else None
    return set(re.findall(r"\d+", text)) if STATEMENTS.fullmatch(text) else None


def split_label(text: str) -> tuple[str | None, str]:
    """`("B", "42")` for `(B) 42`; `(None, text)` if it has no label."""
    match = LABELLED.fullmatch(re.sub(r"^\\text\s*\{\s*([^{}]*)\}", r"\1 ", text).strip())
    if not match or OTHER_CHOICE.search(match[3]):  # "(A) or (B)" chooses nothing
        return None, text
    return (match[1] or match[2]), match[3].strip()


def time_of(text: str) -> tuple[int, int, str | None] | None:
    """Hours, minutes and "a", "p" or None, if the text is a time of day."""
    match = TIME.fullmatch(unwrap(text).rstrip(". "))
    if not match:
        return None
    hours, minutes = int(match[1] or match[4]), int(match[2] or 0)
    half = (match[3] or match[5] or "").lower() or None
    return (hours, minutes, half) if hours < 25 and minutes < 60 else None


def same_time(gold: str, answer: str) -> bool:
    """Whether two texts are the same time of day; one may omit "a.m." or use the 24-hour clock."""
    first, second = time_of(gold), time_of(answer)
    if first is None or second is None or first[1] != second[1]:
        return False
    if first[2] and second[2]:
        return first[0] % 12 == second[0] % 12 and first[2] == second[2]
    if first[0] == second[0]:
        return True
    if first[2] or second[2]:  # the other uses the 24-hour clock
        (hours, _, half), other = (first, second[0]) if first[2] else (second, first[0])
        return hours % 12 + (12 if half == "p" else 0) == other
    return False


def is_date(text: str) -> bool:
    return any(word[:3] in [month[:3] for month in MONTHS] and (word in MONTHS or len(word) == 3)
               for word in re.findall(r"[a-z]+", unwrap(text).lower())) and bool(re.search(r"\d", text))  # fmt: skip


def same_words(gold: str, answer: str) -> bool:
    """Whether two texts say the same."""
    if is_date(gold):
        return _date(gold) == _date(answer)
    wanted, given = plain_words(gold), plain_words(answer)
    if wanted == given:
        return bool(wanted)
    if len(listed := _listed(gold)) > 1 and listed == _listed(answer):
        return True
    if wanted in YES_OR_NO:  # "Yes, it converges"
        head, comma, rest = unwrap(answer).lower().partition(",")
        said = set(re.findall(r"\w+", rest))
        denials = {"no", "false"} if wanted in ("yes", "true") else {"yes", "true"}
        contradicts = said & (denials | {"or", "but", "maybe", "perhaps"}) or said <= {"never", "not"}
        return bool(comma) and plain_words(head) == wanted and not contradicts
    return False


def _listed(text: str) -> list[str]:
    """The words of "red and blue" or "red, blue"."""
    return [plain_words(part) for part in re.split(r"\s*(?:[,;]|\band\b)+\s*", unwrap(text)) if part]


def _date(text: str) -> list[str]:
    text = re.sub(r"(\d+)(?:st|nd|rd|th)\b", r"\1", unwrap(text).lower())
    words = [word for word in re.findall(r"[a-z]+|\d+", text) if word not in ("of", "the", "on")]
    return sorted(word[:3] if word.isalpha() else str(int(word)) for word in words)
