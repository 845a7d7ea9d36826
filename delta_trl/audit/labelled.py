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
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from ..data.completions import check_completion
from ..data.loading import load
from ..evaluation.benchmarks import BOXED, find
from ..evaluation.model import beyond_context
from ..scoring.checks import check_ids
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
    units: Sequence[Range] | None = None


def read_processbench(row: Row) -> Iterator[Labelled]:
    """A step is a paragraph; `label` is the index of the first wrong step, -1 if none is wrong."""
    steps = []
    end = 0
    for paragraph in row["steps"]:
        steps.append((end, end + len(paragraph) + 2))  # with the empty line after it
        end += len(paragraph) + 2
    steps[-1] = (steps[-1][0], end - 2)
    right = bool(row["final_answer_correct"])
    # a wrong step with a right answer did not decide the reward
    marks = [] if right or row["label"] < 0 else [steps[row["label"]]]
    chat = [{"role": "user", "content": BOXED.replace("{prompt}", row["problem"])}]
    yield Labelled(chat, "\n\n".join(row["steps"]), float(right), marks, steps)


def read_humanevalpack(row: Row) -> Iterator[Labelled]:
    """The right and the buggy solution of a function, marked where they differ."""
    right = row["canonical_solution"]
    wrong = row["buggy_solution"]
    for text, other, reward in ((right, wrong, 1.0), (wrong, right, 0.0)):
        yield Labelled(row["prompt"], text, reward, differing(text, other))


def read_own(row: Row) -> Iterator[Labelled]:
    """Your own file. Raises `ValueError` for a row that cannot be read."""
    checked = check_completion(row)
    size = len(checked["completion"])
    marks = row.get("marks") or []
    units = row.get("units")
    for a, b in [*marks, *(units or [])]:
        if not 0 <= a < b <= size:
            raise ValueError(f"[{a}, {b}] is no range of the completion's {size} characters")
    if units and [0, *(b for _, b in units)] != [*(a for a, _ in units), size]:
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
        if tag != "equal":
            first = min(start, len(text) - 1)
            ranges.append((first, max(end, first + 1)))
    return ranges


@dataclass(frozen=True)
class LabelledData:
    """
    Data with labels.

    Args:
        source (`str`): Hub id, or path of a local file.
        config (`str`, *optional*), split (`str`): Of a hub dataset.
        read (`Callable`): Makes labelled completions of a row.
        siblings (`bool`): Whether it has several completions of a prompt. Without, a rollout batch is one group.
    """

    source: str
    config: str | None
    split: str
    read: Callable[[Row], Iterator[Labelled]]
    siblings: bool = True


LABELLED = {
    f"processbench_{split}": LabelledData("Qwen/ProcessBench", None, split, read_processbench, siblings=False)
    for split in ("gsm8k", "math", "olympiadbench", "omnimath")
} | {"humanevalpack": LabelledData("bigcode/humanevalpack", "python", "test", read_humanevalpack)}


def resolve(given: str) -> tuple[str, LabelledData]:
    """The name and data of a benchmark of `LABELLED`, or of your own file. Raises `ValueError` for another name."""
    return find(given, LABELLED, lambda path: LabelledData(path, None, "train", read_own))


def load_labelled(data: LabelledData) -> list[Labelled]:
    """Load and read labelled completions. Raises `ValueError` if that fails, and names the row."""
    found: list[Labelled] = []
    for number, row in enumerate(load(data.source, data.config, data.split), 1):
        try:
            found += data.read(row)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            name = type(error).__name__
            raise ValueError(f"{data.source}, row {number}: {name}: {error}. It has {', '.join(row)}.") from error
    return found


class UnfitError(ValueError):
    """Raised for a completion that cannot be audited with this model. Its message is a reason that is counted."""


def to_row(one: Labelled, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> Row:
    """
    Convert a labelled completion to a model's tokens. A tokenizer without a chat template reads a chat's texts.

    Args:
        one (`Labelled`): The completion.
        tokenizer (`PreTrainedTokenizerBase`): The model's tokenizer, a fast one.
        config (`PretrainedConfig`): The model's.

    Returns:
        `dict`: `prompt` (text to show), `prompt_ids`, `token_ids`, `reward`, `unit` (the index of each token's unit)
        and `marked` (indices of the units that overlap with marks).

    Raises:
        UnfitError: If it has no token, is too long, or a unit begins inside a token.
    """
    text = one.prompt if isinstance(one.prompt, str) else "\n".join(str(message["content"]) for message in one.prompt)
    (prompt,) = prompt_ids(tokenizer, [one.prompt if tokenizer.chat_template else text])
    encoded = tokenizer(one.completion, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    offsets = encoded["offset_mapping"]
    if not prompt or not ids:
        raise UnfitError("no token in prompt or completion")
    if too_long := beyond_context(len(prompt) + len(ids), config):
        raise UnfitError(too_long)
    if one.units:
        ranges = one.units
        unit = [sum(last <= start for _, last in ranges[:-1]) for start, _ in offsets]
        if any(end > ranges[i][1] for i, (_, end) in zip(unit, offsets, strict=True)):
            raise UnfitError("a unit begins inside a token")
    else:
        # some tokenizers leave the space before a word out of its token's offsets (`trim_offsets`)
        ends = [0, *(end for _, end in offsets)]
        ranges = [(min(start, before), end) for before, (start, end) in zip(ends, offsets, strict=False)]
        unit = list(range(len(ids)))
    marked = [
        i for i in sorted(set(unit)) if any(ranges[i][0] < end and start < ranges[i][1] for start, end in one.marks)
    ]
    return {
        "prompt": text,
        "prompt_ids": prompt,
        "token_ids": ids,
        "reward": one.reward,
        "unit": unit,
        "marked": marked,
    }


def rollout_batches(
    name: str, data: LabelledData, args: Any, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig
) -> tuple[list[list[Row]], Counter]:
    """
    A random sample of the prompts, in rollout batches.

    Args:
        name (`str`), data ([`LabelledData`]): The benchmark.
        args ([`AuditArguments`]): The audit's arguments.
        tokenizer (`PreTrainedTokenizerBase`), config (`PretrainedConfig`): The model's.

    Returns:
        `tuple[list[list[Row]], Counter]`: Rows of each batch, as of [`to_row`] with `group`, the number of the group
        whose rewards become advantages; and how much was left out, by reason.

    Raises:
        ValueError: If the data cannot be loaded or read, or does not fit the model; if nothing is left.
    """
    left_out: Counter = Counter()
    prompts: dict[str, list[Row]] = {}
    for one in load_labelled(data):
        try:
            row = to_row(one, tokenizer, config)
        except UnfitError as reason:
            left_out[f"completions: {reason}"] += 1
            continue
        ids = row["prompt_ids"] + row["token_ids"]
        what = f"{name}: a completion"
        for problem in check_ids(ids, tokenizer, config, what):
            raise ValueError(problem)
        prompts.setdefault(json.dumps(one.prompt), []).append(row)
    groups = list(prompts.values())
    if data.siblings:
        contrasted = [group for group in groups if len({row["reward"] for row in group} - {None}) > 1]
        left_out["prompts whose completions all have the same reward"] = len(groups) - len(contrasted)
        groups = [group for group in contrasted if any(row["marked"] for row in group)]
        left_out["prompts without a label"] = len(contrasted) - len(groups)
    if not any(row["marked"] for group in groups for row in group):
        reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.items() if count)
        raise ValueError(f"{name}: nothing can be audited: {reasons or 'no completion has a label'}.")
    chosen = random.Random(args.seed).sample(groups, min(args.num_prompts, len(groups)))
    batches = [chosen[i : i + args.prompts_per_batch] for i in range(0, len(chosen), args.prompts_per_batch)]
    return [
        [{**row, "group": number if data.siblings else 0} for number, group in enumerate(batch) for row in group]
        for batch in batches
    ], left_out
