"""Rollout batches to audit: sampled on a task that knows the right text, or of labelled completions."""

import difflib
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..data.loading import LOCAL_FORMATS
from ..errors import RecipeError
from ..evaluation.benchmarks import BOXED
from ..evaluation.evaluate import call_reward, prompt_ids, sample_seed
from ..evaluation.generation import Generate
from ..rewards import math_reward
from ..tasks import TASKS, Task, first_mistake, make_problems, right_tokens
from .labels import Labelled, UnfitError, to_row
from .loading import LABELLED, LabelledData, by_problem, has_contrast, load_answers, load_labelled, own_file


STUDY = {f"study_{name}": task for name, task in TASKS.items()}


@dataclass
class StudyBenchmark:
    """
    A task that knows the right text: completions are sampled. In losers the first wrong token is marked, in winners
    every token at which a losing sibling's is.

    Args:
        name (`str`): What it is called.
        task (`Task`): The task.
        tokenizer (`PreTrainedTokenizerBase`): Of a model that was made for the task.
        args ([`AuditArguments`]): Numbers and seed.

    Attributes:
        sizes (`list[int]`): How many completions each rollout batch has.
        references (`list[int]`): The same of the batches for the reference gradient.
        left_out (`Counter`): What of the data is not audited: reasons, and how often.
    """

    name: str
    task: Task
    tokenizer: PreTrainedTokenizerBase
    args: Any
    left_out: Counter = field(default_factory=Counter)

    def __post_init__(self):
        args, per_batch = self.args, self.args.prompts_per_batch
        problems, _ = make_problems(self.task)
        count = args.num_prompts + args.reference_batches * per_batch
        if count > len(problems):
            raise RecipeError(
                f"{self.name}: num_prompts={args.num_prompts} and reference_batches={args.reference_batches} of "
                f"{per_batch} prompts are {count:,} prompts, but it has {len(problems):,}."
            )
        tokens = [token for choice in right_tokens(self.task, problems[0]) for token in choice]
        unknown = set(tokens) - set(self.tokenizer.get_vocab())
        if unknown:
            raise RecipeError(
                f"{self.name}: the tokenizer of {args.model_name_or_path} does not know {min(unknown)!r}. "
                "This benchmark is for models that were made for its task, by scripts/make_study_models.py."
            )
        chosen = random.Random(args.seed).sample(problems, count)
        self._scored = [chosen[i : i + per_batch] for i in range(0, args.num_prompts, per_batch)]
        self._scored[-1] = self._scored[-1][: args.num_prompts - (len(self._scored) - 1) * per_batch]
        rest = chosen[args.num_prompts :]
        self._others = [rest[i : i + per_batch] for i in range(0, len(rest), per_batch)]
        self.sizes = [len(batch) * args.num_generations for batch in self._scored]
        self.references = [len(batch) * args.num_generations for batch in self._others]

    @property
    def max_completion_length(self) -> int:
        """Tokens of a sampled completion."""
        return self.task.max_completion_length

    def rows(self, number: int, generate: Generate) -> list[dict]:
        """The completions of a rollout batch; the reference's are numbered after the others."""
        k = self.args.num_generations
        problems = [*self._scored, *self._others][number]
        repeated = [problem for problem in problems for _ in range(k)]
        rows = sample(self.name, repeated, self.task.reward, generate, self.tokenizer, self.args.seed, number)
        for i, row in enumerate(rows):
            row["group"] = i // k
            row["unit"] = list(range(len(row["token_ids"])))
        for group, problem in enumerate(problems):
            self._mark(rows[group * k : (group + 1) * k], right_tokens(self.task, problem))
        return rows

    def _mark(self, siblings: list[dict], right: list[tuple[str, ...]]) -> None:
        mistakes = [first_mistake(right, self.tokenizer.convert_ids_to_tokens(row["token_ids"])) for row in siblings]
        wrong = {m for m, row in zip(mistakes, siblings, strict=True) if row["reward"] == 0 and m is not None}
        for mistake, row in zip(mistakes, siblings, strict=True):
            if row["reward"] == 1 and mistake is None:
                row["marked"] = sorted(m for m in wrong if m < len(row["unit"]))
            elif row["reward"] == 0 and mistake is not None:
                row["marked"] = [mistake]
            else:
                row["marked"] = []
                row["unlabelled"] = "right by another text" if row["reward"] == 1 else "wrong without a wrong token"


@dataclass
class LabelledBenchmark:
    """
    Labelled completions. Siblings are those of the same prompt in the data; where these are all right or all wrong and
    the problem's answer is known, `num_generations` more are sampled from the model and graded by `math_reward`.

    Args:
        name (`str`): What it is called.
        data ([`LabelledData`]): Where it comes from.
        tokenizer (`PreTrainedTokenizerBase`), args ([`AuditArguments`]): As of [`StudyBenchmark`].
        limit (`int`, *optional*): Tokens that the model can read.

    Attributes:
        sizes, references, left_out: As of [`StudyBenchmark`].
    """

    name: str
    data: LabelledData
    tokenizer: PreTrainedTokenizerBase
    args: Any
    limit: int | None
    left_out: Counter = field(default_factory=Counter)

    def __post_init__(self):
        if not self.tokenizer.is_fast:
            raise RecipeError(
                f"{self.name}: the tokenizer of {self.args.model_name_or_path} does not say which characters a token "
                "stands for: labels need a fast tokenizer."
            )
        groups = by_problem(load_labelled(self.name, self.data))
        labelled = {name: group for name, group in groups.items() if any(one.marks for one in group)}
        self.left_out["prompts without a label"] = len(groups) - len(labelled)
        answers = {} if all(map(has_contrast, labelled.values())) else load_answers(self.data)
        kept, without = [], 0
        for problem, group in labelled.items():
            answer = group[0].solution or answers.get(problem)
            if has_contrast(group) or answer is not None:
                kept.append((group, None if has_contrast(group) else answer))
            else:
                without += 1
        self.left_out["prompts without completions of both kinds"] = without
        random.Random(self.args.seed).shuffle(kept)
        batches: list[tuple[Labelled, list[dict], str | None]] = []
        self._batches: list[list[tuple[Labelled, list[dict], str | None]]] = []
        for group, answer in kept:
            rows = self._fitting(group)
            if rows and len(batches) < self.args.num_prompts:
                batches.append((group[0], rows, answer))
        for i in range(0, len(batches), self.args.prompts_per_batch):
            self._batches.append(batches[i : i + self.args.prompts_per_batch])
        if not batches:
            reasons = "; ".join(f"{count} {reason}" for reason, count in self.left_out.items() if count)
            raise RecipeError(f"{self.name}: nothing is left to audit: {reasons or 'it has no completions'}.")
        k = self.args.num_generations
        self.sizes = [
            sum(len(rows) + (k if answer is not None else 0) for _, rows, answer in batch) for batch in self._batches
        ]
        self.references: list[int] = []

    @property
    def max_completion_length(self) -> int:
        """Tokens of a sampled completion, such that it fits behind the longest prompt."""
        rows = [rows[0] for batch in self._batches for _, rows, answer in batch if answer is not None]
        longest = max((len(row["prompt_ids"]) for row in rows), default=0)
        return min(self.args.max_completion_length, (self.limit or math.inf) - longest)

    def _fitting(self, group: list[Labelled]) -> list[dict]:
        """The completions of a prompt in the model's tokens; none if those that fit have no label or contrast left."""
        (ids,) = prompt_ids(self.tokenizer, [self._prompt(group[0])])
        rows = []
        for one in group:
            try:
                rows.append(to_row(one, ids, self.tokenizer, self.limit))
            except UnfitError as reason:
                self.left_out[str(reason)] += 1
        if not any(row["marked"] for row in rows):
            return []
        rewards = {row["reward"] for row in rows if row["reward"] is not None}
        return rows if len(rewards) > 1 or not has_contrast(group) else []

    def _prompt(self, one: Labelled) -> Any:
        if not self.data.template or not isinstance(one.prompt, str):
            return one.prompt
        text = BOXED.replace("{prompt}", one.prompt)
        return [{"role": "user", "content": text}] if self.tokenizer.chat_template else text

    def rows(self, number: int, generate: Generate) -> list[dict]:
        """The completions of a rollout batch."""
        rows: list[dict] = []
        for group, (one, given, answer) in enumerate(self._batches[number]):
            rows += [{**row, "prompt": str(one.prompt), "group": group} for row in given]
            if answer is not None:
                problems = [{"prompt": self._prompt(one), "solution": answer}] * self.args.num_generations
                place = number * self.args.prompts_per_batch + group
                siblings = sample(self.name, problems, math_reward, generate, self.tokenizer, self.args.seed, place)
                for row in siblings:
                    row |= {"group": group, "unit": list(range(len(row["token_ids"]))), "marked": []}
                rows += siblings
        return rows


Benchmark = StudyBenchmark | LabelledBenchmark


def sample(
    name: str,
    problems: list[dict],
    reward: Callable,
    generate: Generate,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    place: int,
) -> list[dict]:
    """A completion of each problem, graded: rows with `prompt`, `prompt_ids`, `token_ids` and `reward`."""
    ids = prompt_ids(tokenizer, [problem["prompt"] for problem in problems])
    completions = generate(ids, [sample_seed(seed, name, place, i) for i in range(len(problems))])
    texts = tokenizer.batch_decode([one.ids for one in completions], skip_special_tokens=True)
    rewards, _ = call_reward(reward, problems, texts, [one.ids for one in completions])
    return [
        {"prompt": str(problem["prompt"]), "prompt_ids": prompt, "token_ids": one.ids, "reward": grade}
        for problem, prompt, one, grade in zip(problems, ids, completions, rewards, strict=True)
    ]


def make_benchmarks(args: Any, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> dict[str, Benchmark]:
    """
    Benchmarks by name: one of ours, `name=source` (ours, from another place), or the path of a file.

    Raises:
        RecipeError: If there is no such benchmark, it is named twice, or nothing of it can be audited.
    """
    made: dict[str, Benchmark] = {}
    for given in args.benchmarks:
        name, _, source = given.partition("=")
        own = Path(given).suffix in LOCAL_FORMATS and not source
        name = Path(given).stem if own else name
        if name in made:
            raise RecipeError(f"The benchmark {name!r} is named twice.")
        if own:
            data = own_file(given)
        elif name in STUDY and not source:
            made[name] = StudyBenchmark(name, STUDY[name], tokenizer, args)
            continue
        elif name in LABELLED:
            data = replace(LABELLED[name], source=source, data_file=None) if source else LABELLED[name]
        else:
            known = [*STUDY, *LABELLED]
            (nearest,) = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise RecipeError(
                f"Unknown benchmark {name!r}: did you mean {nearest!r}? Expected one of {', '.join(known)}, "
                f"`name=source`, or the path of a file of {', '.join(LOCAL_FORMATS)}."
            )
        try:
            made[name] = LabelledBenchmark(name, data, tokenizer, args, limit)
        except (ValueError, OSError) as error:
            raise error if isinstance(error, RecipeError) else RecipeError(str(error)) from error
    return made
