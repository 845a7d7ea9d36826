"""`delta-trl eval`: sample a model on benchmarks, score the samples, and print a table."""

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset
from tqdm.auto import tqdm
from transformers import PretrainedConfig, PreTrainedTokenizerBase, TrainerState
from trl.trainer.utils import is_async_callable

from ..arguments.errors import mistakes
from ..arguments.parser import parse
from ..data.columns import check_columns, check_golds
from ..rewards.failures import explain_failures
from ..rewards.reasoning import opens_reasoning
from ..scoring.checks import check_prompts
from ..scoring.prompts import end_tokens, prompt_ids
from .arguments import EvalArguments
from .benchmarks import NUMBER, Benchmark, load_problems, resolve
from .generation import Generate, TransformersGenerator, VLLMGenerator
from .model import beyond_context
from .results import finished, show, write_results


logger = logging.getLogger(__name__)


def main(args: list[str]) -> None:
    """Evaluate a model. Raises `UsageError` for a user's mistake."""
    (arguments,) = parse([EvalArguments], args, prog="delta-trl eval")
    with mistakes():
        names = evaluate(arguments)
    show(Path(arguments.output_dir), names)


def evaluate(args: EvalArguments) -> list[str]:
    """
    Sample and score the benchmarks that are not finished, after all checks that need no weights.

    Returns:
        `list[str]`: The names of all benchmarks.

    Raises:
        ValueError, OSError, ImportError: If the model or the data cannot be loaded, or do not fit each other.
        UsageError: If a benchmark is finished with other settings.
    """
    folder = Path(args.output_dir)
    tokenizer = args.tokenizer()
    config = args.config()
    benchmarks = resolve(args.benchmarks)
    todo = []
    for name, benchmark in benchmarks.items():
        rows, reward, settings = checked_problems(name, benchmark, args, tokenizer, config)
        if finished(folder, name, settings):
            print(f"{name}: finished before, not sampled again")
        else:
            todo.append((name, rows, reward, settings))
    if todo:
        folder.mkdir(parents=True, exist_ok=True)
        generate = (VLLMGenerator if args.use_vllm else TransformersGenerator)(args)
    for name, rows, reward, settings in todo:
        print(f"{name}: {len(rows)} problems")
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for sample in samples(rows, reward, args, tokenizer, generate):
                file.write(json.dumps(sample, ensure_ascii=False, default=str) + "\n")
        write_results(folder, name, settings)
    return list(benchmarks)


def checked_problems(
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
    warnings = [
        *check_columns(rows, [reward], [settings["reward"]], name),
        *check_prompts(prompts, tokenizer, config, name, template),
        *check_golds(rows, [reward], name),
    ]
    for warning in warnings:
        logger.warning(warning)
    longest = max(map(len, prompt_ids(tokenizer, prompts, template)))
    too_long = beyond_context(longest + args.max_completion_length, config)
    if too_long and not args.use_vllm:  # vLLM has a limit of its own
        raise ValueError(
            f"{name}: a prompt of {longest:,} tokens with max_completion_length={args.max_completion_length} is "
            f"{too_long}. Lower max_completion_length."
        )
    if hasattr(reward, "reasoning_opened") and opens_reasoning(prompts[0], tokenizer, template):
        # a reward sees no `<think>` that the chat template adds
        settings["reasoning_opened"] = True
        reward = copy.copy(reward)
        reward.reasoning_opened = True
    return rows, explain_failures(reward, settings["reward"]), settings


def samples(
    problems: Dataset, reward: Callable, args: EvalArguments, tokenizer: PreTrainedTokenizerBase, generate: Generate
) -> Iterator[dict]:
    """The samples of a benchmark in order, scored; `batch_size` of them are sampled together."""
    k = args.num_generations
    total = len(problems) * k
    size = args.batch_size or (128 if args.use_vllm else 16)
    are_chats = not isinstance(problems[0]["prompt"], str)
    end = end_tokens(tokenizer, args.generation_config(), are_chats)
    for start in tqdm(range(0, total, size), unit="batch"):
        places = range(start, min(start + size, total))
        columns = problems[[place // k for place in places]]
        numbers = columns.pop(NUMBER)
        prompts = columns.pop("prompt")
        ids = prompt_ids(tokenizer, prompts, args.chat_template_kwargs)
        seeds = [args.seed * total + place for place in places]
        completions = generate(ids, seeds, end)
        texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
        rewards, logged = call_reward(reward, columns, prompts, texts, completions)
        for i, place in enumerate(places):
            yield {
                "problem": numbers[i],
                "sample": place % k,
                "prompt": prompts[i],
                "completion": texts[i],
                "reward": rewards[i],
                "length": len(completions[i]),
                "truncated": completions[i][-1] not in end,
                "logged": {column: values[i] for column, values in logged.items()},
            }


def call_reward(
    reward: Callable, columns: dict[str, list], prompts: list, texts: list[str], ids: list[list[int]]
) -> tuple[list[float | None], dict[str, list]]:
    """Call a reward as the trainer does. Returns the rewards, and the columns that it logs about completions."""
    completions: list = texts
    if not isinstance(prompts[0], str):
        completions = [[{"role": "assistant", "content": text}] for text in texts]
    logged: dict[str, list] = {}
    given = {  # a column cannot replace one of these
        "prompts": prompts,
        "completions": completions,
        "completion_ids": ids,
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: logged.update({column: list(values)}),
        "log_metric": lambda *_: None,
    }
    result = reward(**columns | given)
    return asyncio.run(result) if is_async_callable(reward) else result, logged
