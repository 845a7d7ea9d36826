"""`delta-trl eval`: sample a model on benchmarks, score the samples, and print a table."""

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from datasets import Dataset
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase, TrainerState
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
from .benchmarks import NUMBER, load_problems, resolve
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
    folder, template = Path(args.output_dir), args.chat_template_kwargs
    tokenizer, config = args.tokenizer(), args.config()
    assert isinstance(template, dict)  # since `EvalArguments` has read it
    given = {name: value for name, value in asdict(args).items() if name not in NO_SETTINGS}
    problems = {}
    for name, benchmark in resolve(args.benchmarks).items():
        rows, reward, own = load_problems(name, benchmark, args, tokenizer.chat_template is not None)
        prompts = rows["prompt"][:]
        for warning in check_prompts(prompts, tokenizer, config, name, template):
            logger.warning(warning)
        longest = max(map(len, prompt_ids(tokenizer, prompts, template)))
        too_long = beyond_context(longest + args.max_completion_length, config)
        if too_long and not args.use_vllm:  # vLLM has a limit of its own
            raise ValueError(
                f"{name}: a prompt of {longest:,} tokens with max_completion_length={args.max_completion_length} is "
                f"{too_long}. Lower max_completion_length."
            )
        if opens_reasoning(prompts[0], tokenizer, template) and hasattr(reward, "reasoning_opened"):
            reward, own["reasoning_opened"] = copy.copy(reward), True
            reward.reasoning_opened = True
        problems[name] = rows, reward, given | own
    todo = [name for name, (_, _, settings) in problems.items() if not finished(folder, name, settings)]
    if skipped := [name for name in problems if name not in todo]:
        print(f"finished before, not sampled again: {', '.join(skipped)}")
    for name in todo:
        rows, reward, _ = problems[name]
        for warning in check_golds(rows, [reward], name):
            logger.warning(warning)
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
    k, size = args.num_generations, args.batch_size or (128 if args.use_vllm else 16)
    total = len(problems) * k
    for start in tqdm(range(0, total, size), unit="batch"):
        places = range(start, min(start + size, total))
        read = {i: problems[i] for i in {place // k for place in places}}  # once: tests can be large
        rows = [read[place // k] for place in places]
        ids = prompt_ids(tokenizer, [row["prompt"] for row in rows], args.chat_template_kwargs)  # type: ignore[arg-type]
        chats = not isinstance(rows[0]["prompt"], str)
        completions = generate(ids, [args.seed * total + place for place in places], chats)
        texts = tokenizer.batch_decode([one.ids for one in completions], skip_special_tokens=True)
        rewards, logged = call_reward(reward, rows, texts, [one.ids for one in completions])
        for i, (place, row, one) in enumerate(zip(places, rows, completions, strict=True)):
            yield {
                "problem": row[NUMBER],
                "sample": place % k,
                "prompt": row["prompt"],
                "completion": texts[i],
                "reward": rewards[i],
                "length": len(one.ids),
                "truncated": one.truncated,
                "logged": {column: values[i] for column, values in logged.items()},
            }


def call_reward(
    reward: Callable, rows: list[dict], texts: list[str], ids: list[list[int]]
) -> tuple[list[float | None], dict[str, list]]:
    """Call a reward as the trainer does. Returns the rewards, and the columns that it logs about completions."""
    logged: dict[str, list] = {}
    chat = not isinstance(rows[0]["prompt"], str)
    func = explain_failures(reward, getattr(reward, "__name__", type(reward).__name__))
    columns = {column: [row[column] for row in rows] for column in rows[0] if column not in ("prompt", NUMBER)}
    ours = {
        "prompts": [row["prompt"] for row in rows],
        "completions": [[{"role": "assistant", "content": text}] if chat else text for text in texts],
        "completion_ids": ids,
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: logged.update({column: list(values)}),
        "log_metric": lambda *_: None,
    }
    result = func(**columns | ours)  # a column cannot replace one of these
    return asyncio.run(result) if is_async_callable(reward) else result, logged
