"""`delta-trl eval`: sample a model on benchmarks, score the samples, and print a table."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase, TrainerState
from trl.trainer.utils import is_async_callable

from ..arguments.errors import mistakes
from ..arguments.parser import parse
from ..scoring.prompts import end_tokens, prompt_ids
from .arguments import EvalArguments
from .benchmarks import NUMBER, Problems, load_problems, resolve
from .generation import Generate, TransformersGenerator, VLLMGenerator
from .results import finished, show, write_results


NO_ADAPTER_IN_VLLM = "vLLM samples from whole models, see docs/recipes.md on merging an adapter."


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
    todo = []
    benchmarks = read_benchmarks(args)
    for problems in benchmarks:
        if finished(folder, problems.name, problems.settings):
            print(f"{problems.name}: finished before, not sampled again")
        else:
            todo.append(problems)
    if todo:
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = args.tokenizer()
        generate = (VLLMGenerator if args.use_vllm else TransformersGenerator)(args)
    for problems in todo:
        print(f"{problems.name}: {len(problems.rows)} problems")
        with (folder / f"{problems.name}.jsonl").open("w", encoding="utf-8") as file:
            for sample in samples(problems, args, tokenizer, generate):
                file.write(json.dumps(sample, ensure_ascii=False, default=str) + "\n")
        write_results(folder, problems.name, problems.settings)
    return [problems.name for problems in benchmarks]


def read_benchmarks(args: EvalArguments) -> list[Problems]:
    """The benchmarks of an evaluation. Raises `ValueError`, `OSError` or `ImportError` for what does not fit."""
    if args.use_vllm and (adapter := args.adapter()):
        raise ValueError(f"{adapter!r} is an adapter: {NO_ADAPTER_IN_VLLM}")
    reader = replace(args.reader(), template=args.chat_template_kwargs)
    return [load_problems(name, benchmark, args, reader) for name, benchmark in resolve(args.benchmarks).items()]


def samples(
    problems: Problems, args: EvalArguments, tokenizer: PreTrainedTokenizerBase, generate: Generate
) -> Iterator[dict]:
    """The samples of a benchmark in order, scored; `batch_size` of them are sampled together."""
    k = args.num_generations
    rows = problems.rows
    total = len(rows) * k
    size = args.batch_size or (128 if args.use_vllm else 16)
    are_chats = not isinstance(rows[0]["prompt"], str)
    end = end_tokens(tokenizer, args.generation_config(), are_chats, args.chat_template_kwargs)
    for start in tqdm(range(0, total, size), unit="batch"):
        places = range(start, min(start + size, total))
        columns = rows[[place // k for place in places]]
        numbers = columns.pop(NUMBER)
        prompts = columns.pop("prompt")
        ids = prompt_ids(tokenizer, prompts, args.chat_template_kwargs)
        seeds = [args.seed * total + place for place in places]
        completions = generate(ids, seeds, end, problems.settings["max_completion_length"])
        texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
        rewards, logged = call_reward(problems.reward, columns, prompts, texts, completions)
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
    passed = {  # a column cannot replace one of these
        "prompts": prompts,
        "completions": completions,
        "completion_ids": ids,
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: logged.update({column: list(values)}),
        "log_metric": lambda *_: None,
    }
    result = reward(**columns | passed)
    return asyncio.run(result) if is_async_callable(reward) else result, logged
