"""`delta-trl eval`: sample, score, summarise."""

import asyncio
import hashlib
import inspect
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from transformers import TrainerState
from transformers.utils import cached_file, find_adapter_config_file
from transformers.utils.hub import extract_commit_hash
from trl.trainer.utils import is_async_callable

from ..arguments.errors import UsageError
from ..arguments.parser import parse
from ..policy.checks import check_prompts
from ..policy.prompts import prompt_ids
from ..rewards.failures import explain_failures
from ..rewards.reasoning import warn_of_hidden_reasoning
from .arguments import EvalArguments
from .benchmarks import NUMBER, Problems, load_problems, resolve
from .generation import Generate, ModelSource, Sampling, TransformersGenerator, VLLMGenerator
from .processes import Do, do_chunks, start_processes
from .store import ChunkKey, Store
from .summary import show, summarise


logger = get_logger(__name__)


def main(args: list[str]) -> None:
    """Run or continue an evaluation. Raises `UsageError` for a user's mistake."""
    arguments: EvalArguments
    (arguments,) = parse([EvalArguments], args, prog="delta-trl eval")
    state = start_processes(arguments.use_cpu)
    try:
        evaluation = Evaluation(arguments, state)
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(str(error)) from error
    evaluation.run()
    if state.is_main_process:
        show(summarise(evaluation.store.folder))
    state.destroy_process_group()


class Evaluation:
    """
    An evaluation that is ready to run: everything that can be checked without sampling has been checked.

    The unit of work is a chunk, `batch_size` completions in the order of the problems. Its samples depend on the
    settings alone: neither an interruption nor the number of processes changes them.
    """

    def __init__(self, args: EvalArguments, state: PartialState):
        assert args.benchmarks  # as `EvalArguments` has checked, like the next two
        assert args.output_dir
        assert args.batch_size
        self.args = args
        self.state = state
        self.batch_size = args.batch_size
        self.source = args.source()
        self.tokenizer = self.source.tokenizer()
        self.config = self.source.config()
        if not state.is_main_process:
            logging.getLogger("delta_trl.data").setLevel(logging.ERROR)  # the first process reports what is left out
        with state.main_process_first():  # the others find its results in the cache
            self.problems = self._load_problems(args.benchmarks)
        self.store = Store(Path(args.output_dir), self._chunks())
        self.settings = self._settings()

    def _load_problems(self, names: list[str]) -> dict[str, Problems]:
        args = self.args
        problems = {}
        self.benchmarks = resolve(names)
        for option in ("reward", "dataset_format", "column_mapping"):
            if getattr(args, option) and all(benchmark.form for benchmark in self.benchmarks.values()):
                raise ValueError(f"`{option}` is for files: a named benchmark has its own.")
        for name, benchmark in list(self.benchmarks.items()):
            file = benchmark.form is None
            changes: dict[str, Any] = {
                "form": args.dataset_format if file else None,
                "reward": args.reward if file else None,
                "template": args.prompt_template,
                "num_problems": args.num_problems,
                "conversational": args.conversational,
            }
            benchmark = replace(benchmark, **{key: value for key, value in changes.items() if value is not None})
            if benchmark.conversational is None:
                benchmark = replace(benchmark, conversational=self.tokenizer.chat_template is not None)
            problems[name] = load_problems(
                name,
                benchmark,
                _mapping(args.column_mapping) if file else None,
                args.system_prompt,
                _mapping(args.reward_kwargs),
            )
            template = _mapping(args.chat_template_kwargs)
            prompts = problems[name].rows["prompt"]
            warnings = check_prompts(prompts, self.tokenizer, self.config, args.max_completion_length, name, template)
            reward = [problems[name].reward]
            for warning in (*warnings, *warn_of_hidden_reasoning(reward, prompts, self.tokenizer, template)):
                logger.warning(warning)
            self.benchmarks[name] = replace(benchmark, reward=problems[name].reward_name)
        rewards = {one.reward_name for one in problems.values()}
        unknown = set(_mapping(args.reward_kwargs)) - rewards
        if unknown:
            raise ValueError(f"reward_kwargs names {sorted(unknown)}, but the rewards here are {sorted(rewards)}.")
        return problems

    def _chunks(self) -> dict[ChunkKey, int]:
        """The number of samples of every chunk, in order."""
        chunks: dict[ChunkKey, int] = {}
        for name, problems in self.problems.items():
            total = len(problems.rows) * self.args.num_generations
            for start in range(0, total, self.batch_size):
                chunks[name, start // self.batch_size] = min(self.batch_size, total - start)
        return chunks

    def _settings(self) -> dict:
        """Everything that determines the samples."""
        args = self.args
        names = ["model_name_or_path", "model_revision", "dtype", "attn_implementation", "use_vllm", "num_generations"]
        names += ["temperature", "top_p", "max_completion_length", "seed", "batch_size", "system_prompt"]
        names += ["vllm_max_model_length"]  # longer completions are cut off
        return {
            **{name: getattr(args, name) for name in names},
            "model_fingerprint": fingerprint(self.source),
            "versions": {name: version(name) for name in ("delta-trl", "torch", "transformers", "math-verify")},
            "chat_template_kwargs": args.chat_template_kwargs,
            "reward_kwargs": args.reward_kwargs,
            "benchmarks": {
                name: {
                    **asdict(self.benchmarks[name]),
                    "num_problems": len(problems.rows),
                    "left_out": problems.left_out,
                    "problems_fingerprint": problems.fingerprint,
                    "reward_fingerprint": code_of(problems.reward),
                }
                for name, problems in self.problems.items()
            },
        }

    def run(self) -> None:
        """
        Sample and score what is missing, and merge the files of all processes.

        Raises:
            UsageError: If the model cannot be loaded, and as [`do_chunks`].
        """
        do_chunks(self.store, self.settings, self.state, self._begin, "Sampling")

    def _begin(self) -> Do:
        try:
            generate = self._generator()
        except (ValueError, OSError, ImportError) as error:
            raise UsageError(str(error)) from error
        return lambda key: self._sample(key, generate)

    def _generator(self) -> Generate:
        args = self.args
        chats = any(not isinstance(problems.rows[0]["prompt"], str) for problems in self.problems.values())
        sampling = Sampling(args.temperature, args.top_p, args.max_completion_length, chats)
        if not args.use_vllm:
            return TransformersGenerator(self.source, sampling, self.state.device)
        return VLLMGenerator(
            self.source,
            sampling,
            self.state.num_processes,
            args.vllm_tensor_parallel_size,
            args.vllm_gpu_memory_utilization,
            args.vllm_max_model_length,
        )

    def _sample(self, key: ChunkKey, generate: Generate) -> list[dict]:
        """The samples of a chunk, scored."""
        name, chunk = key
        problems, k = self.problems[name], self.args.num_generations
        start = chunk * self.batch_size
        places = [divmod(i, k) for i in range(start, start + self.store.chunks[key])]
        problem = {i: problems.rows[i] for i, _ in dict(places).items()}  # once: tests can be large
        rows = [problem[i] for i, _ in places]
        prompts = [row["prompt"] for row in rows]
        seeds = [sample_seed(self.args.seed, name, row[NUMBER], j) for row, (_, j) in zip(rows, places, strict=True)]
        completions = generate(prompt_ids(self.tokenizer, prompts, _mapping(self.args.chat_template_kwargs)), seeds)
        texts = self.tokenizer.batch_decode([one.ids for one in completions], skip_special_tokens=True)
        rewards, extra = call_reward(problems.reward, rows, texts, [one.ids for one in completions])
        samples = []
        for i, (row, (_, j), one) in enumerate(zip(rows, places, completions, strict=True)):
            ours = {
                "benchmark": name,
                "chunk": chunk,
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
            samples.append({**ours, **logged, **columns, **ours})
        return samples


def _mapping(option: dict | str | None) -> dict:
    """An option that is a dict once `EvalArguments` has read it."""
    assert isinstance(option, dict)
    return option


def sample_seed(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """A 63-bit seed for one sample, the same in every run and on every process."""
    digest = hashlib.sha256(f"{seed}/{benchmark}/{problem}/{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def call_reward(
    reward: Callable, rows: list[dict], texts: list[str], ids: list[list[int]]
) -> tuple[list[float | None], dict]:
    """
    Call a reward as the trainer does.

    Returns:
        `tuple[list[float | None], dict]`: The rewards, `None` where there is none, and the columns that the reward
        logs about each completion.
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
    rewards = asyncio.run(result) if is_async_callable(reward) else result
    return rewards, extra


def code_of(*objects: Any) -> str | None:
    """A hash of the modules of a user's functions and objects; `None` for those of this package, or without source."""
    sources = []
    for one in objects:
        module = inspect.getmodule(one if inspect.isroutine(one) else type(one))
        if module is not None and not module.__name__.startswith(("delta_trl.", "builtins")):
            with suppress(OSError, TypeError):
                sources.append(inspect.getsource(module))
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:16] if sources else None


PARTS, PART_BYTES = 1024, 8192  # of a file of weights that are read
MODEL_FILE = re.compile(
    r".*\.(safetensors|bin|jinja|model)|.*config\.json|(tokenizer|vocab|merges|added_tokens|special).*"
)


def fingerprint(source: ModelSource) -> str | None:
    """
    The commit of a hub repository; of a local model, a hash of its files and its tokenizer's: their sizes, and parts
    that are evenly spread over each. A local adapter's also holds that of its base.
    """
    folder = Path(source.name)
    if not folder.is_dir():
        file = find_adapter_config_file(source.name, revision=source.revision)
        return extract_commit_hash(file or cached_file(source.name, "config.json", revision=source.revision), None)
    content = hashlib.sha256()
    if source.is_adapter():
        content.update(f"{fingerprint(ModelSource(source.base()))}\n".encode())
    for path in sorted(path for path in folder.iterdir() if MODEL_FILE.fullmatch(path.name)):
        with path.open("rb") as file:
            size = path.stat().st_size
            content.update(f"{path.name} {size}\n".encode())
            for part in range(PARTS):
                file.seek(size * part // PARTS)
                content.update(file.read(min(PART_BYTES, -(-size // PARTS))))
    return content.hexdigest()[:16]
