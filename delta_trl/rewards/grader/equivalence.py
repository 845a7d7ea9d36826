r"""Whether an answer equals the gold. Runs in a worker process only.

math-verify is the judge of mathematical equality. It is asked about one value at a time, and only after its known
holes were closed here: an answer is first taken apart (lists, units, chains of equalities), an answer that restates
the problem or is too large to evaluate is refused, and a "yes" is vetoed where the two sides differ numerically.
"""

import functools
import re
from collections.abc import Iterator

from .cases import equal_cases, read_cases, without_braces
from .congruences import MODULUS, equal_congruences
from .guards import RefusedError, refuse_shape
from .lists import MEMBER, equal_lists, equal_named, read_list
from .normalization import normalize, split_top_level, squeeze
from .parsing import REPEATING, UnreadableError, fraction, parse
from .structures import read_structures, same_structures
from .units import Unit, parse_unit, split_unit, total_of
from .values import EQUALITY, INEQUALITY, is_name, relates_unknowns, same_name, split_equation
from .words import choice_of, choices_of, in_symbols, is_wordy, same_time, same_words, split_label, time_of, unwrap


RIGHT, WRONG, NO_ANSWER, UNUSABLE_GOLD = "right", "wrong", "no answer", "unusable gold"
MAX_GOLD_LENGTH = 1000
MAX_GOLD_WORDS = 12
IMPLIES = re.compile(r"\\(?:Rightarrow|implies|therefore|Longrightarrow|to|rightarrow)(?![A-Za-z])")
# The arguments or indices for which an equation holds: "for all x", "(n \\in \\mathbb{N}^*)", ", n = 1, 2, \\ldots".
FOR = r"\\text\s*\{\s*,?\s*(?:for|where|with)(?: all| every| any| each)?(?: real| positive| integers?| numbers?)*"
IN_SET = r"[a-z]\s*\\in\s*\\mathbb\s*\{[A-Z]\}(?:\s*[\^_]\s*(?:\{[^{}]*\}|[*+\d]))?"
INDICES = r"[kmn]\s*(?:\\ge|>)\s*\d+|[kmn]\s*=\s*\d+(?:\s*,\s*\d+)+\s*,\s*\\[lc]?dots"
CONDITION = re.compile(
    rf"(?:\s*[,;]|,?\s*{FOR}\s*\}}|\s*(?=\())\s*\(?\s*(?:{IN_SET}|{INDICES})\s*\)?\s*$"
    rf"|,?\s*{FOR}(?:\s*\}}\s*[a-z]|\s+[a-z]\s*\}})\s*$"
)
DOMAIN = re.compile(r"(?<=[^\s=,])\s*\(\s*([a-z]\s*(?:[<>]|\\(?:le|ge|neq)(?![A-Za-z]))[^()]*)\)$")  # y = x^2 (x > 0)
SET_BUILDER = re.compile(
    r"\\lbrace\s*([a-z])\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:)\s*((?=.*[<>]|.*\\(?:le|ge|neq)(?![A-Za-z]))[^|:]*)\\rbrace\s*"
)
OPEN_INTERVAL = re.compile(r"([\[\]])([^\[\](),]+,[^\[\](),]+)([\[\]])")  # ]2, 5] is (2, 5]
LABEL = re.compile(
    r"^(?:\\text\s*\{)?\s*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+)?"
    r"(?:answer|result|solution|value|total|number|probability|area|sum)s?\s*(?:is|are|:|=|equals)\s*:?\s*\}?\s*",
    re.IGNORECASE,
)
KIND = re.compile(
    r"^\\text\s*\{\s*(?:the\s+)?(?:point|vector|ordered (?:pair|triple)|interval|set)s?\s*\}\s*(?=[(\[\\])", re.I
)
VALUE_OF = re.compile(
    r"^\\text\s*\{\s*(?:the\s+)?value\s+of\s*\}?\s*([A-Za-z])\s*(?:\\text\s*\{)?\s*is\s*\}\s*", re.IGNORECASE
)
# Relations of sets, statements or lines named by letters, and conditions on the elements of a set.
SYMBOLIC = re.compile(
    r"(?<![A-Za-z\\\d])[A-Za-z]'?\s*\\(?:cap|cup|setminus|land|lor|wedge|vee|to|mapsto|parallel|perp|sim|subset|subseteq|iff"
    r"|Rightarrow|Leftrightarrow)(?![A-Za-z])|\\(?:parallel|perp|neg|lnot|forall|exists|subset|subseteq|iff|mapsto)(?![A-Za-z])"
    r"|\\lbrace[^{}<>]*(?:\||:)[^{}<>]*(?:\\in|=)"
)
COMMUTES = [
    re.compile(rf"\\(?:{names})(?![A-Za-z])") for names in ("cap", "cup", "land|wedge", "lor|vee", "parallel", "perp")
]
BASE = re.compile(r"\(?([0-9A-Za-z.]+)\)?\s*_\s*\{?\s*(?:\\text\s*\{)?\s*(\w+)\s*\}?\s*\}?")
BASE_NAMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
              "twelve": 12, "sixteen": 16}  # fmt: skip


def judge(gold: str, answers: list[str]) -> str:
    """
    The verdict on the alternatives of an answer.

    Args:
        gold (`str`): The gold as it was extracted.
        answers (`list[str]`): The alternatives that the completion gives; all of them have to be right.

    Returns:
        `str`: `"right"`, `"wrong"`, `"no answer"`, `"unusable gold"`, or `"refused: ..."` and why.
    """
    try:
        return _judge(gold, answers)
    except MemoryError:
        raise
    except Exception as error:
        if _is_at_fault(gold):
            return UNUSABLE_GOLD
        if isinstance(error, RefusedError):
            return f"refused: {error}"
        raise


@functools.lru_cache(maxsize=4096)
def _is_at_fault(gold: str) -> bool:
    """Whether a gold fails even with the answer 0: it is too large, or sympy cannot read it."""
    try:
        _judge(gold, ["0"])
    except MemoryError:
        raise
    except Exception:
        return True
    return False


def _judge(gold: str, answers: list[str]) -> str:
    target = read_gold(gold)
    if target is None:
        return UNUSABLE_GOLD
    if not answers:
        return NO_ANSWER
    return RIGHT if all(_equal(target, _normal(answer)) for answer in answers) else WRONG


@functools.lru_cache(maxsize=4096)
def read_gold(gold: str) -> str | None:
    """The normal form of a gold; None if nothing can be compared with it."""
    if len(gold) > MAX_GOLD_LENGTH:
        return None
    text = re.sub(r"^\\approx(?![A-Za-z])\s*", "", _normal(gold))
    if not re.search(r"\w|\\infty|\\emptyset", re.sub(r"\\(?:text|frac|sqrt|d?frac)\b", "", text)):
        return None
    if text.count("{") != text.count("}"):
        return None
    if is_wordy(text):
        return text if len(unwrap(text).split()) <= MAX_GOLD_WORDS else None
    if time_of(text) or BASE.fullmatch(text) or choice_of(text) or fraction(text) is not None:
        return text
    if read_structures(text) or read_cases(text) or SYMBOLIC.search(text):
        return text
    text = _bare_set(CONDITION.sub("", text))
    for element in _leaves(text):
        if element == "\\ldots":
            continue
        value, unit = split_unit(element)
        candidates = [element, value] if unit and parse_unit(unit) else [element]
        if not any(_parses(part) for candidate in candidates for part in [candidate.rstrip(" %")]):
            return None
    return text


def _leaves(text: str) -> Iterator[str]:
    """The elements of a list, and of the lists in it."""
    brackets, elements = read_list(text)
    for element in elements:
        yield from _leaves(element) if brackets or len(elements) > 1 else [element]


def _normal(text: str) -> str:
    return DOMAIN.sub(r", \1", total_of(without_braces(normalize(text))))


def _parses(text: str) -> bool:
    if MODULUS.fullmatch(text) or REPEATING.fullmatch(text) or re.fullmatch(r"[\d\s:]+", text):
        return True
    try:
        refuse_shape(text, text)
        parse(MEMBER.sub("", text), False, False)
    except (RefusedError, UnreadableError):
        return False
    return True


def _equal(gold: str, answer: str) -> bool:
    if squeeze(gold) == squeeze(answer):
        return True
    if "?" in answer and "?" not in gold:
        raise RefusedError("a question")
    if structures := read_structures(gold):
        refuse_shape(gold, answer)
        return same_structures(structures, LABEL.sub("", answer))
    if pieces := read_cases(gold):
        given_pieces = read_cases(answer)
        return given_pieces is not None and equal_cases(pieces, given_pieces, _equal)
    if SYMBOLIC.search(gold) and not INEQUALITY.search(gold) and not in_symbols(gold, answer):
        refuse_shape(gold, answer)
        return _same_symbols(gold, answer)
    if words := re.fullmatch(r"\\text\s*\{([^{}]*)\}", answer):
        answer = rf"\text{{{LABEL.sub('', words[1]) or words[1]}}}"
    answer = KIND.sub("", answer)
    answer = VALUE_OF.sub(r"\1 = ", LABEL.sub("", answer)).strip() or answer
    if "." in gold:  # a decimal gold may be rounded, so an answer may begin with \approx
        answer = re.sub(r"^\\approx(?![A-Za-z])\s*", "", answer)
    if (wanted := choices_of(gold)) and (chosen := choices_of(answer)):
        return wanted == chosen
    letter, gold_content = split_label(gold)
    given, content = split_label(answer)
    if choice := letter or (choice_of(gold) if re.fullmatch(r"\W*[A-J]\W*", unwrap(gold)) else None):
        chosen_one = given or choice_of(answer)
        if chosen_one is not None:
            contradicts = letter and given and not _equal(gold_content, content)
            return chosen_one == choice and not contradicts
        return letter is not None and _equal(gold_content, answer)
    if given is not None:
        answer = content
    if same_time(gold, answer):
        return True
    if is_wordy(gold) and not _unit_of(gold) and (same_words(gold, answer) or len(read_list(gold)[1]) == 1):
        return same_words(gold, answer) or _equal_in_symbols(gold, answer)
    if is_wordy(answer) and _equal_in_symbols(gold, answer):
        return True
    if (base := _in_base(gold, answer)) is not None:
        return base
    if IMPLIES.search(answer) and not IMPLIES.search(gold):
        answer = split_top_level(answer, IMPLIES)[-1].strip()
        if not EQUALITY.search(answer):  # "2x = 4, so x = 2" derives; "x = 8, so 7" gives two values
            raise RefusedError("an implication that gives no equation")
    gold, answer = (_bare_set(MEMBER.sub("", CONDITION.sub("", text))) for text in (gold, answer))
    if (same := equal_congruences(gold, answer)) is not None:
        return same
    if (same := equal_named(gold, answer)) is not None:
        return same
    gold, answer = _strip_names(gold, answer)
    return equal_lists(gold, answer)


def _strip_names(gold: str, answer: str) -> tuple[str, str]:
    """Both without the name of the value: `(x, y) = (1, 2)`, `P(1, 2)`, `P(A \\cup B) = 1/2`."""
    (gold_name, gold_value), (name, value) = map(_split_name, (gold, answer))
    if (name and not gold_name and len(split_equation(gold_value)) == 2) or relates_unknowns(gold):
        return gold, answer
    if name and (not gold_name or same_name(gold_name, name)):
        return gold_value, value
    if not name and not gold_name:
        return gold_value, value
    return (gold_value, answer) if gold_name and not EQUALITY.search(answer) else (gold, answer)


def _split_name(text: str) -> tuple[str, str]:
    if points := re.fullmatch(r"(\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\))\s*=\s*([^=]+)", text):
        return points[1], points[2]  # (x, y) = (1, 2), (2, 1)
    if point := re.match(r"([A-Z])\s*(?=\([^()]*,[^()]*\)$)", text):
        return "", text[point.end() :]
    if "\\approx" in text or len(sides := split_equation(text)) != 2:
        return "", text
    left = sides[0]
    names = left[1:-1].split(",") if left.startswith("(") and left.endswith(")") else [left]
    return (sides[0], sides[1]) if all(map(is_name, names)) and sides[1] else ("", text)


def _same_symbols(gold: str, answer: str) -> bool:
    """Whether two symbolic texts are equal, up to the order of operands that commute."""
    gold, answer = (re.sub(r"(\\lbrace[^|]*?):", r"\1|", text) for text in (gold, answer))
    for operation in COMMUTES:
        parts = [sorted(map(squeeze, split_top_level(text, operation))) for text in (gold, answer)]
        if len(parts[0]) > 1:
            return parts[0] == parts[1]
    return squeeze(gold) == squeeze(answer)


def _unit_of(text: str) -> Unit | None:
    """The unit of a text that is a value with a unit; None if it is not."""
    value, unit = split_unit(text)
    return parse_unit(unit) if unit and not is_wordy(value) else None


def _equal_in_symbols(gold: str, answer: str) -> bool:
    symbols = in_symbols(gold, answer)
    return symbols is not None and equal_lists(*symbols)


def _bare_set(text: str) -> str:
    """`{x | x > 2}` as its condition, `]2, 5]` as `(2, 5]`; other texts as they are."""
    if builder := SET_BUILDER.fullmatch(text):
        return re.sub(rf"(?<![A-Za-z\\]){builder[1]}(?![A-Za-z])", "x", builder[2].strip())
    if (interval := OPEN_INTERVAL.fullmatch(text)) and interval[1] + interval[3] != "[]":
        return ("(" if interval[1] == "]" else "[") + interval[2] + (")" if interval[3] == "[" else "]")
    return text


def _in_base(gold: str, answer: str) -> bool | None:
    """Compare numbers that are written with a base, `1010_2`; None if these are not."""
    answer = re.sub(r"\s*\\text\s*\{\s*\(?(?:in )?base[ -](\w+)\)?\s*\}", r"_{\1}", answer)
    gold, answer = (re.sub(r"\\text\s*\{\s*(\w+)\s*\}", r"\1", text) for text in (gold, answer))
    given = BASE.fullmatch(answer)
    wanted = BASE.fullmatch(gold)
    if not (given and given[1][0].isalnum() and _base(given[2])) or re.fullmatch(r"[a-z]", given[1]):
        if wanted and _base(wanted[2]) and re.fullmatch(r"[0-9A-Fa-f]+", answer) and re.search(r"\d", wanted[1]):
            return wanted[1].upper() == answer.upper()
        return None
    if not re.search(r"\d", given[1]):
        return None
    digits, base = (wanted[1], _base(wanted[2])) if wanted else (gold, 10)
    return digits.upper() == given[1].upper() and base == _base(given[2])


def _base(name: str) -> int | None:
    return int(name) if name.isdigit() else BASE_NAMES.get(name.lower())
