"""What the rewards are called with, checked before anything is graded."""

from typing import Any


def check_inputs(reward: str, completions: Any, **column: Any) -> None:
    """
    Check a batch of completions and the column that they are graded by.

    Args:
        reward (`str`): Name of the reward, for messages.
        completions (`list[str] | list[list[dict]]`): Texts, or lists of chat messages.
        **column: The column, by its name.

    Raises:
        TypeError: If one of them is no list, or a completion is neither text nor messages.
        ValueError: If there are not as many of one as of the other.
    """
    [(name, values)] = column.items()
    for what, given in (("completions", completions), (name, values)):
        if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
            raise TypeError(
                f"{reward}: expected lists, one of `{name}` for each completion; got {what}={_short(given)}. For a "
                f"single completion: {reward}([completion], {name}=[...])."
            )
    if len(values) != len(completions):
        raise ValueError(f"{reward}: {len(completions)} completions, but {len(values)} of `{name}`: expected as many.")
    for i, completion in enumerate(completions):
        messages = isinstance(completion, list) and all(isinstance(message, dict) for message in completion)
        if not (isinstance(completion, str) or messages):
            raise TypeError(
                f"{reward}: completion {i + 1} of {len(completions)} is {_short(completion)}: expected text or a list "
                "of chat messages."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} …"
