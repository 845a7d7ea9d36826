"""Named benchmarks with the paper's settings, and loading them for `delta-trl eval`."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..arguments.lookup import nearest
from ..data.loading import LOCAL_FORMATS, load, local_format, prepare
from ..data.preflight import preflight
from ..rewards import get_reward
from ..rewards.failures import explain_failures
from ..scoring.checks import Reader
from ..scoring.prompts import prompt_ids
from .arguments import EvalArguments


logger = logging.getLogger(__name__)

BOXED = "{prompt}\nPlease reason step by step, and put your final answer within \\boxed{}."  # as in the recipes
PROGRAM = "{prompt}\n\nThink step by step, then put the whole program, imports included, in one ```python block."
LETTER = "{prompt}\n\nPlease reason step by step, and put the letter of your choice within \\boxed{}."
LONGEST = 30000  # tokens of a completion, the paper's
NUMBER = "_problem_number"  # a column that no file has
# Options that say where and which. All others, and the settings of the benchmark, decide what is sampled
NO_SETTINGS = ("benchmarks", "output_dir", "use_cpu")


@dataclass(frozen=True)
class Benchmark:
    """Its data, its prompts, and the size of the fixed random sample of its problems that is taken, if not all are."""

    source: str  # hub id, or path of a local file
    format: str | None = None  # key of `FORMATS`; None for a file with `prompt` and `solution` or `tests`
    template: str | None = None  # None for a file, whose prompts stay as they are
    split: str = "test"
    config: str | None = None
    num_problems: int | None = None


MATHARENA = ("aime_2025", "aime_2026", "hmmt_feb_2025", "hmmt_nov_2025", "hmmt_feb_2026", "brumo_2025")
BENCHMARKS = {
    "aime_2024": Benchmark("HuggingFaceH4/aime_2024", "matharena", BOXED, "train"),
    **{name: Benchmark(f"MathArena/{name}", "matharena", BOXED, "train") for name in MATHARENA},
    "math_500": Benchmark("HuggingFaceH4/MATH-500", "matharena", BOXED),
    "gsm8k": Benchmark("openai/gsm8k", "gsm8k", BOXED, config="main"),
    "humanevalplus": Benchmark("evalplus/humanevalplus", "humanevalplus", PROGRAM),
    "mbppplus": Benchmark("evalplus/mbppplus", "mbppplus", PROGRAM),
    "livecodebench": Benchmark("lighteval/code_generation_lite", "livecodebench", PROGRAM, config="v6"),
    "gpqa_diamond": Benchmark("Idavidrein/gpqa", "gpqa", LETTER, "train", config="gpqa_diamond"),
    "mmlu_pro": Benchmark("TIGER-Lab/MMLU-Pro", "mmlu_pro", LETTER, num_problems=600),
}
GROUPS = {
    "paper_math": list(BENCHMARKS)[:7],
    "paper_code": ["humanevalplus", "mbppplus", "livecodebench"],
    "paper_out_of_domain": ["gpqa_diamond", "mmlu_pro"],
}


def find(
    word: str, known: dict[str, Any], of_file: Callable[[str], Any], groups: Iterable[str] = ()
) -> tuple[str, Any]:
    """
    A benchmark's name and data. `word` is a known name, `name=source` for its data from elsewhere, or the path of a
    local file, of which `of_file` makes a benchmark. Raises `ValueError` for another name.
    """
    label, _, source = word.partition("=")
    if label in known:
        return label, replace(known[label], source=source or known[label].source)
    if local_format(word):
        return Path(word).stem, of_file(word)
    names = [*known, *groups]
    raise ValueError(
        f"Unknown benchmark {label!r}{nearest(label, names)}. Expected one of {', '.join(names)}, `name=source`, or "
        f"the path of a file of {', '.join(LOCAL_FORMATS)}."
    )


def resolve(names: list[str]) -> dict[str, Benchmark]:
    """
    Benchmarks by name. A name is one of `BENCHMARKS`, one of `GROUPS`, the path of a local file, or `name=source`: the
    benchmark `name` with data from another hub id or a local file. Raises `ValueError` for others, and names given
    twice.
    """
    chosen: dict[str, Benchmark] = {}
    for name in names:
        for word in GROUPS.get(name, [name]):
            label, benchmark = find(word, BENCHMARKS, Benchmark, GROUPS)
            if label in chosen:
                raise ValueError(f"The benchmark {label!r} is named twice.")
            chosen[label] = benchmark
    return chosen


@dataclass(frozen=True)
class Problems:
    """
    A benchmark that is ready to be sampled.

    Attributes:
        name (`str`): Its name.
        rows (`Dataset`): With the final `prompt`, its gold, and in the column `NUMBER` the problem's place in the
            source, from 1.
        reward (`Callable`): The reward.
        settings (`dict`): What decides its results. `problems` is a hash of problems and golds, without the text that
            the template puts around them.
    """

    name: str
    rows: Dataset
    reward: Callable
    settings: dict[str, Any]


def load_problems(name: str, benchmark: Benchmark, args: EvalArguments, reader: Reader) -> Problems:
    """
    Load a benchmark the way that training loads its data, with all checks that need no weights.

    Args:
        name (`str`): What it is called in messages.
        benchmark (`Benchmark`), args ([`EvalArguments`]): What it is, and the options that replace parts of it.
        reader ([`~scoring.checks.Reader`]): The model. Prompts of named benchmarks become chats if it has a template,
            unless `args` say.

    Raises:
        ValueError: If the data cannot be loaded, or do not fit the reward or the model.
    """
    is_file = benchmark.template is None  # whose prompts stay as they are
    dataset_format = args.dataset_format if is_file else benchmark.format
    loaded = load(benchmark.source, benchmark.config, benchmark.split, dataset_format)
    column_mapping = args.column_mapping if is_file else None
    template = args.prompt_template or benchmark.template
    conversational = args.conversational
    if conversational is None:
        conversational = not is_file and reader.tokenizer.chat_template is not None
    dataset = prepare(loaded, column_mapping, template, args.system_prompt, conversational, benchmark.source)
    reward_name = args.reward or ("code_reward" if "tests" in dataset.column_names else "math_reward")
    reward = get_reward(reward_name)
    numbered = dataset.add_column(NUMBER, list(range(1, len(dataset) + 1)))
    if args.max_completion_length:
        reader = replace(reader, max_completion_length=args.max_completion_length)
    checked = preflight(
        numbered,
        name,
        [reward],
        [reward_name],
        reader,
        refuses=True,
        num_rows=args.num_problems or benchmark.num_problems,
    )
    for warning in checked.warnings:
        logger.warning(warning)
    content = hashlib.sha256()
    for number in checked.dataset[NUMBER]:
        row = loaded[number - 1]  # all columns: a reward may read any
        content.update(json.dumps(row, sort_keys=True, default=str).encode())
    settings = asdict(args)
    for option in NO_SETTINGS:
        del settings[option]
    settings |= {
        "source": benchmark.source,
        "dataset_format": dataset_format,
        "reward": reward_name,
        "prompt_template": template,
        "conversational": conversational,
        "max_completion_length": args.max_completion_length or longest_completion(checked.dataset["prompt"], reader),
        "num_problems": len(checked.dataset),
        "left_out": checked.left_out,
        "problems": content.hexdigest()[:16],
    }
    [told] = checked.rewards
    if told is not reward:
        settings["reasoning_opened"] = True
    return Problems(name, checked.dataset, explain_failures(told, reward_name), settings)


def longest_completion(prompts: Sequence, reader: Reader) -> int:
    """The paper's `LONGEST` tokens, or fewer if the model's context has no room for them after the longest prompt."""
    longest = max(map(len, prompt_ids(reader.tokenizer, list(prompts), reader.template)))
    room = reader.context - longest
    if room < 1:
        raise ValueError(
            f"A prompt of {longest:,} tokens leaves no room for a completion in the model's {reader.context:,} tokens."
        )
    return int(min(LONGEST, room))
