"""Completions with labels of what decided their outcome, and their conversion to a model's tokens."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase


Range = tuple[int, int]
"""A range of characters of a completion: start and end, the end excluded."""


@dataclass(frozen=True)
class Labelled:
    """
    A completion with labels of what decided its outcome.

    Args:
        prompt (`str` or `list[dict]`): Text, or chat messages. Completions of the same prompt are siblings.
        completion (`str`): Its text.
        reward (`float`, *optional*): `None` where it is not known.
        marks (`Sequence[Range]`): In a loser, what went wrong; in a winner, the place where siblings went wrong.
        units (`Sequence[Range]`, *optional*):
            Steps or lines that scores are averaged over, without gaps; by default every token is a unit.
        solution (`str`, *optional*): The problem's reference answer, for `math_reward`.
    """

    prompt: Any
    completion: str
    reward: float | None
    marks: Sequence[Range] = ()
    units: Sequence[Range] | None = None
    solution: str | None = None


class UnfitError(ValueError):
    """Raised for a completion that cannot be audited with this model. Its message is a reason that is counted."""


def to_row(one: Labelled, prompt_ids: list[int], tokenizer: PreTrainedTokenizerBase, limit: int | None) -> dict:
    """
    Convert a labelled completion to a model's tokens.

    Args:
        one (`Labelled`): The completion.
        prompt_ids (`list[int]`): The tokens of its prompt.
        tokenizer (`PreTrainedTokenizerBase`): The model's tokenizer, a fast one.
        limit (`int`, *optional*): The model's context length.

    Returns:
        `dict`: `prompt_ids`, `token_ids`, `reward`, `unit` (the index of each token's unit) and `marked` (indices of
        the units that overlap with marks).

    Raises:
        UnfitError: If it has no token, is too long, or a unit begins inside a token.
    """
    encoded = tokenizer(one.completion, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    if not prompt_ids or not ids:
        raise UnfitError("no token in prompt or completion")
    if limit is not None and len(prompt_ids) + len(ids) > limit:
        raise UnfitError(f"longer than the model's {limit:,} tokens")
    if one.units is None:
        unit, ranges = list(range(len(ids))), offsets
    else:
        unit, ranges = [], one.units
        for start, end in offsets:
            number = next((i for i, (first, last) in enumerate(ranges) if first <= start < last), None)
            if number is None or end > ranges[number][1]:
                raise UnfitError("a unit begins inside a token")
            unit.append(number)
    marked = [
        i for i in sorted(set(unit)) if any(ranges[i][0] < end and start < ranges[i][1] for start, end in one.marks)
    ]
    return {"prompt_ids": prompt_ids, "token_ids": ids, "reward": one.reward, "unit": unit, "marked": marked}


def join(parts: Sequence[str], separator: str) -> tuple[str, list[Range]]:
    """Join steps to a text. Return it with the range of each step, which includes the separator after it."""
    ranges, end = [], 0
    for i, part in enumerate(parts):
        start, end = end, end + len(part) + (len(separator) if i + 1 < len(parts) else 0)
        ranges.append((start, end))
    return separator.join(parts), ranges


def fingerprint(content: Any) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def text_of(prompt: Any) -> str:
    """A prompt as text to show; a chat is the text of its messages."""
    return prompt if isinstance(prompt, str) else "\n".join(str(message.get("content")) for message in prompt)
