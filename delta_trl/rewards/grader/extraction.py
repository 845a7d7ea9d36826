r"""Finding the final answer in a completion. Strings only, and linear in the length of the text.

In this order:

1. the reasoning is dropped: only text after the last `</think>` counts, and none if a `<think>` is not closed;
2. the last balanced `\boxed{...}` or `\fbox{...}`. Boxes with nothing but connectives between them ("and", "or",
   "y =") are one list: several guesses in a row are several answers, not a last one;
3. else `<answer>...</answer>`, and else what follows the last `####` or "Answer:" or, near the end, "the answer is";
4. else, with no such mark: a completion that is only a value, or a last sentence that concludes
   ("Therefore $x = 42$.").

An answer without a box ends where a remark begins ("42, rounded"). `surroundings.py` reads the text around it. An
answer that is negated, questioned or taken back does not count. Answers side by side ("42, or 43") are alternatives,
and each of them has to be right.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .surroundings import CHOICE, TOKEN, is_denied, offered_before, stated_after, words


MAX_ANSWER_LENGTH = 1000
TAIL = 300  # characters at the end of a text, in which it concludes
MARKS = 8  # announcements that are read, from the last one back: more would take quadratic time

Completions = list[str] | list[list[dict]]
"""Texts, or conversations as lists of messages."""

THINK_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning)>")
BOX = re.compile(r"\\{1,2}(?:boxed|fbox)\s*\{")
BOX_TOKEN = re.compile(r"(\\{1,2}(?:boxed|fbox)\s*\{)|\\.|[{}]", re.DOTALL)
BARE_BOX = re.compile(r"\\boxed\s+(-?[\w.]{1,30})")
ANSWER_TAG = re.compile(r"<answer>((?:(?!</?answer>).){0,4000})</answer>", re.DOTALL | re.IGNORECASE)
ANSWER_WORD = re.compile(
    r"\b(?:answers?|final\s(?:result|value)|(?:correct|right|best)\s(?:option|choice))\b[*_]{0,2}"
    r"(?:[ \t]{0,3}(?:[:=：]|[-–—](?=[ \t]))[*_]{0,2}"
    r"|(?P<link>[^.:=\n?]{0,80}?(?:\bis|\bare|\bbe|\bequals)\b)[ \t]{0,3}[:=]?[*_]{0,2}"
    r"|[ \t]{0,3}[*_]{0,2}[ \t]{0,3}(?=\n))",
    re.IGNORECASE,
)

# Words that join guesses without choosing between them.
CONNECTIVES = frozenset(
    "a also alternatively an and another answer answers are be both but candidate candidates case choice could either "
    "else equivalently final first fourth guess hence i is it its likely may maybe might option or other perhaps "
    "plus possible possibility possibly potentially probably second solution solutions text the them then third "
    "value values with".split()
) - {"final", "hence", "then"}
# A box that is a part of a larger expression is not the answer.
# An expression does not continue on the next line: "… carry 0", then a box on a line of its own, is an answer.
# Outside of formulas "- " and "* " begin an item of a list, and "… is as follows - " is prose.
OPERATOR_BEFORE = re.compile(
    r"(?:[-−+\d^|]|\\frac\s*\{[^{}]{0,40}\}\s*\{\s*|[+^][^\S\n]*|\\(?:cdot|times|div|pm|mp)[^\S\n]*"
    r"|(?:\\(?:frac|sqrt|binom)|[_^])\s*\{\s*|[-−+*/^\d]\(\s*|(?<![A-Za-z\\])[A-Za-z]"
    r"|\d[^\S\n]*[-−–*/×÷·][^\S\n]*|(?:=|\bis|\bequals)[^\S\n]*[-−–][^\S\n]*)\Z"
)
OPERATOR_IN_FORMULA = re.compile(r"[-−–+*/^×÷·|][^\S\n]*(?:\\left)?[({]?[^\S\n]*\Z")
OPERATOR_AFTER = re.compile(
    r"\d|\.\d|\)?[^\S\n]*(?:\+|\^(?!\s*\{?\s*\\circ)|\\(?:pi|sqrt|frac)(?![A-Za-z])|\\(?:cdot|times|div|pm|mp)\b"
    r"|[-−–/×÷·][^\S\n]*\d)|\*[\dA-Za-z(]|[^\S\n]+\*[^\S\n]+[\dA-Za-z(]"
    r"|![^\S\n]*(?:\$|\\[)\]])|(?![mgshLlJNWVAKCF])[A-Za-z](?![A-Za-z])|[^\S\n]*(?![mgshl])[a-z](?=[^\S\n]*\$)|\([A-Za-z\d]{1,3}\s?[-+]"
    r"|[ \t~$]*(?:\\text\{\s*)?(?:dozens?|(?:hundred|thousand)(?:th)?s?|(?:m|b|tr)illions?|halves|thirds|tenths)\b"
)
DOUBTED_BEFORE = re.compile(
    r"(?:\b(?:if|whether|unless|suppose|assume|doubt|maybe|perhaps|possibly|false\s+that)\b|n['’]t\s+(?:think|believe)|\bnot\s+(?:think|believe|sure)"
    r"|\b(?:refus|den[iy]|declin|hesitat|reluctan|pretend|contradict)\w*\b|\bis\s+(?:the|my)\s*$|\b(?:wrong|incorrect|false)\s*$)[^.\n]{0,30}$",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"\.(?=\s|$)(?<!\b[a-z]\.)|\n")
HASHES = re.compile(r"####+")
ITEM = r"[*_: \t]*(?:\n[*_ \t]*)+(?:[-+*•>]|\d{1,2}[.)])[ \t]+(?=\S)"  # its line break and its marker
LIST = re.compile(rf"(?:{ITEM}[^\n]+){{2,}}")
# What a value begins with, as opposed to words
VALUE = r"[*_]{0,2}(?:[-+−±$\\({\[]|\.?\d|[A-Za-z](?:_\{?\w\}?)?\s?=|[B-HJ](?![\w'])|[A-Za-z](?![\w']|\s+[A-Za-z]))"
STATED_VALUE = re.compile(rf"\b(?:is|are|was|were|be|equals)[ \t]+(?={VALUE})")
# Where a reason begins, and after a value any other remark. A match starts at the first of several spaces only:
# started at each of them, it would take quadratic time.
REASON = re.compile(
    r"(?<!\bor)(?<!\s)(?:,?\s+\(?(?:because|since|as(?!\s+well)|where|which|so|by(?!\s+[-\d$])|for)\b"
    r"|,\s+\(?(?:and )?not\b)"
)
REMARK = re.compile(
    rf"{REASON.pattern}|(?<!\s),\s+(?!(?:and|or)\b\s+{VALUE})[A-Za-z]{{2,}}"
    r"|(?<!\s)\s+\((?:(?!or\b|and\b|mod\b)[A-Za-z]{2,}|[=≈~])|(?<!\s),?\s+(?:when|with|after|using|i\.e\.|not)(?!\w)"
)
LEADING_ADVERB = re.compile(
    r"^(?:(?:therefore|thus|hence|simply|just|clearly|obviously|definitely|certainly|indeed|now|exactly|precisely"
    r"|equal to|given by|then)\b[\s:,]*)+",
    re.IGNORECASE,
)
UNCERTAIN = frozenset(
    "not n't never neither cannot maybe perhaps possibly unsure unclear unknown undetermined something somewhere "
    "between either might could wrong incorrect".split()
)
DOUBTFUL = frozenset("maybe perhaps possibly".split())
STATING = frozenset("is are was were be equal equals get have obtain find conclude that answer gives value".split())
OTHERS = frozenset("or about approximately roughly least most if when need must assume suppose try let want".split())
RETRACTIONS = frozenset("wait actually instead correction mistake wrong incorrect error sorry oops no".split())
COMMENT_LINE = re.compile(r"^[ \t]{0,40}%.*$", re.MULTILINE)
WORD = re.compile(r"(?<!\\)\b[A-Za-z]{2,}")
MATH = re.compile(r"\$\$([^$]{1,200})\$\$|\$([^$]{1,200})\$|\\\(([^$\\]{1,200}(?:\\[^()][^$\\]{0,200}){0,20})\\\)"
                  r"|\\\[([^$\\]{1,200}(?:\\[^\[\]][^$\\]{0,200}){0,20})\\\]")  # fmt: skip
CONCLUSION = re.compile(
    r"(?:^|(?<=[.\n*])[ \t]*)(?:therefore|thus|hence|so|consequently|finally|in conclusion)\b,?", re.IGNORECASE
)
VALUE_LAST = re.compile(
    r"(?:(?:^|\s)(?=[A-Za-z]\s*=)|\b(?:is|are|equals)\s+(?=[-+]?\d))([A-Za-z]\s*=\s*[^\s=,][^\n=,]{0,60}?|[-+]?\d[\d,./]*?)[\s.*]*$"
)
PARTED = re.compile(r"[,;]|\band\b|\bor\b")
NAME_BEFORE = re.compile(r"([A-Za-z](?:_\{?\w{1,3}\}?)?)\s*=\s*[$\s]*(?:\\[(\[])?\s*$")


@dataclass(frozen=True)
class Span:
    """An answer's position in the text; `start` and `end` include its marks (`\\boxed{` and `}`)."""

    start: int
    end: int
    content: str


def message_text(completion: str | list[dict]) -> str:
    """The text to grade: the string itself, or the content of the last assistant message."""
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        if message.get("role", "assistant") == "assistant":
            content = message.get("content")
            if isinstance(content, list):  # content parts, as multimodal chat templates use them
                content = "".join(part if isinstance(part, str) else part.get("text") or "" for part in content)
            return content or ""
    return ""


def extract_answer(text: str, parts: int = 1, require_boxed: bool = False) -> list[str]:
    r"""
    The final answer of a completion.

    Args:
        text (`str`): The completion.
        parts (`int`, *optional*, defaults to `1`):
            How many values the gold lists. If the completion has exactly that many different boxes, all of them are
            taken, wherever they are in the text.
        require_boxed (`bool`, *optional*, defaults to `False`): Whether only an answer in a box counts.

    Returns:
        `list[str]`: The alternatives of the answer, as LaTeX or words; usually one, and none if there is no answer.
    """
    answer = after_reasoning(text)
    if answer is None:
        return []
    text = without_comments(answer)
    boxes = find_boxes(text)
    if boxes is None or (require_boxed and not boxes):
        return []
    answers: Sequence[str | None]
    if boxes:
        answers = _choose(text, boxes, parts)
    elif tags := [Span(m.start(), m.end(), m[1].strip("# \t\n")) for m in ANSWER_TAG.finditer(text) if m[1].strip()]:
        answers = _choose(text, tags, parts)
    elif bare := _bare_boxes(text):
        answers = _choose(text, bare, parts)
    elif "####" in text or ANSWER_WORD.search(text):
        answers = _announced(text, len(text.rstrip()) - TAIL)  # a sentence far from the end is a guess
    else:
        answers = [_concluded(text)]
    usable = [answer for answer in answers if answer and len(answer) <= MAX_ANSWER_LENGTH]
    return usable if len(usable) == len(answers) else []


def extract_gold(solution: str) -> str:
    r"""The gold: after the last `####`, else the last boxes, else `<answer>`, else the text without `$`."""
    if "####" in solution:
        return _without_dollars(solution.rpartition("####")[2])
    boxes = find_boxes(solution)
    if boxes is None:
        return ""
    if boxes := boxes or _bare_boxes(solution):
        return ", ".join(box.content for box in _last_group(solution, boxes))
    if tags := ANSWER_TAG.findall(solution):
        return _without_dollars(tags[-1])
    solution = re.sub(r"^\s*\**(?:the\s+)?(?:final\s+)?answer\**\s*(?:is\s*:?|:)\**", "", solution, flags=re.I)
    return _without_dollars(solution)


def _without_dollars(gold: str) -> str:
    r"""A gold without the `$` around it; a `\$` stays."""
    bare = gold.strip().strip("$")
    return (f"{bare}$" if bare.endswith("\\") else bare).strip()


def after_reasoning(text: str) -> str | None:
    """What follows the reasoning; None if the reasoning never ends."""
    tags = list(THINK_TAG.finditer(text))
    if not tags:
        return text
    return text[tags[-1].end() :] if tags[-1][1] else None


def without_comments(text: str) -> str:
    """The text without what is not rendered: HTML comments and LaTeX comment lines."""
    kept, position = [], 0
    while (start := text.find("<!--", position)) >= 0:
        kept.append(text[position:start])
        end = text.find("-->", start)
        position = end + 3 if end >= 0 else len(text)
    text = "".join([*kept, text[position:]])
    return COMMENT_LINE.sub("", text)


def find_boxes(text: str) -> list[Span] | None:
    """The outermost balanced boxes that hold something; None if the last box is not closed."""
    opened: list[tuple[int, int]] = []  # (start of the box or -1, start of its content)
    boxes: list[tuple[int, int, int]] = []  # start of the box, its content, its closing brace
    last_start = -1
    first = BOX.search(text)
    for token in BOX_TOKEN.finditer(text, first.start()) if first else ():
        if token[1]:
            opened.append((token.start(), token.end()))
            last_start = token.start()
        elif token[0] == "{":
            opened.append((-1, token.end()))
        elif token[0] == "}" and opened:
            start, content = opened.pop()
            if start < 0:
                continue
            if start == last_start:
                last_start = -1
            while boxes and boxes[-1][0] > start:  # boxes inside this one
                boxes.pop()
            boxes.append((start, content, token.start()))
    if last_start >= 0:
        return None
    spans = (Span(start, end + 1, text[content:end].strip()) for start, content, end in boxes)
    return [box for box in spans if box.content]


def _bare_boxes(text: str) -> list[Span]:
    return [Span(match.start(), match.end(), match[1]) for match in BARE_BOX.finditer(text)]


def _choose(text: str, spans: list[Span], parts: int) -> list[str]:
    """The last group of marked answers with the alternatives from the text around; none if that takes it back."""
    group = _last_group(text, spans)
    if len(group) < parts and not PARTED.search(group[-1].content):
        distinct = list({span.content: span for span in spans}.values())
        between = text[distinct[0].end : distinct[-1].start]
        if len(distinct) == parts and not words(between) & RETRACTIONS:
            group = distinct
    first, last = group[0], group[-1]
    before = text[max(0, first.start - 80) : first.start]
    in_formula = _in_formula(text[: first.start])
    if OPERATOR_BEFORE.search(before) or (OPERATOR_IN_FORMULA.search(before) and in_formula):
        return []
    after = text[last.end : last.end + MAX_ANSWER_LENGTH]
    if OPERATOR_AFTER.match(after) or is_denied(after):
        return []
    if in_formula:  # the formula's closing `$` must not be taken for an opening one
        after = re.sub(r"\$\$?", " ", after, count=1)
    answers = [span.content for span in group]
    if len(group) > 1:
        names = [NAME_BEFORE.search(text[max(0, span.start - 20) : span.start]) for span in group]
        answers = [f"{name[1]} = {a}" if name else a for name, a in zip(names, answers, strict=True)]
    answer = ", ".join(answers)
    offered = offered_before(before)
    if offered is None:
        return []
    later = [a for a in _announced(after) if re.match(r"[-+\d\\$(.]|[A-Za-z]\s?=", a) or CHOICE.fullmatch(a)]
    choices = [choice[1] for a in (answer, *later) if (choice := CHOICE.fullmatch(a))]
    if len(later) == len(choices) == 1:  # "\\boxed{42}. The answer is B." is one answer, (B) 42
        value = answer if CHOICE.fullmatch(later[0]) else later[0]
        answer, later = f"({choices[0]}) {value}", []
    return [answer, *offered, *later, *stated_after(after, answer)]


def _last_group(text: str, spans: list[Span]) -> list[Span]:
    group = [spans[-1]]  # from the last to the first
    for span in reversed(spans[:-1]):
        if not _connects(text[span.end : group[-1].start]):
            break
        if span.content != group[-1].content:
            group.append(span)
        else:
            group[-1] = span
    return group[::-1]


def _in_formula(before: str) -> bool:
    """Whether the position after a text is inside a formula."""
    line = before[before.rfind("\n") + 1 :].replace("$$", "").replace("\\$", "")
    opened = (before.rfind(left) > before.rfind(right) for left, right in (("\\(", "\\)"), ("\\[", "\\]")))
    return line.count("$") % 2 == 1 or before.count("$$") % 2 == 1 or any(opened)


def _connects(between: str) -> bool:
    if len(between) > 120:
        return False
    between = re.sub(r"\\(?:text|quad|qquad|mathrm)\b|\\.", " ", between)
    between = re.sub(r"\b[A-Za-z](?:_\{?\w{1,3}\}?)?\s*=", " ", between)  # the name of the next value
    between = re.sub(r"\(?\b[\dA-Ea-e][.):]", " ", between)  # the number of the next item
    return all(word.lower() in CONNECTIVES or word.isdigit() for word in re.findall(r"\w+", between))


def _announced(text: str, sentences_from: int = 0) -> list[str]:
    """
    What follows the last `####` or "answer", with the alternatives after it; none if it is denied or uncertain. If
    that is no value ("The answer makes sense"), the one before counts, if it is one. Sentences ("the answer is 42")
    count from a position on.
    """
    last: list[str] = []
    said = [mark for mark in ANSWER_WORD.finditer(text) if not mark["link"] or mark.end() >= sentences_from]
    marks = sorted([*said, *HASHES.finditer(text)], key=re.Match.start)
    for mark in reversed(marks[-MARKS:]):
        before = text[max(0, mark.start() - 60) : mark.start()]
        if _is_uncertain(mark.groupdict().get("link") or "") or DOUBTED_BEFORE.search(before):
            return []
        answer, end = _statement(text, mark.end())
        after = text[end : end + MAX_ANSWER_LENGTH]
        value = TOKEN.search(answer)
        if "?" in answer or is_denied((answer[value.end() :] if value else "") + after):
            return []
        if words(answer.partition(" ")[0]) & UNCERTAIN or words(answer + _sentence(after)) & DOUBTFUL:
            return []
        is_value = bool(re.match(VALUE, answer))
        if answer and (is_value or not last):
            last = [answer, *stated_after(after, answer)]
        if is_value:
            break
    return last


def _statement(text: str, start: int) -> tuple[str, int]:
    """What is stated from a position on, up to the end of the sentence, a reason or a remark; and where it ends."""
    text = text[: start + 2 * MAX_ANSWER_LENGTH]
    if several := LIST.match(text, start):
        return ", ".join(item.strip(" \t*_.") for item in re.split(ITEM, several[0])[1:]), several.end()
    if item := re.compile(ITEM).match(text, start):
        start = item.end()
    sentence = LEADING_ADVERB.sub("", _sentence(_first_line(text[start:])))
    stated = None if re.match(VALUE, sentence) else next(reversed(list(STATED_VALUE.finditer(sentence))), None)
    if stated and not words(sentence[: stated.start()]) & (UNCERTAIN | OTHERS):
        sentence = sentence[stated.end() :]
    for remark in (REMARK if re.match(VALUE, sentence) else REASON).finditer(sentence):
        head = sentence[: remark.start()]
        if head.count("{") == head.count("}") and not _in_formula(head):
            sentence = head
            break
    answer = sentence.strip(" \t*_`,;")
    return answer, text.replace("\n", " ").index(answer, start) + len(answer)


def _concluded(text: str) -> str | None:
    """The completion itself if it is one short value, else the value of its last sentence if that is a conclusion."""
    text = text.strip()
    if (
        len(text) <= 80
        and not CONCLUSION.search(text)
        and "\n" not in text
        and len(WORD.findall(MATH.sub("", text))) <= 2
    ):
        return None if _is_uncertain(text) else text
    tail = text[-TAIL:]
    conclusion = next(reversed(list(CONCLUSION.finditer(tail))), None)
    if conclusion is None:
        return None
    sentence = tail[conclusion.end() :]
    formulas = list(MATH.finditer(sentence))
    prose = MATH.sub(" x ", sentence)
    if _is_uncertain(prose) or words(prose) & OTHERS or SENTENCE_END.search(prose.strip().rstrip(".")):
        return None
    stated_by = WORD.findall(sentence[: formulas[0].start()]) if formulas else []
    if stated_by and stated_by[-1].lower() not in STATING:
        return None
    if len(formulas) == 1 and not sentence[formulas[0].end() :].strip(" .*\n"):
        return next(filter(None, formulas[0].groups()))
    value = VALUE_LAST.search(prose) if not formulas else None
    return value[1] if value else None


def _is_uncertain(text: str) -> bool:
    return "?" in text or bool(words(text) & UNCERTAIN)


def _first_line(text: str) -> str:
    text = text.lstrip(" \t\n*_:")
    if text.startswith(("\\[", "$$")) and (display := MATH.match(text)):
        return display[0].replace("\n", " ")
    return text.partition("\n")[0].strip(" \t*_")


def _sentence(text: str) -> str:
    end = SENTENCE_END.search(text)
    return text[: end.start()] if end else text
