"""Finding the final answer in a completion: strings only, linear in the length of the text."""


def message_text(completion) -> str:
    """The text to grade: the string itself, or the content of the last assistant message."""
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        if message.get("role", "assistant") == "assistant":
            content = message.get("content")
            if isinstance(content, list):  # content parts, as multimodal chat templates use them
                content = "".join(part.get("text", "") for part in content)
            return content or ""
    return ""


def last_box(text: str) -> str | None:
    """The content of the last `\\boxed{...}`; None if there is none, or if it is not closed."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    opening = text.index("{", start)
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1 : position]
    return None


def extract_answer(text: str) -> str | None:
    """The final answer, after the reasoning; None if there is none."""
    text = text.rpartition("</think>")[2]
    return None if "<think>" in text else last_box(text)


def extract_gold(solution: str) -> str:
    """The gold: after `####`, else the last box, else the text itself without `$`."""
    solution = solution.rpartition("####")[2].strip()
    boxed = last_box(solution)
    return (solution if boxed is None else boxed).strip().strip("$").strip()
