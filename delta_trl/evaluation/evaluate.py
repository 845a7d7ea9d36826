"""`delta-trl eval`: sample a model on benchmarks, score the samples, and print a table."""

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset
from tqdm.auto import tqdm
from transformers import PretrainedConfig, PreTrainedTokenizerBase, TrainerState
from trl.trainer.utils import is_async_callable

from ..arguments.errors import mistakes
from ..arguments.parser import parse
from ..data.columns import check_golds
from ..files import write_json
from ..rewards.failures import explain_failures
from ..rewards.reasoning import OPENED
from ..scoring.checks import check_prompts
from ..scoring.prompts import prompt_ids
from .arguments import EvalArguments
from .benchmarks import NUMBER, Benchmark, load_problems, resolve
from .generation import Generate, TransformersGenerator, VLLMGenerator
from .model import beyond_context
from .results import finished, numbers, read_results, read_samples, show, versions


logger = logging.getLogger(__name__)

# Options that say where and which. All others, and the settings of the benchmark, decide what is sampled
NO_SETTINGS = ("benchmarks", "output_dir", "use_cpu")


def main(args: list[str]) -> None:
    """Evaluate a model. Raises `UsageError` for a user's mistake."""
    arguments: EvalArguments
    (arguments,) = parse([EvalArguments], args, prog="delta-trl eval")
    with mistakes():
        results = evaluate(arguments)
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
    folder = Path(args.output_dir)
    tokenizer, config = args.tokenizer(), args.config()
    problems = {
        name: _checked_problems(name, benchmark, args, tokenizer, config)
        for name, benchmark in resolve(args.benchmarks).items()
    }
    todo = []
    for name, (_, _, settings) in problems.items():
        if finished(folder, name, settings):
            print(f"{name}: finished before, not sampled again")
        else:
            todo.append(name)
    if todo:
        folder.mkdir(parents=True, exist_ok=True)
        generate = (VLLMGenerator if args.use_vllm else TransformersGenerator)(args)
    for name in todo:
        rows, reward, settings = problems[name]
        print(f"{name}: {len(rows)} problems")
        part = folder / f"{name}.jsonl.part"
        with part.open("w", encoding="utf-8") as file:
            for sample in _sample(rows, reward, args, tokenizer, generate):
                file.write(json.dumps(sample, ensure_ascii=False, default=str) + "\n")
        part.replace(folder / f"{name}.jsonl")
        results = numbers(read_samples(folder, name, settings))
        content = {"settings": settings, "versions": versions(), "results": results}
        write_json(content, folder / f"{name}.json")
    return {name: read_results(folder / f"{name}.json") for name in problems}


def _checked_problems(
    name: str,
    benchmark: Benchmark,
    args: EvalArguments,
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
) -> tuple[Dataset, Callable, dict]:
    """The rows, the reward and the settings of a benchmark. Raises `ValueError` if they do not fit the model."""
    template: Any = args.chat_template_kwargs  # a dict since `EvalArguments` has read it
    rows, reward, settings = load_problems(name, benchmark, args, tokenizer.chat_template is not None)
    prompts = rows["prompt"][:]
    warnings = check_prompts(prompts, tokenizer, config, name, template) + check_golds(rows, [reward], name)
    for warning in warnings:
        logger.warning(warning)
    longest = max(map(len, prompt_ids(tokenizer, prompts, template)))
    too_long = beyond_context(longest + args.max_completion_length, config)
    if too_long and not args.use_vllm:  # vLLM has a limit of its own
        raise ValueError(
            f"{name}: a prompt of {longest:,} tokens with max_completion_length={args.max_completion_length} is "
            f"{too_long}. Lower max_completion_length."
        )
    given = {option: value for option, value in asdict(args).items() if option not in NO_SETTINGS}
    if opens_reasoning(prompts[0], tokenizer, template) and hasattr(reward, "reasoning_opened"):
        settings["reasoning_opened"] = True
        reward = copy.copy(reward)
        reward.reasoning_opened = True
    return rows, reward, given | settings


def opens_reasoning(prompt: str | list[dict], tokenizer: PreTrainedTokenizerBase, template: dict) -> bool:
    """
    Whether the chat template ends a prompt with `<think>`. Rewards do not see what the template adds, and have to be
    told. In a prompt that is a text, they see the tag themselves.
    """
    if isinstance(prompt, str):
        return False
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **template)
    return OPENED.search(text) is not None


def _sample(
    problems: Dataset, reward: Callable, args: EvalArguments, tokenizer: PreTrainedTokenizerBase, generate: Generate
) -> Iterator[dict]:
    """The samples of a benchmark in order, scored; `batch_size` of them are sampled together."""
    k = args.num_generations
    total = len(problems) * k
    size = args.batch_size or (128 if args.use_vllm else 16)
    for start in tqdm(range(0, total, size), unit="batch"):
        places = range(start, min(start + size, total))
        rows = [problems[place // k] for place in places]
        prompts = [row["prompt"] for row in rows]
        ids = prompt_ids(tokenizer, prompts, args.chat_template_kwargs)  # type: ignore[arg-type]
        seeds = [args.seed * total + place for place in places]
        completions = generate(ids, seeds, not isinstance(prompts[0], str))
        generated = [one.ids for one in completions]
        texts = tokenizer.batch_decode(generated, skip_special_tokens=True)
        rewards, logged = call_reward(reward, rows, texts, generated)
        for i, place in enumerate(places):
            yield {
                "problem": rows[i][NUMBER],
                "sample": place % k,
                "prompt": prompts[i],
                "completion": texts[i],
                "reward": rewards[i],
                "length": len(generated[i]),
                "truncated": completions[i].truncated,
                "logged": {column: values[i] for column, values in logged.items()},
            }


def call_reward(
    reward: Callable, rows: list[dict], texts: list[str], ids: list[list[int]]
) -> tuple[list[float | None], dict[str, list]]:
    """Call a reward as the trainer does. Returns the rewards, and the columns that it logs about completions."""
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    prompts = columns.pop("prompt")
    columns.pop(NUMBER)
    completions: list = texts
    if not isinstance(prompts[0], str):
        completions = [[{"role": "assistant", "content": text}] for text in texts]
    logged: dict[str, list] = {}
    columns |= {  # a column cannot replace one of these
        "prompts": prompts,
        "completions": completions,
        "completion_ids": ids,
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: logged.update({column: list(values)}),
        "log_metric": lambda *_: None,
    }
    result = explain_failures(reward, getattr(reward, "__name__", type(reward).__name__))(**columns)
    return asyncio.run(result) if is_async_callable(reward) else result, logged
