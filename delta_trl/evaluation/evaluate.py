"""`delta-trl eval`: sample a model on benchmarks, score the samples, and print a table."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase, TrainerState
from trl.trainer.utils import is_async_callable

from ..arguments.errors import UsageError
from ..arguments.parser import parse
from ..files import write_json
from ..policy.checks import check_prompts
from ..policy.prompts import prompt_ids
from ..rewards.failures import explain_failures
from ..rewards.reasoning import warn_of_hidden_reasoning
from .arguments import EvalArguments
from .benchmarks import NUMBER, Problems, load_problems, resolve
from .generation import Generate, Sampling, TransformersGenerator, VLLMGenerator
from .results import Samples, finished, numbers, show


logger = logging.getLogger(__name__)

# Options that say where and which. All others, and the settings of the benchmark, decide what is sampled
NO_SETTINGS = ("benchmarks", "output_dir", "use_cpu")
VERSIONS = ("delta-trl", "torch", "transformers", "math-verify")


def main(args: list[str]) -> None:
    """Evaluate a model. Raises `UsageError` for a user's mistake."""
    arguments: EvalArguments
    (arguments,) = parse([EvalArguments], args, prog="delta-trl eval")
    assert arguments.output_dir  # as `EvalArguments` has checked
    try:
        results = evaluate(arguments)
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(str(error)) from error
    show(Path(arguments.output_dir), results)


def evaluate(args: EvalArguments) -> dict[str, dict]:
    """
    Sample and score the benchmarks that are not finished, after all checks that need no weights.

    Returns:
        `dict[str, dict]`: The contents of the results files, by benchmark.

    Raises:
        ValueError, OSError, ImportError: If the model or the data cannot be loaded, or do not fit each other.
        UsageError: If a benchmark is finished with other settings.
    """
    assert args.benchmarks
    assert args.output_dir
    assert isinstance(args.chat_template_kwargs, dict)
    folder, source = Path(args.output_dir), args.source()
    tokenizer, config = source.tokenizer(), source.config()
    problems = {}
    for name, benchmark in resolve(args.benchmarks).items():
        chats = benchmark.format is not None and tokenizer.chat_template is not None
        one = problems[name] = load_problems(name, benchmark, args, chats)
        prompts, template = one.rows["prompt"], args.chat_template_kwargs
        warnings = check_prompts(prompts, tokenizer, config, args.max_completion_length, name, template)
        for warning in (*warnings, *warn_of_hidden_reasoning([one.reward], prompts, tokenizer, template)):
            logger.warning(warning)
    rewards = {one.settings["reward"] for one in problems.values()}
    if unknown := set(args.reward_kwargs or ()) - rewards:
        raise ValueError(f"reward_kwargs names {sorted(unknown)}, but the rewards here are {sorted(rewards)}.")
    given = {name: value for name, value in asdict(args).items() if name not in NO_SETTINGS}
    settings = {name: given | one.settings for name, one in problems.items()}
    todo = [name for name in problems if not finished(folder, name, settings[name])]
    if skipped := [name for name in problems if name not in todo]:
        print(f"finished before, not sampled again: {', '.join(skipped)}")
    if todo:
        chats = any(not isinstance(one.rows[0]["prompt"], str) for one in problems.values())
        sampling = Sampling(args.temperature, args.top_p, args.max_completion_length, chats)
        generate: Generate
        if args.use_vllm:
            assert isinstance(args.vllm_kwargs, dict)
            generate = VLLMGenerator(source, sampling, args.vllm_kwargs)
        else:
            generate = TransformersGenerator(source, sampling, args.device())
        for name in todo:
            _evaluate_benchmark(folder, name, problems[name], settings[name], args, tokenizer, generate)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in problems}


def _evaluate_benchmark(
    folder: Path,
    name: str,
    problems: Problems,
    settings: dict,
    args: EvalArguments,
    tokenizer: PreTrainedTokenizerBase,
    generate: Generate,
) -> None:
    """Write a benchmark's samples, then its results file."""
    samples = folder / f"{name}.jsonl"
    part = samples.with_name(f"{samples.name}.part")
    samples.parent.mkdir(parents=True, exist_ok=True)
    with part.open("w", encoding="utf-8") as file:
        for sample in _sample(name, problems, args, tokenizer, generate):
            file.write(json.dumps(sample, ensure_ascii=False, default=str) + "\n")
    part.replace(samples)
    results = numbers([Samples(folder, name, args.num_generations)]) | {"left_out": problems.left_out}
    if results["unscored"]:
        logger.warning(
            f"{name}: {results['unscored']} of {results['problems'] * args.num_generations} samples could not be "
            "scored and count neither as right nor as wrong."
        )
    versions = {package: version(package) for package in VERSIONS}
    write_json({"settings": settings, "versions": versions, "results": results}, folder / f"{name}.json")


def _sample(
    name: str, problems: Problems, args: EvalArguments, tokenizer: PreTrainedTokenizerBase, generate: Generate
) -> Iterator[dict]:
    """The samples of a benchmark in order, scored; `batch_size` of them are sampled together."""
    assert args.batch_size
    assert isinstance(args.chat_template_kwargs, dict)
    k = args.num_generations
    total = len(problems.rows) * k
    for start in tqdm(range(0, total, args.batch_size), desc=name, unit="batch"):
        places = [divmod(i, k) for i in range(start, min(start + args.batch_size, total))]
        read = {i: problems.rows[i] for i, _ in dict(places).items()}  # once: tests can be large
        rows = [read[i] for i, _ in places]
        ids = prompt_ids(tokenizer, [row["prompt"] for row in rows], args.chat_template_kwargs)
        seeds = [sample_seed(args.seed, name, row[NUMBER], j) for row, (_, j) in zip(rows, places, strict=True)]
        completions = generate(ids, seeds)
        texts = tokenizer.batch_decode([one.ids for one in completions], skip_special_tokens=True)
        rewards, extra = call_reward(problems.reward, rows, texts, [one.ids for one in completions])
        for i, (row, (_, j), one) in enumerate(zip(rows, places, completions, strict=True)):
            ours = {
                "problem": row[NUMBER],
                "sample": j,
                "prompt": row["prompt"],
                "completion": texts[i],
                "reward": rewards[i],
                "length": len(one.ids),
                "truncated": one.truncated,
            }
            columns = {column: row[column] for column in row if column not in (NUMBER, "tests")}  # tests are large
            logged = {column: values[i] for column, values in extra.items()}
            yield ours | logged | columns | ours


def sample_seed(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """A 63-bit seed for one sample, the same in every run."""
    digest = hashlib.sha256(f"{seed}/{benchmark}/{problem}/{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def call_reward(
    reward: Callable, rows: list[dict], texts: list[str], ids: list[list[int]]
) -> tuple[list[float | None], dict[str, list]]:
    """
    Call a reward as the trainer does.

    Returns:
        `tuple[list[float | None], dict[str, list]]`: The rewards, `None` where there is none, and the columns that the
        reward logs about each completion.
    """
    extra: dict[str, list] = {}
    chat = not isinstance(rows[0]["prompt"], str)
    func = explain_failures(reward, getattr(reward, "__name__", type(reward).__name__))
    columns = {column: [row[column] for row in rows] for column in rows[0] if column not in ("prompt", NUMBER)}
    ours = {
        "prompts": [row["prompt"] for row in rows],
        "completions": [[{"role": "assistant", "content": text}] if chat else text for text in texts],
        "completion_ids": ids,
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: extra.update({column: list(values)}),
        "log_metric": lambda *_: None,
    }
    result = func(**columns | ours)  # a column cannot replace one of these
    return asyncio.run(result) if is_async_callable(reward) else result, extra
