"""Named benchmarks with the paper's settings, and loading them for `delta-trl eval`."""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..arguments.lookup import nearest
from ..data.columns import check_columns
from ..data.loading import LOCAL_FORMATS, drop_rows_without_gold, load, prepare
from ..rewards import get_reward


BOXED = "{prompt}\nPlease reason step by step, and put your final answer within \\boxed{}."  # as in the recipes
LETTER = "{prompt}\n\nPlease reason step by step, and put the letter of your choice within \\boxed{}."
PROGRAM = "{prompt}\n\nThink step by step, then put the whole program, imports included, in one ```python block."


NUMBER = "_problem_number"  # a column that no file has


@dataclass(frozen=True)
class Benchmark:
    """
    A benchmark: its data, prompts and reward.

    Args:
        source (`str`): Hub id, or path of a local file.
        config (`str`, *optional*): Configuration of a hub dataset.
        split (`str`, *optional*, defaults to `"test"`): Split of a hub dataset.
        form (`str`, *optional*): Key of `FORMATS`; `None` for a file with `prompt` and `solution` or `tests`.
        reward (`str`, *optional*):
            Name of the reward that scores; `None`: `code_reward` where there are `tests`, else `math_reward`.
        template (`str`, *optional*): Text around each prompt.
        conversational (`bool`, *optional*): Turn prompts into chats; `None`: if the tokenizer has a chat template.
        num_problems (`int`, *optional*): Size of a fixed random sample of the problems to take.
    """

    source: str
    config: str | None = None
    split: str = "test"
    form: str | None = None
    reward: str | None = None
    template: str | None = None
    conversational: bool | None = None
    num_problems: int | None = None


def _mathematics(source: str, form: str, split: str = "train", **options: Any) -> Benchmark:
    return Benchmark(source, split=split, form=form, reward="math_reward", template=BOXED, **options)


def _code(source: str, form: str, **options: Any) -> Benchmark:
    return Benchmark(source, form=form, reward="code_reward", template=PROGRAM, **options)


def _choice(source: str, form: str, **options: Any) -> Benchmark:
    return Benchmark(source, form=form, reward="multiple_choice_reward", template=LETTER, **options)


BENCHMARKS = {
    "aime_2024": _mathematics("HuggingFaceH4/aime_2024", "aime"),
    "aime_2025": _mathematics("MathArena/aime_2025", "matharena"),
    "aime_2026": _mathematics("MathArena/aime_2026", "matharena"),
    "hmmt_feb_2025": _mathematics("MathArena/hmmt_feb_2025", "matharena"),
    "hmmt_nov_2025": _mathematics("MathArena/hmmt_nov_2025", "matharena"),
    "hmmt_feb_2026": _mathematics("MathArena/hmmt_feb_2026", "matharena"),
    "brumo_2025": _mathematics("MathArena/brumo_2025", "matharena"),
    "math_500": _mathematics("HuggingFaceH4/MATH-500", "math_500", split="test"),
    "gsm8k": _mathematics("openai/gsm8k", "gsm8k", split="test", config="main"),
    "humanevalplus": _code("evalplus/humanevalplus", "humanevalplus"),
    "mbppplus": _code("evalplus/mbppplus", "mbppplus"),
    "livecodebench": _code("lighteval/code_generation_lite", "livecodebench", config="v6"),
    "gpqa_diamond": _choice("Idavidrein/gpqa", "gpqa", config="gpqa_diamond", split="train"),
    "mmlu_pro": _choice("TIGER-Lab/MMLU-Pro", "mmlu_pro", num_problems=600),
}
GROUPS = {
    "paper_math": list(BENCHMARKS)[:7],
    "paper_code": ["humanevalplus", "mbppplus", "livecodebench"],
    "paper_out_of_domain": ["gpqa_diamond", "mmlu_pro"],
}


def resolve(names: list[str]) -> dict[str, Benchmark]:
    """
    Benchmarks by name. A name is one of `BENCHMARKS`, one of `GROUPS`, the path of a local file, `name=source` (the
    benchmark `name` with data from another hub id or a local file), or `label=path` (a file under that label).

    Raises:
        ValueError: If a name is unknown, is given twice, or could mean a benchmark and a file.
    """
    chosen: dict[str, Benchmark] = {}
    for name in (part for given in names for part in GROUPS.get(given, [given])):
        key, _, source = name.partition("=")
        if Path(name).suffix in LOCAL_FORMATS and (not source or Path(name).is_file()):
            key, benchmark = Path(name).stem, Benchmark(name, conversational=False)
            if key in BENCHMARKS:
                raise ValueError(
                    f"{name} has the name of a benchmark: use `{key}={name}` to evaluate the benchmark on it, or "
                    f"`other_name={name}` for an ordinary file."
                )
        elif key and key not in BENCHMARKS and Path(source).suffix in LOCAL_FORMATS:
            benchmark = Benchmark(source, conversational=False)
        else:
            if key not in BENCHMARKS:
                known = [*BENCHMARKS, *GROUPS]
                raise ValueError(
                    f"Unknown benchmark {key!r}{nearest(key, known)}. Expected one of {', '.join(known)}, "
                    f"`name=source`, or the path of a file of {', '.join(LOCAL_FORMATS)}, also as `label=path`."
                )
            benchmark = replace(BENCHMARKS[key], source=source) if source else BENCHMARKS[key]
        if key in chosen:
            raise ValueError(f"The benchmark {key!r} is named twice. Files can be named: `label=path`.")
        chosen[key] = benchmark
    return chosen


@dataclass(frozen=True)
class Problems:
    """
    A loaded benchmark.

    Args:
        rows (`Dataset`):
            With the final `prompt`, its gold, and in the column `NUMBER` the problem's place in the source, from 1.
        reward (`Callable`): Scores completions.
        reward_name (`str`): Its name, as in recipes.
        left_out (`int`): Problems without a gold that can be used.
        fingerprint (`str`): Hash of problems and golds, without the text that `template` puts around them.
    """

    rows: Dataset
    reward: Callable
    reward_name: str
    left_out: int
    fingerprint: str


def load_problems(
    name: str,
    benchmark: Benchmark,
    column_mapping: dict[str, str] | None = None,
    system_prompt: str | None = None,
    reward_kwargs: dict | None = None,
) -> Problems:
    """
    Load a benchmark the way that training loads its data.

    Args:
        name (`str`): What it is called in messages.
        benchmark (`Benchmark`): With `conversational` set.
        column_mapping (`dict[str, str]`, *optional*): New names of columns, for a file without a format.
        system_prompt (`str`, *optional*): System message of chats.
        reward_kwargs (`dict`, *optional*): Options by reward name.

    Raises:
        ValueError, OSError: See the functions of `delta_trl.data.loading`.
    """
    dataset = load(benchmark.source, benchmark.config, benchmark.split, benchmark.form)
    dataset = prepare(dataset, column_mapping, name=benchmark.source)  # renames columns, checks prompts
    dataset = dataset.add_column(NUMBER, list(range(1, len(dataset) + 1)))
    reward_name = benchmark.reward or ("code_reward" if "tests" in dataset.column_names else "math_reward")
    reward = get_reward(reward_name, **((reward_kwargs or {}).get(reward_name) or {}))
    check_columns(dataset, [reward], [reward_name], benchmark.source)
    usable = drop_rows_without_gold(dataset, [reward], name)
    left_out = len(dataset) - len(usable)
    if benchmark.num_problems is not None and benchmark.num_problems < len(usable):
        usable = usable.select(sorted(random.Random(0).sample(range(len(usable)), benchmark.num_problems)))
    content = hashlib.sha256()
    for row in usable:  # all columns: a reward may read any
        content.update(json.dumps(row, sort_keys=True, default=str).encode())
    rows = prepare(
        usable,
        prompt_template=benchmark.template,
        system_prompt=system_prompt,
        conversational=bool(benchmark.conversational),
        name=name,
    )
    return Problems(rows, reward, reward_name, left_out, content.hexdigest()[:16])
