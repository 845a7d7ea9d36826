"""
Labelled completions from public data, or from your own file.

Your own file has a line for each completion: `prompt`, `completion`, `reward`, `marks` (ranges of characters,
`[[start, end], ...]`), and optionally `units`. Public data has the schema of its card and its authors' code.
"""

import difflib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..data.completions import check_completion
from ..data.loading import load
from ..rewards import math_reward
from .labels import Labelled, Range, join


logger = logging.getLogger(__name__)

Row = dict[str, Any]
Answers = dict[str, str]
"""Reference answers by problem, whose white space is normalised."""


@dataclass(frozen=True)
class LabelledData:
    """
    Public data with labels.

    Args:
        source (`str`): Hub id, or path of a local file.
        read (`Callable`): Converts its rows to labelled completions.
        columns (`tuple[str, ...]`): The columns that it needs.
        config (`str`, *optional*), split (`str`): Of a hub dataset.
        data_file (`str`, *optional*): The file of a hub dataset.
        answers (`tuple[str, str, str | None, str]`, *optional*):
            The dataset with the answers of its problems: format, hub id, config and split. With it, siblings can be
            sampled.
        template (`bool`, *optional*, defaults to `True`): Whether prompts are bare problems and need the template.
    """

    source: str
    read: Callable[[Iterable[Row]], Iterator[Labelled]]
    columns: tuple[str, ...]
    config: str | None = None
    split: str = "test"
    data_file: str | None = None
    answers: tuple[str, str, str | None, str] | None = None
    template: bool = True


def read_processbench(rows: Iterable[Row]) -> Iterator[Labelled]:
    """A step is a paragraph; `label` is the index of the first wrong step, -1 if none is wrong."""
    for row in rows:
        text, steps = join(row["steps"], "\n\n")
        if not -1 <= row["label"] < len(steps):
            raise ValueError(f"a label of {row['label']} with {len(steps)} steps: expected the number of one, or -1")
        right = bool(row["final_answer_correct"])
        # a wrong step with a right answer did not decide the reward
        marks = [] if right or row["label"] < 0 else [steps[row["label"]]]
        yield Labelled(row["problem"], text, float(right), marks, steps)


def read_prm800k(rows: Iterable[Row]) -> Iterator[Labelled]:
    """
    Phase 2: whole solutions, rated step by step up to the first wrong step. The answer is graded with `math_reward`,
    because `finish_reason` only says how the labelling ended.
    """
    kept = [row for row in rows if row["question"].get("pre_generated_steps") and not _is_a_test_of_labellers(row)]
    golds = [row["question"]["ground_truth_answer"] for row in kept]
    answers = [f"\\boxed{{{row['question']['pre_generated_answer']}}}" for row in kept]
    for row, reward in zip(kept, math_reward(answers, solution=golds), strict=True):
        text, steps = join(row["question"]["pre_generated_steps"], "\n")
        rated = row["label"]["steps"]
        wrong = row["label"]["finish_reason"] == "found_error" and _is_wrong(rated[-1], len(rated) - 1, row)
        marks = [steps[len(rated) - 1]] if wrong and reward == 0 else []
        yield Labelled(row["question"]["problem"], text, reward, marks, steps, row["question"]["ground_truth_answer"])


def _is_a_test_of_labellers(row: Row) -> bool:
    return bool(row.get("is_quality_control_question") or row.get("is_initial_screening_question"))


def _is_wrong(rated: Row, number: int, row: Row) -> bool:
    """Whether the solution's own step was rated wrong. Alternatives to it are rated in the same place."""
    step = row["question"]["pre_generated_steps"][number]
    return any(one["text"] == step and one["rating"] == -1 for one in rated["completions"] or [])


def read_humanevalpack(rows: Iterable[Row], lines: bool = False) -> Iterator[Labelled]:
    """The right and the buggy solution of a function, marked where they differ; perhaps line by line."""
    for row in rows:
        right, wrong = row["canonical_solution"], row["buggy_solution"]
        for text, other, reward in ((right, wrong, 1.0), (wrong, right, 0.0)):
            units = join(text.splitlines(keepends=True), "")[1] if lines else None
            yield Labelled(row["prompt"], text, reward, differences(text, other), units)


def differences(text: str, other: str) -> list[Range]:
    """Ranges of `text` that differ from `other`. Where `text` only lacks something, this is the next character."""
    blocks = difflib.SequenceMatcher(None, text, other, autojunk=False).get_opcodes()
    return [(start, max(end, start + 1)) for tag, start, end, _, _ in blocks if tag != "equal"]


def read_own(rows: Iterable[Row]) -> Iterator[Labelled]:
    """Your own file. Raises `ValueError` for a row that cannot be read."""
    for number, row in enumerate(rows, 1):
        try:
            checked = check_completion(row)
            marks, units = (_ranges(row, name, checked["completion"]) for name in ("marks", "units"))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
        yield Labelled(checked["prompt"], checked["completion"], checked["reward"], marks or [], units)


def _ranges(row: Row, name: str, completion: str) -> list[Range] | None:
    """Ranges of characters; units must cover the completion in order."""
    value, size = row.get(name), len(completion)
    if value is None:
        return None
    valid = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    if not valid or not all(type(a) is type(b) is int and 0 <= a < b <= size for a, b in value):
        raise ValueError(f"{name}={value!r}: expected ranges [start, end] of the completion's {size} characters")
    if name == "units" and [0, *(b for _, b in value)] != [*(a for a, _ in value), size]:
        raise ValueError(f"units={value!r}: expected ranges that follow one another from 0 to {size}")
    return [(a, b) for a, b in value]


PROCESSBENCH = ("problem", "steps", "final_answer_correct", "label")
HUMANEVALPACK = ("prompt", "canonical_solution", "buggy_solution")
OWN = ("prompt", "completion", "reward", "marks")
GSM8K = ("gsm8k", "openai/gsm8k", "main", "test")
MATH = ("math", "DigitalLearningGmbH/MATH-lighteval", None, "test")
LABELLED = {
    "processbench_gsm8k": LabelledData(
        "Qwen/ProcessBench", read_processbench, PROCESSBENCH, split="gsm8k", answers=GSM8K
    ),
    "processbench_math": LabelledData(
        "Qwen/ProcessBench", read_processbench, PROCESSBENCH, split="math", answers=MATH
    ),
    "processbench_olympiadbench": LabelledData(
        "Qwen/ProcessBench", read_processbench, PROCESSBENCH, split="olympiadbench"
    ),
    "processbench_omnimath": LabelledData("Qwen/ProcessBench", read_processbench, PROCESSBENCH, split="omnimath"),
    "prm800k": LabelledData(
        "tasksource/PRM800K", read_prm800k, ("question", "label"), split="train", data_file="phase2_test.jsonl"
    ),
    "humanevalpack": LabelledData(
        "bigcode/humanevalpack", read_humanevalpack, HUMANEVALPACK, config="python", template=False
    ),
    "humanevalpack_lines": LabelledData(
        "bigcode/humanevalpack",
        partial(read_humanevalpack, lines=True),
        HUMANEVALPACK,
        config="python",
        template=False,
    ),
}


def own_file(path: str) -> LabelledData:
    """Your own file as a benchmark."""
    return LabelledData(path, read_own, OWN, template=False)


def load_labelled(name: str, data: LabelledData) -> list[Labelled]:
    """
    Load and read labelled completions.

    Raises:
        ValueError, OSError: If they cannot be loaded, or a column is missing.
    """
    rows = load(data.source, data.config, data.split, data_file=data.data_file)
    missing = [column for column in data.columns if column not in rows.column_names]
    if missing:
        raise ValueError(
            f"{name}: {data.source} needs the columns {', '.join(data.columns)}; {', '.join(missing)} missing from "
            f"{', '.join(rows.column_names)}."
        )
    try:
        return list(data.read(rows))
    except ValueError as error:
        raise ValueError(f"{name}: {data.source}: {error}") from error


def load_answers(data: LabelledData) -> Answers:
    """Answers of the problems; empty without a dataset of answers, or, with a warning, if it cannot be loaded."""
    if data.answers is None:
        return {}
    form, source, config, split = data.answers
    try:
        rows = load(source, config, split, form)
    except (ValueError, OSError) as error:
        logger.warning(f"{source} cannot be loaded for its answers ({error}): no siblings are sampled.")
        return {}
    return {key(row["prompt"]): row["solution"] for row in rows if row["solution"] is not None}


def key(problem: str) -> str:
    """A problem with normalised white space: copies of a problem differ in it."""
    return " ".join(problem.split())


def by_problem(labelled: Iterable[Labelled], exact: bool = False) -> dict[str, list[Labelled]]:
    """Completions by problem, in order, without duplicates; with `exact`, white space counts."""
    groups: dict[str, dict[str, Labelled]] = {}
    for one in labelled:
        problem = json.dumps(one.prompt) if exact else key(one.prompt)
        groups.setdefault(problem, {}).setdefault(one.completion, one)
    return {problem: list(group.values()) for problem, group in groups.items()}


def has_contrast(group: Iterable[Labelled]) -> bool:
    """Whether rewards differ."""
    return len({one.reward for one in group if one.reward is not None}) > 1
