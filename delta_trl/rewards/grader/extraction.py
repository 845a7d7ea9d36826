r"""Finds the final answer of a completion. Strings only, and linear in the length of the text.

A completion has exactly one answer:

1. Reasoning is dropped: only text after the last `</think>`, or the like, counts. A `<think>` that stays open leaves
   no answer.
2. The last balanced `\boxed{...}` or `\fbox{...}` counts. Boxes with nothing but separators between them are one list.
   A box that is not closed leaves no answer.
3. Without a box, what follows the last mark that has something after it counts, to the end of its sentence or line:
   `<answer>`, `####`, "Answer:", "the answer is" (or the like in Chinese, Russian, Spanish, French, German), a heading
   "Final Answer". A reason ("because ...") is no part of it. The letter of a choice may be followed by its content.

The text around the answer is not read: a policy gains nothing by talking around a box.
"""

import re


MAX_ANSWER_LENGTH = 1000

Completions = list[str] | list[list[dict]]
"""Texts, or conversations as lists of messages."""

# What opens and closes reasoning, in models and chat templates
REASONING = """
<think> </think>
<thinking> </thinking>
<reasoning> </reasoning>
<thought> </thought>
[THINK] [/THINK]
◁think▷ ◁/think▷
<|begin_of_thought|> <|end_of_thought|>
<|channel|>analysis<|message|> <|channel|>final<|message|>
""".split()
REASONING_BEGINS = re.compile("|".join(map(re.escape, REASONING[::2])))
REASONING_ENDS = re.compile("|".join(map(re.escape, REASONING[1::2])))
BOX_TOKEN = re.compile(r"(\\{1,2}(?:boxed|fbox)\s*\{)|\\.|[{}]", re.DOTALL)
SEPARATORS = re.compile(
    r"(?:[\s,;.$&*]|\\[()\[\],;!: \\]|\\q?quad|\b(?:and|or)\b|\\text\s*+\{\s*+,?+\s*+(?:and|or)\s*+\})*+"
)
# "answer" is no verb here, and "answers:" before a line break heads a list, of which a line is not the answer
MARK = re.compile(
    r"<answer>|####+|^[#*_ \t]{0,9}(?:final answer|答案)[*_: \t]{0,9}$|(?:答案|^答)[*_]{0,2}[ \t]?[是为:：]{1,2}"
    r"|(?<![^\W_])(?<!can )(?<!can best )(?:answers(?![*_]{0,2}[ \t]{0,3}[:：][*_ \t]{0,9}$)"
    r"|answer|respuesta|réponse|antwort|ответ)(?: (?:correcta|finale?))?[*_]{0,2}"
    r"(?:[ \t]{0,3}[:：—]|\s(?:is|are|es|est|ist|lautet)\b[ \t]{0,3}:?)",
    re.IGNORECASE | re.MULTILINE,
)
# What ends an answer after a mark: a tag, its sentence ("is $17$. I hope it is correct."), a reason
END = re.compile(r"</answer>|(?<!\.)\.(?=[\s*_$])|。|\(?\b(?:because|since)\b|,\s*+as\b", re.IGNORECASE)
AROUND = " \t$*_,;`"
LEAD = re.compile(r"\A[\s*_$`]*(?:\\\[)?\s*")
LETTER_AND_CONTENT = re.compile(r"([A-J])\s\(((?:[^()]|\([^()]*\))+)\)")  # "C (apples)"


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
    text = REASONING_ENDS.split(text)[-1]
    if REASONING_BEGINS.search(text):
        return None
    answer = _in_boxes(text)
    if answer is None:
        answer = _after_mark(text)
    return answer if 0 < len(answer) <= MAX_ANSWER_LENGTH else None


def _in_boxes(text: str) -> str | None:
    """The last boxes with only separators between them, as a list. None without a box; empty if a box stays open."""
    opened: list[re.Match] = []
    open_boxes = 0
    group: list[str] = []
    end = 0  # of the box before
    for token in BOX_TOKEN.finditer(text):
        if token[1] or token[0] == "{":
            opened.append(token)
            open_boxes += token[0] != "{"
        elif token[0] == "}" and opened and (opening := opened.pop())[1]:
            open_boxes -= 1
            if open_boxes:
                continue
            content = text[opening.end() : token.start()].strip()
            if not content:
                continue
            if not SEPARATORS.fullmatch(text, end, opening.start()):
                group = []
            if content not in group[-1:]:  # the same answer twice is one answer
                group.append(content)
            end = token.end()
    if open_boxes:
        return ""
    return ", ".join(group) or None


def _after_mark(text: str) -> str:
    """
    What follows the last mark with something after it: the rest of its line, or the next line if the mark ends its
    line.
    """
    _, *rests = MARK.split(text)
    for rest in reversed(rests):
        line = LEAD.sub("", rest).partition("\n")[0]
        answer = _bare(END.split(line, maxsplit=1)[0])
        if answer:
            choice = LETTER_AND_CONTENT.fullmatch(answer)
            return f"({choice[1]}) {choice[2]}" if choice else answer
    return ""


def _bare(text: str) -> str:
    """A text without what stands around an answer. The point of `.5` and the dots of `0.333...` belong to it."""
    text = text.lstrip(AROUND)
    answer = text.rstrip(f"{AROUND}.")
    if text.startswith("...", len(answer)) and re.search(r"(?<!\.)\.\d+\Z", answer):
        answer += "..."
    return answer if re.match(r"\.\d", answer) else answer.lstrip(f"{AROUND}.")
