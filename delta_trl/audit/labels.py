"""Completions with labels of what decided them, from their text to a model's tokens."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase


Range = tuple[int, int]
"""Characters of a completion, from the first to behind the last."""


@dataclass(frozen=True)
class Labelled:
    """
    A completion with labels.

    Args:
        prompt (`str` or `list[dict]`): Text, or chat messages. Completions of the same prompt are siblings.
        completion (`str`): Its text.
        reward (`float`, *optional*): `None` where it is not known.
        marks (`Sequence[Range]`): What decided it: in a loser what went wrong, in a winner what others did wrong.
        units (`Sequence[Range]`, *optional*):
            What scores are averaged over, steps or lines, one after the other; by default every token by itself.
        solution (`str`, *optional*): The problem's gold, for `math_reward`.
    """

    prompt: Any
    completion: str
    reward: float | None
    marks: Sequence[Range] = ()
    units: Sequence[Range] | None = None
    solution: str | None = None


class UnfitError(ValueError):
    """A completion that cannot be audited with this model. The message is the reason, which is counted."""


def to_row(one: Labelled, prompt_ids: list[int], tokenizer: PreTrainedTokenizerBase, limit: int | None) -> dict:
    """
    A labelled completion in the tokens of a model.

    Args:
        one (`Labelled`): The completion.
        prompt_ids (`list[int]`): Its prompt.
        tokenizer (`PreTrainedTokenizerBase`): The model's, with offsets.
        limit (`int`, *optional*): Tokens of prompt and completion that the model can read.

    Returns:
        `dict`: `prompt_ids`, `token_ids`, `reward`, `unit` (the number of each token's unit) and `marked` (numbers of
        the units that decided).

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
    """The text of some steps, and where each of them is; a separator belongs to the step before it."""
    ranges, end = [], 0
    for i, part in enumerate(parts):
        start, end = end, end + len(part) + (len(separator) if i + 1 < len(parts) else 0)
        ranges.append((start, end))
    return separator.join(parts), ranges


def fingerprint(content: Any) -> str:
    """A short hash of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def text_of(prompt: Any) -> str:
    """A prompt to show: of a chat, what its messages say."""
    return prompt if isinstance(prompt, str) else "\n".join(str(message.get("content")) for message in prompt)
