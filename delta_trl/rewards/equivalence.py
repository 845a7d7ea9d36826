r"""Whether an answer equals the gold. Runs in a worker process only.

math-verify is the judge of mathematical equality. It is asked about one value at a time, and only after its known
holes were closed here: an answer is first taken apart (lists, units, chains of equalities), an answer that restates
the problem or is too large to evaluate is refused, and a "yes" is vetoed where the two sides differ numerically.
"""

import functools
import itertools
import re
from fractions import Fraction

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, normalize_latex
from math_verify import verify
from math_verify.grader import should_treat_as_complex
from sympy.core.relational import Relational

from .guards import RefusedError, refuse_arithmetic, refuse_large, refuse_restatement, refuse_shape, refuse_symbols
from .normalization import normalize, split_top_level
from .units import parse_unit, split_unit
from .words import choice_of, is_wordy, number_of, plain_words, same_time, same_words, split_label, time_of, unwrap


RIGHT, WRONG, NO_ANSWER, UNUSABLE_GOLD = "right", "wrong", "no answer", "unusable gold"
MAX_GOLD_LENGTH = 1000
MAX_GOLD_WORDS = 12
TOLERANCE = sympy.Float("1e-9")
LATEX = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False
)

SEPARATOR = re.compile(
    r"\s*(?:,|;|\\text\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|vee|land|wedge)\b"
    r"|\\(?:lor|vee)(?![A-Za-z]))+\s*"
)
OR = re.compile(r"(?<![A-Za-z\\])or(?![A-Za-z])|\\(?:lor|vee)(?![A-Za-z])|\\text\s*\{\s*or\s*\}")
EQUALITY = re.compile(r"(?<![<>!:])=+(?![<>])|\\equiv(?![A-Za-z])|(\\approx)(?![A-Za-z])")
INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|neq|lt|gt|leq|geq)(?![A-Za-z])")
SET_COMMAND = re.compile(r"\\(?:cup|cap|setminus|emptyset|mathbb|infty)(?![A-Za-z])|[\[(].*,.*[\])]")
IMPLIES = re.compile(r"\\(?:Rightarrow|implies|therefore|Longrightarrow|to|rightarrow)(?![A-Za-z])")
MEMBER = re.compile(r"^\s*\(?[A-Za-z](?:\s*,\s*[A-Za-z])*\)?\s*\\in(?![A-Za-z])\s*")
CONDITION = re.compile(r"\s*(?:[,;]|\\text\s*\{\s*(?:for|where)\s*\})\s*[a-z]\s*\\in\s*\\mathbb\s*\{[A-Z]\}\s*$")
LABEL = re.compile(
    r"^(?:\\text\s*\{)?\s*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+)?"
    r"(?:answer|result|solution|value|total|number|probability|area|sum)s?\s*(?:is|are|:|=|equals)\s*:?\s*\}?\s*",
    re.IGNORECASE,
)
BASE = re.compile(r"\(?([0-9A-Za-z.]+)\)?\s*_\s*\{?\s*(?:\\text\s*\{)?\s*(\w+)\s*\}?\s*\}?")
BASE_NAMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
              "twelve": 12, "sixteen": 16}  # fmt: skip
MODULUS = re.compile(r"(.*?)\s*\(?\s*\\(?:p|b)?mod\s*\{?\s*(\w+)\s*\}?\s*\)?\s*", re.DOTALL)
REPEATING = re.compile(r"(-?)(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{?(\d+)\}?|\((\d+)\))")
ELLIPSIS = re.compile(r"(-?)(\d*)\.(\d*?)(\d{1,6}?)\4{2,}\s*(?:\\[lc]?dots|\.\.\.)")
NUMBER = re.compile(r"([-+]?)\s*(\d+(?:\.\d*)?|\.\d+)")
RATIO = re.compile(
    r"([-+]?)\s*(?:\\frac\s*\{\s*([-+]?\s*\d+(?:\.\d+)?)\s*\}\s*\{\s*([-+]?\s*\d+(?:\.\d+)?)\s*\}"
    r"|(\d+(?:\.\d+)?)\s*/\s*([-+]?\d+(?:\.\d+)?))"
)
MIXED = re.compile(r"([-+]?)\s*(\d+)\s*(?:\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\})")
NAME_COMMAND = re.compile(
    r"\\(?:frac|overline|vec|overrightarrow|mathbf|mathbb|hat|bar|angle|triangle|widehat|tilde|log|sin|cos|tan|ell"
    r"|[a-z]*(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|rho|sigma|omega|tau|psi|xi|eta|nu|epsilon)"
    r"|Delta|Omega|Phi|Sigma|Gamma|Theta|Lambda|Psi)(?![A-Za-z])"
)
COLUMN = re.compile(r"\\begin\s*\{[pb]matrix\}([^&{}]*)\\end\s*\{[pb]matrix\}")  # a vector may be written (1, 2)
BRACKETS = {"(": ")", "[": "]", "\\lbrace": "\\rbrace", "\\langle": "\\rangle", "]": "["}


def judge(gold: str, answers: list[str]) -> str:
    """The verdict on the alternatives of an answer.

    Args:
        gold: the gold as it was extracted.
        answers: what the completion gives as its answer; all of them have to be right.

    Returns:
        `"right"`, `"wrong"`, `"no answer"`, `"unusable gold"`, or `"refused: ..."` and why.
    """
    target = read_gold(gold)
    if target is None:
        return UNUSABLE_GOLD
    if not answers:
        return NO_ANSWER
    for answer in answers:
        try:
            if not _equal(target, normalize(answer)):
                return WRONG
        except RefusedError as refusal:
            return f"refused: {refusal}"
    return RIGHT


@functools.lru_cache(maxsize=4096)
def read_gold(gold: str) -> str | None:
    """The normal form of a gold; None if nothing can be compared with it."""
    if len(gold) > MAX_GOLD_LENGTH:
        return None
    text = normalize(gold)
    if not re.search(r"\w|\\infty|\\emptyset", re.sub(r"\\(?:text|frac|sqrt|d?frac)\b", "", text)):
        return None
    if text.count("{") != text.count("}"):
        return None
    if is_wordy(text):
        return text if len(unwrap(text).split()) <= MAX_GOLD_WORDS else None
    if time_of(text) or BASE.fullmatch(text) or choice_of(text) or _fraction(text) is not None:
        return text
    for element in _read_list(text)[1]:
        value, unit = split_unit(element)
        candidates = [element, value] if unit and parse_unit(unit) else [element]
        if not any(_parses(part) for candidate in candidates for part in [candidate.rstrip(" %")]):
            return None
    return text


def _parses(text: str) -> bool:
    if MODULUS.fullmatch(text) or REPEATING.fullmatch(text) or re.fullmatch(r"[\d\s:]+", text):
        return True
    try:
        refuse_shape(text, text)
        _parse(MEMBER.sub("", text), False, False)
    except (RefusedError, UnreadableError):
        return False
    return True


class UnreadableError(Exception):
    """A text that is not mathematics, as far as latex2sympy can tell."""


@functools.lru_cache(maxsize=4096)
def _parse(text: str, is_complex: bool, lowercase: bool):
    text = text.replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")
    try:
        expression = latex2sympy(
            normalize_latex(text, LATEX),
            is_real=not is_complex,
            convert_degrees=False,
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=lowercase),
        )
    except MemoryError:
        raise
    except Exception as error:  # latex2sympy raises Exception itself, and whatever sympy raises on nonsense
        raise UnreadableError(text) from error
    if not isinstance(expression, (sympy.Basic, sympy.MatrixBase)):
        raise UnreadableError(text)
    if is_complex and isinstance(expression, sympy.Expr):
        expression = expression.subs(
            {symbol: sympy.I for symbol in expression.free_symbols if symbol.name in ("i", "I")}
        )
    return expression


def _parse_both(gold: str, answer: str):
    is_complex = should_treat_as_complex(gold) or should_treat_as_complex(answer)
    # R/r must not become 1, but "X = 5" may answer "x = 5".
    lowercase = not any(_mixes_cases(text) for text in (gold, answer))
    return _parse(gold, is_complex, lowercase), _parse(answer, is_complex, lowercase)


def _mixes_cases(text: str) -> bool:
    letters = set(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text)))
    return any(letter.isupper() and letter.lower() in letters for letter in letters)


# --- whole answers -------------------------------------------------------------------------------------------------


def _equal(gold: str, answer: str) -> bool:
    if _squeeze(gold) == _squeeze(answer):
        return True
    if "?" in answer and "?" not in gold:
        raise RefusedError("a question")
    answer = LABEL.sub("", answer).strip() or answer
    if "." in gold:  # a decimal may be a rounded value, and then an answer may say so
        answer = re.sub(r"^\\approx(?![A-Za-z])\s*", "", answer)
    letter, gold_content = split_label(gold)
    given, content = split_label(answer)
    if choice := letter or (choice_of(gold) if re.fullmatch(r"\W*[A-J]\W*", unwrap(gold)) else None):
        chosen = given or choice_of(answer)
        if chosen is not None:
            contradicts = letter and given and not _equal(gold_content, content)
            return chosen == choice and not contradicts
        return letter is not None and _equal(gold_content, answer)
    if given is not None:
        answer = content
    if same_time(gold, answer):
        return True
    if is_wordy(gold) and not _unit_of(gold) and (same_words(gold, answer) or len(_read_list(gold)[1]) == 1):
        return same_words(gold, answer) or _equal_special(gold, answer)
    if is_wordy(answer) and _equal_special(gold, answer):
        return True
    if (base := _in_base(gold, answer)) is not None:
        return base
    if IMPLIES.search(answer) and not IMPLIES.search(gold):
        answer = split_top_level(answer, IMPLIES)[-1].strip()
        if not EQUALITY.search(answer):  # "2x = 4, so x = 2" derives; "x = 8, so 7" gives two values
            raise RefusedError("an implication that gives no equation")
    gold, answer = (MEMBER.sub("", CONDITION.sub("", text)) for text in (gold, answer))
    gold, answer = _strip_names(gold, answer)
    return _equal_lists(gold, answer)


def _strip_names(gold: str, answer: str) -> tuple[str, str]:
    """Both without the name of what they give: `(x, y) = (1, 2)`, `P(1, 2)`, `P(A \\cup B) = 1/2`."""
    (gold_name, gold_value), (name, value) = map(_split_name, (gold, answer))
    if name and (not gold_name or _same_name(gold_name, name)):
        return gold_value, value
    if not name and not gold_name:
        return gold_value, value
    return (gold_value, answer) if gold_name and not EQUALITY.search(answer) else (gold, answer)


def _split_name(text: str) -> tuple[str, str]:
    if point := re.match(r"([A-Z])\s*(?=\([^()]*,[^()]*\)$)", text):
        return "", text[point.end() :]
    if len(split_top_level(text, SEPARATOR)) > 1 or len(sides := _sides(text)) != 2:
        return "", text
    left = sides[0]
    names = left[1:-1].split(",") if left.startswith("(") and left.endswith(")") else [left]
    return (sides[0], sides[1]) if all(map(_is_name, names)) and sides[1] else ("", text)


def _unit_of(text: str):
    """The unit of a text that is a value with a unit; None if it is not."""
    value, unit = split_unit(text)
    return parse_unit(unit) if unit and not is_wordy(value) else None


def _equal_special(gold: str, answer: str) -> bool:
    """Words on one side that have a symbol on the other: numbers, the empty set, the real line."""
    symbols = {
        "no solution": r"\emptyset",
        "all real numbers": r"(-\infty,\infty)",
        "infinity": r"\infty",
        "negative infinity": r"-\infty",
    }
    words = [plain_words(text) if is_wordy(text) else None for text in (gold, answer)]
    spelled = [number_of(text) if is_wordy(text) else None for text in (gold, answer)]
    translated = [
        str(number) if number is not None else symbols.get(word, text)
        for number, word, text in zip(spelled, words, (gold, answer), strict=True)
    ]
    if translated == [gold, answer]:
        return False
    real_line = (r"\mathbb{R}", r"\lbrace x \mid x \in \mathbb{R} \rbrace")
    translated = [r"(-\infty,\infty)" if _squeeze(t) in map(_squeeze, real_line) else t for t in translated]
    translated = [r"\emptyset" if _squeeze(t) in (r"\lbrace\rbrace",) else t for t in translated]
    return not any(map(is_wordy, translated)) and _equal_lists(*translated)


def _in_base(gold: str, answer: str) -> bool | None:
    """Compare numbers written in a base; None if the answer names none."""
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


# --- lists, tuples, sets -------------------------------------------------------------------------------------------


def _read_list(text: str) -> tuple[str, list[str]]:
    """Brackets and elements. Brackets are "" for a bare list and for a single value."""
    text = text.strip()
    for left, right in BRACKETS.items():
        for close in {right, ")", "]"} if left in "([" else {right}:
            if not (text.startswith(left) and text.endswith(close) and len(text) > len(left) + len(close)):
                continue
            inner = text[len(left) : -len(close)]
            if not _balanced(inner):
                continue
            elements = _split(inner)
            if len(elements) > 1 or left == "\\lbrace":
                return left + close, elements
    return "", _split(text)


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def _split(text: str) -> list[str]:
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


def _equal_lists(gold: str, answer: str) -> bool:
    if is_wordy(gold):  # \text{Alice and Bob} is a list too
        gold, answer = unwrap(gold), unwrap(answer)
    elif re.fullmatch(r"\\text\s*\{[^{}]*\}", answer):
        answer = unwrap(answer)
    elif _is_union(gold, answer):
        return _equal_sets(gold, answer)
    if COLUMN.fullmatch(gold) and _read_list(answer)[0] in ("()", "\\langle\\rangle"):
        gold = "(" + COLUMN.fullmatch(gold)[1].replace("\\\\", ",") + ")"
    gold_brackets, wanted = _read_list(gold)
    brackets, given = _read_list(answer)
    if len(wanted) == 1 and len(given) == 1 and gold_brackets == brackets == "":
        return _equal_quantities(wanted[0], given[0])
    if len(wanted) == 1 and not gold_brackets:  # every one of several answers has to be the one
        return bool(given) and not brackets and all(_equal_quantities(wanted[0], element) for element in given)
    if len(wanted) != len(given):
        given = list(dict.fromkeys(given))
        wanted = list(dict.fromkeys(wanted))
        if len(wanted) != len(given):
            return len(given) == 1 and _equal_sets(gold, answer)
    ordered = bool(gold_brackets) and gold_brackets != "\\lbrace\\rbrace"
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


def _match(wanted: list[str], given: list[str], ordered: bool) -> bool:
    if ordered:
        return all(_equal_elements(gold, answer) for gold, answer in zip(wanted, given, strict=True))
    remaining = list(given)
    for gold in wanted:
        found = next((answer for answer in remaining if _squeeze(answer) == _squeeze(gold)), None)
        if found is None:
            found = next((answer for answer in remaining if _equal_elements(gold, answer)), None)
        if found is None:
            return False
        remaining.remove(found)
    return True


def _equal_elements(gold: str, answer: str) -> bool:
    gold_brackets, answer_brackets = _read_list(gold)[0], _read_list(answer)[0]
    if gold_brackets or answer_brackets:
        return _equal_lists(gold, answer)
    return _equal_quantities(gold, answer)


def _is_union(gold: str, answer: str) -> bool:
    """Whether the two have to be compared as sets of numbers: inequalities, unions, intervals against these."""
    signs = [len(INEQUALITY.findall(text)) for text in (gold, answer)]
    if any(signs):
        return signs != [1, 1]
    return any(re.search(r"\\(?:cup|cap|setminus|emptyset|mathbb)(?![A-Za-z])", text) for text in (gold, answer))


def _equal_sets(gold: str, answer: str) -> bool:
    refuse_shape(gold, answer)
    if _squeeze(gold) == _squeeze(answer):
        return True
    try:
        first, second = _as_set(gold), _as_set(answer)
    except UnreadableError:
        return False
    if first is None or second is None:
        return False
    names = [re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+|\bor\b|\band\b", "", text)) for text in (gold, answer)]
    if all(names) and {name.lower() for name in names[0]} != {name.lower() for name in names[1]}:
        return False
    try:
        return bool(first == second or first.symmetric_difference(second).is_empty)
    except (NotImplementedError, TypeError, ValueError):
        return False


def _as_set(text: str) -> sympy.Set | None:
    pieces = [piece.strip() for piece in split_top_level(text, OR)]
    if len(pieces) > 1:
        sets = [_as_set(piece) for piece in pieces]
        return None if None in sets else sympy.Union(*sets)
    if INEQUALITY.search(text) and len(pieces := _split(text)) > 1:  # "x > 1, x < 3" means both
        sets = [_as_set(piece) for piece in pieces]
        return None if None in sets else sympy.Intersection(*sets)
    text = MEMBER.sub("", text)
    if re.fullmatch(r"\\lbrace\s*\\rbrace", text):
        return sympy.S.EmptySet
    expression = _parse(text, False, True)
    if isinstance(expression, sympy.Tuple) and len(expression) == 2:
        return None
    if isinstance(expression, sympy.Set):
        return expression.doit()
    relations = getattr(expression, "_unsorted_args", (expression,))
    if not all(isinstance(relation, Relational) for relation in relations):
        return None
    if len(expression.free_symbols) != 1:
        return None
    try:
        return sympy.Intersection(*[relation.doit().as_set() for relation in relations])
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None


# --- quantities ----------------------------------------------------------------------------------------------------


def _equal_quantities(gold: str, answer: str) -> bool:
    """Compare two values with or without units: a missing unit is forgiven, another unit is not."""
    if _squeeze(gold) == _squeeze(answer):
        return True
    gold, gold_percent = _strip_percent(gold)
    answer, answer_percent = _strip_percent(answer)
    if gold_percent or answer_percent:
        return _equal_percentages(gold, gold_percent, answer, answer_percent)
    gold_name, gold = _strip_text_name(gold)
    answer_name, answer = _strip_text_name(answer)
    if gold_name and answer_name and plain_words(gold_name) != plain_words(answer_name):
        return False
    gold_value, gold_text = split_unit(gold)
    value, text = split_unit(answer)
    gold_unit = parse_unit(gold_text) if gold_text else None
    unit = parse_unit(text) if text else None
    if gold_unit is None:
        gold_value = gold
    if unit is None:
        value = answer
    if is_wordy(gold_value):
        return same_words(gold, answer)
    if is_wordy(value):
        return _equal_special(gold_value, value)
    if gold_unit is None and unit is None:
        return _equal_values(gold, answer)
    if gold_unit and unit:
        if not unit.same_dimension(gold_unit):
            return False
        if unit.factor == gold_unit.factor:
            return _equal_values(gold_value, value)
        return _equal_scaled(gold_value, gold_unit.factor, value, unit.factor)
    if _equal_or_refused(gold, answer):  # what looks like a unit may be a variable: 5m
        return True
    degrees = "°" in (text + gold_text) or re.search(r"\\circ|deg", text + gold_text)
    if degrees and "\\pi" in (value if gold_unit else gold_value):  # π/2 equals 90°
        factor = (gold_unit or unit).factor
        return _equal_scaled(gold_value, factor if gold_unit else 1, value, factor if unit else 1)
    if gold_unit and not gold_unit.nouns and not re.search(r"\\|\s", gold_text) and len(gold_text) < 2:
        if not re.search(r"\\text|\s|\\circ|[€¢°]", gold[len(gold_value) :]):
            return False  # a gold 5m is five times m, not five metres
    return _equal_values(gold_value, value)


def _strip_text_name(text: str) -> tuple[str, str]:
    r"""`\text{Area} = 5` without its name."""
    match = re.match(r"\\text\s*\{([^{}=]*)\}\s*(?:_\{?\w+\}?\s*)?(?:=|:)\s*(?=.)", text)
    return (match[1], text[match.end() :].strip()) if match else ("", text)


def _strip_percent(text: str) -> tuple[str, bool]:
    stripped = re.sub(
        r"\s*(?:%|\\text\s*\{\s*(?:%|percent|per cent|percentage|pct)\s*\}|\bpercent\b|\bpct\b)\s*$", "", text
    )
    return stripped.strip(), stripped != text


def _equal_percentages(gold: str, gold_percent: bool, answer: str, answer_percent: bool) -> bool:
    """50% equals 50, and 0.5 if either says that it is a percentage."""
    if gold_percent and answer_percent:
        return _equal_values(gold, answer)
    hundredth = Fraction(1, 100)
    if gold_percent:
        return _equal_or_refused(gold, answer) or _equal_scaled(gold, hundredth, answer, 1)
    if _equal_scaled(gold, 1, answer, hundredth):
        return True
    value = _fraction(gold)
    # Below one, the gold is a share, and 0.5% is not 0.5.
    return (value is None or abs(value) >= 1) and _equal_values(gold, answer)


def _equal_scaled(gold: str, gold_factor, answer: str, factor) -> bool:
    """Compare after a change of units. Never by more than a rounding error of the factor."""
    first, second = _numeric(gold), _numeric(answer)
    if first is None or second is None:
        return False
    refuse_restatement(gold, answer)
    return _close(first * _sympify(gold_factor), second * _sympify(factor))


def _sympify(factor):
    return sympy.Rational(factor) if isinstance(factor, (int, Fraction)) else sympy.Float(factor)


def _equal_or_refused(gold: str, answer: str) -> bool:
    try:
        return _equal_values(gold, answer)
    except RefusedError:
        return False


# --- values --------------------------------------------------------------------------------------------------------


def _equal_values(gold: str, answer: str) -> bool:
    """Compare two values without units."""
    if _squeeze(gold) == _squeeze(answer):
        return True
    first, second = _fraction(gold), _fraction(answer)
    if first is not None and second is not None:
        return first == second
    if not answer or not gold:
        return False
    refuse_shape(gold, answer)
    if modulus := MODULUS.fullmatch(gold):
        given = MODULUS.fullmatch(answer)
        value = split_top_level(modulus[1], EQUALITY)[-1].strip()
        answer = given[1] if given and given[2] == modulus[2] else "" if given else answer
        return bool(answer) and _equal_values(value, split_top_level(answer, EQUALITY)[-1].strip())
    if gold.count(":") != answer.count(":") and max(gold.count(":"), answer.count(":")) > 1:
        return False
    gold_sides, answer_sides = _sides(gold), _sides(answer)
    if len(gold_sides) == 1 and len(answer_sides) == 1:
        return _equal_expressions(gold, answer)
    return _equal_equations(gold, gold_sides, answer, answer_sides)


def _sides(text: str) -> list[str]:
    """The sides of a chain of equalities; one side if it holds an inequality."""
    if INEQUALITY.search(text):
        return [text]
    return [side.strip() for side in split_top_level(text, EQUALITY)]


def _is_name(text: str) -> bool:
    """Whether the left side of an equation merely names the value on the right: x, f(2), AB, m + n, ∠ABC."""
    text = re.sub(r"\|\s*[A-Z]{1,3}\s*\||\\#", " x ", text)  # the length AB, the size of S
    if not text or "|" in text or len(text) > 60:
        return False
    rest = re.sub(r"\\text\s*\{[^{}]*\}", "x", text)
    rest = re.sub(r"_\s*(?:\{[^{}]*\}|\w)", "", rest)
    rest = re.sub(r"[A-Za-z]\s*'*(?:\^\{?(?:-1|'+|\\prime)\}?)?\s*\([^()=]{1,20}\)", "x", rest)
    rest = NAME_COMMAND.sub("x", rest)
    return bool(re.fullmatch(r"[A-Za-z'{}+\s]+", rest)) and bool(re.search(r"[A-Za-z]", rest))


def _equal_equations(gold: str, gold_sides: list[str], answer: str, sides: list[str]) -> bool:
    """At least one of the two is an equation or a chain of them."""
    if not all(sides) or not all(gold_sides):
        raise RefusedError("unreadable")
    if len(gold_sides) > 1:
        if "\\approx" in gold:
            return any(_equal_values(side, answer) for side in gold_sides if not _is_name(side))
        if not _is_name(gold_sides[0]):
            if len(gold_sides) > 2 or len(sides) != 2:
                return False
            return _equal_expressions(gold, answer)
        if len(sides) == 1:
            return _equal_values(gold_sides[-1], answer)
        if not _same_name(gold_sides[0], sides[0]):
            if _is_name(sides[-1]) and _same_name(gold_sides[0], sides[-1]):
                return _equal_values(gold_sides[-1], sides[0])
            return len(sides) == 2 and _equal_expressions(gold, answer)
        return _equal_chain(gold_sides[-1], sides[1:], "\\approx" in answer)
    if _is_name(sides[0]) and len(sides) > 1:
        return _equal_chain(gold, sides[1:], "\\approx" in answer)
    if len(sides) == 2 and _is_name(sides[1]):  # 42 = x
        return _equal_values(gold, sides[0])
    if any(_has_symbols(side) for side in sides):  # x^2 = 42 says nothing of 42, and (x+1)^2 = x^2+2x+1 does
        return all(_equal_values(gold, side) for side in sides)
    return _equal_chain(gold, sides, "\\approx" in answer)


def _same_name(first: str, second: str) -> bool:
    names = {_squeeze(first).lower(), _squeeze(second).lower()}
    if len(names) == 2 and len({re.sub(r"_\{?\d\}?$", "", name) for name in names}) == 1:
        return not all("_" in name for name in names)  # x_1 and x_2 are the values of x
    return len(names) == 1 or (names <= {"y", "f(x)", "y(x)", "g(x)"} and "y" in names)


def _equal_chain(gold: str, sides: list[str], approximate: bool) -> bool:
    r"""A chain such as `2 + 40 = 42` or `\sqrt 2 \approx 1.41`: its last side counts, and the others must agree."""
    numbers = [_numeric(side) for side in sides]
    if any(number is None and not _has_symbols(side) for number, side in zip(numbers, sides, strict=True)):
        raise RefusedError("unreadable")
    known = [(number, side) for number, side in zip(numbers, sides, strict=True) if number is not None]
    for (first, _), (second, side) in itertools.pairwise(known):
        if not _close(first, second) and not (approximate and _rounds_to(first, second, side)):
            raise RefusedError("the sides of the chain disagree")
    if len(known) < len(sides) and any(known) and not _has_symbols(gold) and numbers[-1] is None:
        return False
    candidates = [side for _, side in known] if approximate else sides[-1:]
    return any(_equal_values(gold, side) for side in candidates)


def _rounds_to(exact, rounded, text: str) -> bool:
    decimals = len(text.partition(".")[2]) if re.fullmatch(r"-?\d*\.?\d+", text) else None
    if decimals is None:
        return bool(abs(exact - rounded) <= abs(exact) / 1000)
    unit = sympy.Rational(1, 10**decimals)
    cut = abs(exact) - abs(rounded)  # digits may also be cut off: π is 3.141
    return bool(abs(exact - rounded) <= unit / 2 or (decimals > 0 and 0 <= cut < unit))


def _has_symbols(text: str) -> bool:
    try:
        return bool(_parse(text, should_treat_as_complex(text), False).free_symbols)
    except (UnreadableError, AttributeError):
        return False


def _equal_expressions(gold: str, answer: str) -> bool:
    """Ask math-verify, after the guards and before the vetoes."""
    refuse_restatement(gold, answer)
    exact = [_repeating(text) for text in (gold, answer)]
    gold, answer = (text if value is None else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
                    for text, value in zip((gold, answer), exact, strict=True))  # fmt: skip
    try:
        first, second = _parse_both(gold, answer)
    except UnreadableError:
        return False
    refuse_large(first)
    refuse_large(second)
    if not (isinstance(second, Relational) or _sides(answer)[1:]):
        refuse_symbols(first, second)
    refuse_arithmetic(first, second)
    if _differ(first, second):
        return False
    return verify(
        first, second, float_rounding=12, numeric_precision=15, allow_set_relation_comp=True, timeout_seconds=None
    )


def _differ(first, second) -> bool:
    """Whether two expressions have different values: a veto, and it spares sympy from simplifying their difference."""
    if not isinstance(first, sympy.Expr) or not isinstance(second, sympy.Expr):
        return False
    symbols = sorted(first.free_symbols | second.free_symbols, key=str)
    for seed in (3, 7):
        point = {symbol: sympy.Rational(seed * (k + 2) + 5, 4 * k + 7) for k, symbol in enumerate(symbols)}
        values = [_evaluate(expression.subs(point) if point else expression) for expression in (first, second)]
        if None in values:
            continue
        if not _close(*values):
            return True
        if not symbols:  # 30 digits do not tell two large integers apart
            values = first.doit(), second.doit()
            return all(isinstance(value, sympy.Rational) for value in values) and values[0] != values[1]
    return False


def _numeric(text: str):
    """The value of a text as a number of 30 digits, or None."""
    value = _fraction(text)
    if value is not None:
        return sympy.Rational(value.numerator, value.denominator)
    try:
        expression = _parse(text, should_treat_as_complex(text), False)
    except UnreadableError:
        return None
    refuse_large(expression)
    return _evaluate(expression) if isinstance(expression, sympy.Expr) else None


def _evaluate(expression):
    """The value to 30 digits; None if there is none, or if finding it takes an algorithm of its own."""
    if expression.has(sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative):
        return None
    try:
        value = expression.doit().evalf(30)
    except (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError):
        return None
    return value if isinstance(value, sympy.Expr) and value.is_number and value.is_finite else None


def _close(first, second) -> bool:
    return bool(abs(first - second) <= TOLERANCE * max(abs(first), abs(second)))


def _fraction(text: str) -> Fraction | None:
    """The exact value of a plain number or fraction."""
    text = text.strip()
    if match := NUMBER.fullmatch(text):
        value = Fraction(match[2].rstrip(".") if not match[2].startswith(".") else "0" + match[2])
    elif match := RATIO.fullmatch(text):
        top, bottom = (Fraction((match[i] or match[j]).replace(" ", "")) for i, j in ((2, 4), (3, 5)))
        if bottom == 0:
            return None
        value = top / bottom
    elif match := MIXED.fullmatch(text):
        if int(match[4]) == 0:
            return None
        value = int(match[2]) + Fraction(int(match[3]), int(match[4]))
    else:
        return _repeating(text)
    return -value if match[1] == "-" else value


def _repeating(text: str) -> Fraction | None:
    r"""The value of `0.1\overline{6}`, `0.1(6)` or `0.1666\ldots`."""
    if match := REPEATING.fullmatch(text):
        sign, whole, fixed, period = match[1], match[2], match[3], match[4] or match[5]
    elif match := ELLIPSIS.fullmatch(text):
        sign, whole, fixed, period = match.groups()
    else:
        return None
    value = Fraction(int((whole or "0") + fixed), 10 ** len(fixed))
    value += Fraction(int(period), 10 ** len(fixed) * (10 ** len(period) - 1))
    return -value if sign else value


def _squeeze(text: str) -> str:
    """Without the spaces that mean nothing; "4 2" is not "42"."""
    return re.sub(r"\s+", "", re.sub(r"(?<=[\d.])\s+(?=[\d.])", "_", text))
