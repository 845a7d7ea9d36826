r"""Finds the final answer of a completion. Strings only, and linear in the length of the text.

A completion has exactly one answer:

1. Reasoning is dropped: only text after the last `</think>` counts. A `<think>` that stays open leaves no answer.
2. The last balanced `\boxed{...}` or `\fbox{...}` counts. Boxes with nothing but separators between them are one list.
   A last box that is not closed leaves no answer.
3. Without a box, the rest of the line after the last `<answer>`, `####`, "Answer:", "the answer is" (or the like in
   Chinese, Russian, Spanish, French, German) or heading "Final Answer" counts.

The text around the answer is not read: a policy gains nothing by talking around a box.
"""

import re


MAX_ANSWER_LENGTH = 1000

Completions = list[str] | list[list[dict]]
"""Texts, or conversations as lists of messages."""

THINK_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning)>")
BOX = re.compile(r"\\{1,2}(?:boxed|fbox)\s*\{")
BOX_TOKEN = re.compile(r"(\\{1,2}(?:boxed|fbox)\s*\{)|\\.|[{}]", re.DOTALL)
SEPARATORS = re.compile(
    r"(?:[\s,;.$&*]|\\[()\[\],;!: \\]|\\q?quad|\b(?:and|or)\b|\\text\s*\{\s*,?\s*(?:and|or)\s*\})*"
)
MARK = re.compile(
    r"<answer>|####+|^[#*_ \t]{0,9}final answer[*_: \t]{0,9}$|答案[ \t]?[是为:：]{1,2}"
    r"|\b(?:answers?|respuesta|réponse|antwort|ответ)[*_]{0,2}"
    r"(?:[ \t]{0,3}[:：]|\s(?:is|are|es|est|ist)\b[ \t]{0,3}:?)",
    re.IGNORECASE | re.MULTILINE,
)
SPECIAL = re.compile(r"</s>|<eos>|<end_of_turn>|<\|\w{1,40}\|>")  # tokens that a tokenizer may leave at the end
CLOSING = re.compile("</answer>", re.IGNORECASE)
LINE = re.compile(r"[\s*_$]*(?:\\\[)?\s*([^\n]*)")


def message_text(completion: str | list[dict]) -> str:
    """The text to grade: the string itself, or the content of the last assistant message."""
    if isinstance(completion, str):
        return completion
    said = [message for message in completion if message.get("role", "assistant") == "assistant"]
    return content_text(said[-1]) if said else ""


def content_text(message: dict) -> str:
    """The text of a message, whose content may have parts, as in multimodal chat templates."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else part.get("text") or "" for part in content)


def extract_answer(text: str) -> str | None:
    """The final answer of a completion; None if there is none, or one of more than `MAX_ANSWER_LENGTH` characters."""
    text = SPECIAL.sub("", text)
    tags = list(THINK_TAG.finditer(text))
    if tags and not tags[-1][1]:
        return None
    text = text[tags[-1].end() :] if tags else text
    boxes = find_boxes(text)
    if boxes:
        answer = ", ".join(_last_group(text, boxes))
    else:
        answer = "" if boxes is None else _after_mark(text)
    return answer if 0 < len(answer) <= MAX_ANSWER_LENGTH else None


def extract_gold(solution: str) -> str:
    r"""The gold: after the last `####`, else as in a completion, else the whole text."""
    if "####" in solution:
        return solution.rpartition("####")[2].strip()
    if BOX.search(solution):
        return extract_answer(solution) or ""
    return _after_mark(solution) or solution


def find_boxes(text: str) -> list[tuple[int, int, str]] | None:
    """Start, end and content of the outermost balanced boxes that hold something; None if the last is not closed."""
    opened: list[re.Match] = []
    boxes: list[tuple[re.Match, re.Match]] = []  # their beginnings and closing braces
    last = BOX.search(text)
    for token in BOX_TOKEN.finditer(text, last.start()) if last else ():
        if token[1] or token[0] == "{":
            opened.append(token)
            last = token if token[1] else last
        elif token[0] == "}" and opened and (box := opened.pop())[1]:
            while boxes and boxes[-1][0].start() > box.start():  # boxes inside this one
                boxes.pop()
            boxes.append((box, token))
    if last in opened:
        return None
    found = [(box.start(), end.end(), text[box.end() : end.start()].strip()) for box, end in boxes]
    return [box for box in found if box[2]]


def _last_group(text: str, boxes: list[tuple[int, int, str]]) -> list[str]:
    """The contents of the last box and of those before it with only separators in between."""
    group = [boxes[-1][2]]
    for (_, end, content), (start, _, following) in zip(boxes[-2::-1], boxes[:0:-1], strict=True):
        if not SEPARATORS.fullmatch(text, end, start):
            break
        if content != following:  # the same answer twice is one answer
            group.append(content)
    return group[::-1]


def _after_mark(text: str) -> str:
    """The rest of the line after the last mark, or the next line if the mark ends its line."""
    marks = list(MARK.finditer(text))
    if not marks:
        return ""
    line = LINE.match(text, marks[-1].end())
    assert line is not None  # it may match nothing
    return CLOSING.split(line[1], maxsplit=1)[0].strip(" \t$*_.,;`")
