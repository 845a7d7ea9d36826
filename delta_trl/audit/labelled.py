"""
Labelled completions, from public data or from your own file, and the rollout batches that a model scores.

Your own file has a line for each completion: `prompt`, `completion`, `reward`, `marks` (ranges of characters,
`[[start, end], ...]`), and optionally `units`. Public data has the schema of its card.
"""

import difflib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from ..data.completions import check_completion
from ..data.loading import load
from ..evaluation.benchmarks import BOXED
from ..scoring.checks import Reader, check_sequence
from ..scoring.prompts import prompt_ids


Row = dict[str, Any]
Range = tuple[int, int]  # of characters of a completion: start and end, the end excluded


@dataclass(frozen=True)
class Labelled:
    """
    A completion with labels of what decided its outcome.

    Args:
        prompt (`str` or `list[dict]`): Text, or chat messages.
        completion (`str`): Its text.
        reward (`float`, *optional*): `None` where it is not known.
        marks (`Sequence[Range]`): In a loser, what went wrong; in a winner, the place where siblings went wrong.
        units (`Sequence[Range]`, *optional*):
            Steps or lines that scores are averaged over, without gaps; by default every token is a unit.
    """

    prompt: Any
    completion: str
    reward: float | None
    marks: Sequence[Range] = ()
    units: Sequence[Range] = ()


def read_processbench(row: Row) -> Iterator[Labelled]:
    """A step is a paragraph; `label` is the index of the first wrong step, -1 if none is wrong."""
    *others, last = row["steps"]
    paragraphs = [f"{step}\n\n" for step in others]
    paragraphs.append(last)
    ends = accumulate(map(len, paragraphs), initial=0)
    steps = list(pairwise(ends))
    label = row["label"]
    right = bool(row["final_answer_correct"])
    marks = []
    if label >= 0 and not right:  # a wrong step with a right answer did not decide the reward
        marks = [steps[label]]
    content = BOXED.replace("{prompt}", row["problem"])
    yield Labelled(
        prompt=[{"role": "user", "content": content}],
        completion="".join(paragraphs),
        reward=float(right),
        marks=marks,
        units=steps,
    )


def read_humanevalpack(row: Row) -> Iterator[Labelled]:
    """The right and the buggy solution of a function, marked where they differ."""
    right = row["canonical_solution"]
    wrong = row["buggy_solution"]
    yield Labelled(row["prompt"], right, 1.0, differing(right, wrong))
    yield Labelled(row["prompt"], wrong, 0.0, differing(wrong, right))


def read_own(row: Row) -> Iterator[Labelled]:
    """Your own file. Raises `ValueError` for a row that cannot be read."""
    checked = check_completion(row)
    size = len(checked["completion"])
    marks = row.get("marks") or []
    units = row.get("units") or []
    ranges = [*marks, *units]
    for start, end in ranges:
        if not 0 <= start < end <= size:
            raise ValueError(f"[{start}, {end}] is no range of the completion's {size} characters")
    starts = [start for start, _ in units]
    ends = [end for _, end in units]
    if units and [0, *ends] != [*starts, size]:
        raise ValueError(f"units={units!r}: expected ranges that follow one another from 0 to {size}")
    yield Labelled(**checked, marks=marks, units=units)


def differing(text: str, other: str) -> list[Range]:
    """
    Ranges of `text` that differ from `other`. Where `text` only lacks something, this is the next character. Where it
    lacks its end, this is its last character.
    """
    blocks = difflib.SequenceMatcher(None, text, other, autojunk=False).get_opcodes()
    ranges = []
    for tag, start, end, _, _ in blocks:
        if tag == "equal":
            continue
        first = min(start, len(text) - 1)
        last = max(end, first + 1)
        ranges.append((first, last))
    return ranges


@dataclass(frozen=True)
class LabelledData:
    """
    Data with labels, by default of your own file.

    Args:
        source (`str`): Hub id, or path of a local file.
        read (`Callable`, *optional*): Makes labelled completions of a row.
        split (`str`, *optional*, defaults to `"train"`), config (`str`, *optional*): Of a hub dataset.
        siblings (`bool`, *optional*, defaults to `True`):
            Whether it has several completions of a prompt. Without, a rollout batch is one group.
    """

    source: str
    read: Callable[[Row], Iterator[Labelled]] = read_own
    split: str = "train"
    config: str | None = None
    siblings: bool = True


LABELLED = {
    f"processbench_{split}": LabelledData("Qwen/ProcessBench", read_processbench, split, siblings=False)
    for split in ("gsm8k", "math", "olympiadbench", "omnimath")
}
LABELLED["humanevalpack"] = LabelledData("bigcode/humanevalpack", read_humanevalpack, "test", "python")


def load_labelled(data: LabelledData) -> list[Labelled]:
    """Load and read labelled completions. Raises `ValueError` if that fails, and names the row."""
    completions: list[Labelled] = []
    rows = load(data.source, data.config, data.split)
    for number, row in enumerate(rows, 1):
        try:
            completions += data.read(row)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            where = f"{data.source}, row {number}"
            columns = ", ".join(row)
            raise ValueError(f"{where}: {type(error).__name__}: {error}. It has {columns}.") from error
    return completions


class UnfitError(ValueError):
    """Raised for a completion that cannot be audited with this model. Its message is a reason that is counted."""


def to_row(labelled: Labelled, reader: Reader) -> Row:
    """
    Convert a labelled completion to a model's tokens. A tokenizer without a chat template reads a chat's texts.

    Args:
        labelled (`Labelled`): The completion.
        reader ([`~scoring.checks.Reader`]): The model, with a fast tokenizer.

    Returns:
        `dict`: `prompt` (text to show), `prompt_ids`, `token_ids`, `reward`, `unit` (the index of each token's unit)
        and `marked` (indices of the units that overlap with marks).

    Raises:
        UnfitError: If it has no token, is too long, or a unit begins inside a token.
    """
    tokenizer = reader.tokenizer
    text = prompt = labelled.prompt
    if not isinstance(prompt, str):
        text = "\n".join(str(message["content"]) for message in prompt)
    if not tokenizer.chat_template:
        prompt = text
    (ids_of_prompt,) = prompt_ids(tokenizer, [prompt])
    encoded = tokenizer(labelled.completion, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    if not ids_of_prompt or not ids:
        raise UnfitError("no token in prompt or completion")
    if len(ids_of_prompt) + len(ids) > reader.context:
        raise UnfitError(f"longer than the model's {reader.context:,} tokens")
    starts, ends = np.transpose(encoded["offset_mapping"])
    if labelled.units:
        unit_starts, unit_ends = np.transpose(labelled.units)
        unit = np.searchsorted(unit_ends[:-1], starts, side="right")
        if (ends > unit_ends[unit]).any():
            raise UnfitError("a unit begins inside a token")
    else:
        # some tokenizers leave the space before a word out of its token's offsets (`trim_offsets`)
        unit_starts = np.minimum(starts, [0, *ends[:-1]])
        unit_ends = ends
        unit = np.arange(len(ids))
    is_marked = np.zeros(len(unit_ends), dtype=bool)
    for start, end in labelled.marks:
        is_marked |= (unit_starts < end) & (start < unit_ends)
    marked = np.intersect1d(unit, np.flatnonzero(is_marked))
    return {
        "prompt": text,
        "prompt_ids": ids_of_prompt,
        "token_ids": ids,
        "reward": labelled.reward,
        "unit": unit.tolist(),
        "marked": marked.tolist(),
    }


def rollout_batches(name: str, data: LabelledData, args: Any, reader: Reader) -> tuple[list[list[Row]], Counter]:
    """
    A random sample of the prompts, in rollout batches.

    Args:
        name (`str`), data ([`LabelledData`]): The benchmark.
        args ([`AuditArguments`]): The audit's arguments.
        reader ([`~scoring.checks.Reader`]): The model.

    Returns:
        `tuple[list[list[Row]], Counter]`: Rows of each batch, as of [`to_row`] with `group`, the number of the group
        whose rewards become advantages; and how much was left out, by reason.

    Raises:
        ValueError: If the data cannot be loaded or read, or does not fit the model; if nothing is left.
    """
    left_out: Counter = Counter()
    prompts: dict[str, list[Row]] = {}
    for completion in load_labelled(data):
        try:
            row = to_row(completion, reader)
        except UnfitError as reason:
            left_out[f"completions: {reason}"] += 1
            continue
        except Exception as error:  # what tokenizers and chat templates raise has no common type
            raise ValueError(f"{name}, {completion.prompt!r:.80}, does not fit {reader.name}: {error}") from error
        for problem in check_sequence(row["prompt_ids"], row["token_ids"], reader, f"{name}, a row"):
            raise ValueError(problem)
        key = json.dumps(completion.prompt)
        prompts.setdefault(key, []).append(row)
    groups = list(prompts.values())
    if data.siblings:
        groups = [group for group in groups if _is_labelled(group) and _has_contrast(group)]
        left_out["prompts without a label or without different rewards"] = len(prompts) - len(groups)
    if not any(_is_labelled(group) for group in groups):
        raise ValueError(f"{name}: nothing can be audited: no label is left. Left out: {dict(left_out)}.")
    count = min(args.num_prompts, len(groups))
    chosen = random.Random(args.seed).sample(groups, count)
    for number, group in enumerate(chosen):
        for row in group:
            row["group"] = number if data.siblings else 0
    size = args.prompts_per_batch
    batches = [list(chain(*chosen[i : i + size])) for i in range(0, count, size)]
    return batches, left_out


def _is_labelled(group: list[Row]) -> bool:
    return any(row["marked"] for row in group)


def _has_contrast(group: list[Row]) -> bool:
    rewards = {row["reward"] for row in group}
    return len(rewards - {None}) > 1
