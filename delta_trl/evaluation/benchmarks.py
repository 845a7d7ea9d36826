"""Named benchmarks with the paper's settings, and loading them for `delta-trl eval`."""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from datasets import Dataset

from ..arguments.lookup import nearest
from ..data.columns import check_columns
from ..data.loading import LOCAL_FORMATS, drop_rows_without_gold, load, prepare
from ..rewards import get_reward
from .arguments import EvalArguments


BOXED = "{prompt}\nPlease reason step by step, and put your final answer within \\boxed{}."  # as in the recipes
PROGRAM = "{prompt}\n\nThink step by step, then put the whole program, imports included, in one ```python block."
LETTER = "{prompt}\n\nPlease reason step by step, and put the letter of your choice within \\boxed{}."
TEMPLATES = {"math_reward": BOXED, "code_reward": PROGRAM, "multiple_choice_reward": LETTER}
NUMBER = "_problem_number"  # a column that no file has


@dataclass(frozen=True)
class Benchmark:
    """
    Args:
        source (`str`): Hub id, or path of a local file.
        config (`str`, *optional*), split (`str`, *optional*, defaults to `"train"`): Of a hub dataset.
        format (`str`, *optional*): Key of `FORMATS`; `None` for a file with `prompt` and `solution` or `tests`.
        reward (`str`, *optional*): Its reward; `None`: `code_reward` where there are `tests`, else `math_reward`.
        num_problems (`int`, *optional*): Size of a fixed random sample of the problems to take.
    """

    source: str
    config: str | None = None
    split: str = "train"
    format: str | None = None
    reward: str | None = None
    num_problems: int | None = None


BENCHMARKS = {
    "aime_2024": Benchmark("HuggingFaceH4/aime_2024", None, "train", "aime", "math_reward"),
    "aime_2025": Benchmark("MathArena/aime_2025", None, "train", "matharena", "math_reward"),
    "aime_2026": Benchmark("MathArena/aime_2026", None, "train", "matharena", "math_reward"),
    "hmmt_feb_2025": Benchmark("MathArena/hmmt_feb_2025", None, "train", "matharena", "math_reward"),
    "hmmt_nov_2025": Benchmark("MathArena/hmmt_nov_2025", None, "train", "matharena", "math_reward"),
    "hmmt_feb_2026": Benchmark("MathArena/hmmt_feb_2026", None, "train", "matharena", "math_reward"),
    "brumo_2025": Benchmark("MathArena/brumo_2025", None, "train", "matharena", "math_reward"),
    "math_500": Benchmark("HuggingFaceH4/MATH-500", None, "test", "math_500", "math_reward"),
    "gsm8k": Benchmark("openai/gsm8k", "main", "test", "gsm8k", "math_reward"),
    "humanevalplus": Benchmark("evalplus/humanevalplus", None, "test", "humanevalplus", "code_reward"),
    "mbppplus": Benchmark("evalplus/mbppplus", None, "test", "mbppplus", "code_reward"),
    "livecodebench": Benchmark("lighteval/code_generation_lite", "v6", "test", "livecodebench", "code_reward"),
    "gpqa_diamond": Benchmark("Idavidrein/gpqa", "gpqa_diamond", "train", "gpqa", "multiple_choice_reward"),
    "mmlu_pro": Benchmark("TIGER-Lab/MMLU-Pro", None, "test", "mmlu_pro", "multiple_choice_reward", 600),
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
        ValueError: If a name is unknown or is given twice.
    """
    chosen: dict[str, Benchmark] = {}
    for given in (part for name in names for part in GROUPS.get(name, [name])):
        label, equals, source = given.partition("=")
        if not equals and Path(given).suffix in LOCAL_FORMATS:
            label, source, benchmark = Path(given).stem, given, Benchmark(given)
        elif label in BENCHMARKS:
            benchmark = BENCHMARKS[label]
        elif Path(source).suffix in LOCAL_FORMATS:
            benchmark = Benchmark(source)
        else:
            known = [*BENCHMARKS, *GROUPS]
            raise ValueError(
                f"Unknown benchmark {label!r}{nearest(label, known)}. Expected one of {', '.join(known)}, "
                f"`name=source`, or the path of a file of {', '.join(LOCAL_FORMATS)}, also as `label=path`."
            )
        if label in chosen:
            raise ValueError(f"The benchmark {label!r} is named twice. Files can be named: `label=path`.")
        chosen[label] = replace(benchmark, source=source or benchmark.source)
    return chosen


@dataclass(frozen=True)
class Problems:
    """
    A loaded benchmark.

    Args:
        rows (`Dataset`):
            With the final `prompt`, its gold, and in the column `NUMBER` the problem's place in the source, from 1.
        reward (`Callable`): Scores completions.
        left_out (`int`): Problems without a gold that can be used.
        settings (`dict`):
            Where the problems come from and how they are put and scored; `problems` is a hash of problems and golds,
            without the text that the template puts around them.
    """

    rows: Dataset
    reward: Callable
    left_out: int
    settings: dict


def load_problems(name: str, benchmark: Benchmark, args: EvalArguments, chats: bool) -> Problems:
    """
    Load a benchmark the way that training loads its data.

    Args:
        name (`str`): What it is called in messages.
        benchmark (`Benchmark`), args ([`EvalArguments`]): What it is, and the options that replace parts of it.
        chats (`bool`): Whether to turn prompts into chats, unless `args` say.

    Raises:
        ValueError, OSError: See the functions of `delta_trl.data.loading`.
    """
    assert isinstance(args.reward_kwargs, dict)  # since `EvalArguments` has read it
    form = args.dataset_format or benchmark.format
    dataset = load(benchmark.source, benchmark.config, benchmark.split, form)
    dataset = prepare(dataset, name=benchmark.source)  # checks prompts
    dataset = dataset.add_column(NUMBER, list(range(1, len(dataset) + 1)))
    default = "code_reward" if "tests" in dataset.column_names else "math_reward"
    reward_name = args.reward or benchmark.reward or default
    reward = get_reward(reward_name, **(args.reward_kwargs.get(reward_name) or {}))
    check_columns(dataset, [reward], [reward_name], benchmark.source)
    usable = drop_rows_without_gold(dataset, [reward], name)
    size = args.num_problems or benchmark.num_problems
    if size is not None and size < len(usable):
        usable = usable.select(sorted(random.Random(0).sample(range(len(usable)), size)))
    content = hashlib.sha256()
    for row in usable:  # all columns: a reward may read any
        content.update(json.dumps(row, sort_keys=True, default=str).encode())
    template = args.prompt_template or TEMPLATES.get(benchmark.reward or "")
    if args.conversational is not None:
        chats = args.conversational
    rows = prepare(usable, prompt_template=template, conversational=chats, name=name)
    settings = {
        "source": benchmark.source,
        "dataset_format": form,
        "reward": reward_name,
        "prompt_template": template,
        "conversational": chats,
        "num_problems": len(usable),
        "problems": content.hexdigest()[:16],
    }
    return Problems(rows, reward, len(dataset) - len(usable), settings)
