"""
Dynamic sampling: groups whose outcomes are equal give way to groups of further prompts, as in DAPO (arXiv 2503.14476).

Completions are generated and rewarded first, in rounds. TRL then scores, logs and gives advantages once, to the groups
that are trained: it gets their completions in place of generating any, and their rewards in place of asking for them.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from accelerate.utils import gather_object
from transformers.trainer_utils import has_length
from trl import GRPOTrainer

from .contrast import outcomes, stands_out, total_rewards
from .prompt_order import PromptOrder


class DynamicSampling:
    """
    Samples groups of completions with contrast for a trainer. A group has contrast if its verified rewards
    (`math_reward`, `code_reward`) differ: a length penalty alone would teach short wrong answers. Without a verified
    reward among the trainer's functions, the weighted sums of all rewards are asked. Where they are equal, advantages
    would be 0.

    A rollout batch takes the next prompts of the training data, in the order of TRL's sampler. While groups with
    contrast are missing, another round generates completions for the prompts that follow. Its size follows from the
    share of groups with contrast so far, and is at most one rollout batch. The first groups with contrast are trained.
    If some are missing after the last round, the first groups without contrast fill the batch. Surplus groups are
    dropped; they would be off-policy in the next batch.

    So training passes over the data more often. `max_steps` still counts optimiser steps, and an epoch still has as
    many rollout batches as the data has prompts for. Runs resume exactly if checkpoints hold `prompt_order`. If a
    subclass changes `inputs` before `DeltaGRPOTrainer` does, the change is lost: prompts come from the data.

    TRL's metrics and logs are those of the trained groups alone; values that rewards give to `log_metric` are averaged
    over all rounds. Metrics of its own, once per rollout batch, under `dynamic_sampling/`: `rounds` (further ones),
    `prompts` (of all rounds), `reward_before` (mean over the first round), `no_contrast_before` and `no_contrast`
    (share of groups, in the first round and in the trained batch),
    `tokens_per_trained_token` (tokens of completions).

    Args:
        trainer ([`~trl.GRPOTrainer`]): Whose prompts, generation and rewards.
        max_rounds (`int`): How many further rounds a rollout batch may take.

    Attributes:
        prompt_order ([`~prompt_order.PromptOrder`]): Which prompts come next.

    Raises:
        ValueError: At construction, with streamed data, tools or environments; in training, with images.
    """

    def __init__(self, trainer: GRPOTrainer, max_rounds: int):
        self.prompt_order = PromptOrder(trainer)
        self._trainer = trainer
        self._max_rounds = max_rounds
        if not has_length(trainer.train_dataset):
            refuse("a streamed train_dataset")
        if trainer.tools or trainer.environment_factories:
            refuse("tools or environments")

    def sample(self, n_rows: int) -> "Sample":
        """Generate until groups with contrast fill `n_rows` rows of this process, or the rounds are over."""
        trainer = self._trainer
        size = n_rows * trainer.accelerator.num_processes // trainer.num_generations
        sample = Sample(size)
        prompts = size
        with rounds_unlogged(trainer):
            while prompts > 0 and len(sample.rewards_of_rounds) <= self._max_rounds:
                self._add_round(sample, prompts)
                prompts = self._prompts_needed(sample)
        groups = sample.chosen
        numbers = (groups[:, None] * trainer.num_generations + torch.arange(trainer.num_generations)).flatten()
        sample.rewards = torch.cat(sample.rewards_of_rounds)[numbers]
        sample.rows = self._own_rows(sample, numbers.tolist())
        return sample

    def _prompts_needed(self, sample: "Sample") -> int:
        """How many prompts the next round takes, so that all processes have equal parts of its completions."""
        contrast = sample.contrast
        with_contrast = int(contrast.sum())
        needed = sample.size
        if with_contrast:
            needed = min(sample.size, math.ceil((sample.size - with_contrast) * len(contrast) / with_contrast))
        processes = self._trainer.accelerator.num_processes
        even = processes // math.gcd(processes, self._trainer.num_generations)
        return math.ceil(needed / even) * even

    def _add_round(self, sample: "Sample", prompts: int) -> None:
        trainer = self._trainer
        order = [row for row in self.prompt_order.take(prompts) for _ in range(trainer.num_generations)]
        part = own_part(trainer, len(order))
        inputs = [trainer.train_dataset[row] for row in order[part]]
        texts = [row["prompt"] for row in inputs]
        prompt_ids, completion_ids, env_mask, completions, logprobs, fields, images, _ = trainer._generate(texts)
        if images is not None or not {"image", "images"}.isdisjoint(inputs[0]):
            refuse("images")
        for i, row in enumerate(inputs):  # what a `rollout_func` has for the rewards
            row |= {name: values[i] if isinstance(values, list) else values for name, values in fields.items()}
        rewards = trainer._calculate_rewards(inputs, texts, completions, completion_ids)
        output = {
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "env_mask": env_mask,
            "logprobs": logprobs,
        }
        first = sum(map(len, sample.rewards_of_rounds)) + part.start
        for i, row in enumerate(inputs):
            sample.generated[first + i] = Row(row, row_at(i, output), row_at(i, trainer._pending_extra_logs))
        trainer._pending_extra_logs.clear()
        learns = stands_out(trainer, outcomes(trainer, rewards)) & self._counted(completion_ids)
        sample.rewards_of_rounds.append(rewards)
        sample.contrast_of_rounds.append(learns.view(-1, trainer.num_generations).any(dim=1).cpu())
        sample.tokens += trainer._metrics["train"]["completions/mean_length"][-1] * len(order)

    def _counted(self, completion_ids: list[list[int]]) -> torch.Tensor:
        """Which completions of all processes the loss counts."""
        trainer = self._trainer
        ends = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
        counted = [not trainer.mask_truncated_completions or ids[-1] in ends for ids in completion_ids]
        return trainer.accelerator.gather(torch.tensor(counted, device=trainer.accelerator.device))

    def _own_rows(self, sample: "Sample", numbers: list[int]) -> list["Row"]:
        """This process's part of the rows with these numbers. Other processes may have generated some of them."""
        rows_here = [(number, sample.generated[number]) for number in numbers if number in sample.generated]
        if len(sample.rewards_of_rounds) > 1:  # else none has moved
            rows_here = gather_object(rows_here)
        row_of = dict(rows_here)
        return [row_of[number] for number in numbers[own_part(self._trainer, len(numbers))]]


@dataclass
class Row:
    """
    A completion.

    Attributes:
        inputs (`dict`): The row of the dataset, with what a `rollout_func` has added.
        output (`dict`): What a `rollout_func` returns of it.
        logged (`dict`): What rewards gave to `log_extra` for it.
    """

    inputs: dict
    output: dict
    logged: dict


@dataclass
class Sample:
    """
    The completions of all rounds, numbered over all processes, those of a prompt in a row, and the chosen ones.

    Args:
        size (`int`): How many groups are chosen.

    Attributes:
        generated (`dict[int, Row]`): All rows of this process, by their numbers.
        rewards_of_rounds (`list[torch.Tensor]`): Those of each round, (completions of all processes, functions).
        contrast_of_rounds (`list[torch.Tensor]`):
            Which groups of each round, (groups,), have a completion that stands out and that the loss counts.
        tokens (`float`): How many the completions have together.
        rows (`list[Row]`): The chosen rows of this process.
        rewards (`torch.Tensor` of shape `(rows of all processes, functions)`): Those of all chosen rows.
    """

    size: int
    generated: dict[int, Row] = field(default_factory=dict)
    rewards_of_rounds: list[torch.Tensor] = field(default_factory=list)
    contrast_of_rounds: list[torch.Tensor] = field(default_factory=list)
    tokens: float = 0.0
    rows: list[Row] = field(default_factory=list)
    rewards: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    @property
    def contrast(self) -> torch.Tensor:  # (groups of all rounds,)
        return torch.cat(self.contrast_of_rounds)

    @property
    def chosen(self) -> torch.Tensor:  # (size,)
        """The numbers of the groups that are trained: those with contrast first."""
        return (~self.contrast).int().argsort(stable=True)[: self.size]

    def log(self, trainer: GRPOTrainer) -> None:
        """Log its metrics, once TRL has logged those of the trained groups."""
        metrics = trainer._metrics["train"]
        trained_tokens = metrics["completions/mean_length"][-1] * len(self.rewards)
        values = {
            "rounds": len(self.rewards_of_rounds) - 1,
            "prompts": len(self.contrast),
            "reward_before": total_rewards(trainer, self.rewards_of_rounds[0]).nanmean(),
            "no_contrast_before": 1 - self.contrast_of_rounds[0].float().mean(),
            "no_contrast": 1 - self.contrast[self.chosen].float().mean(),
            "tokens_per_trained_token": self.tokens / max(trained_tokens, 1),
        }
        for name, value in values.items():
            metrics[f"dynamic_sampling/{name}"].append(float(value))


def own_part(trainer: GRPOTrainer, n_rows: int) -> slice:
    """This process's part of the rows of all processes."""
    size = n_rows // trainer.accelerator.num_processes
    start = trainer.accelerator.process_index * size
    return slice(start, start + size)


def row_at(i: int, columns: dict[str, list | None]) -> dict[str, Any]:
    """What columns hold of row `i`. Leaves out columns without values, and those that are too short."""
    return {name: values[i] for name, values in columns.items() if values is not None and i < len(values)}


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list]:
    """The columns that hold these rows; `None` where a row has no value."""
    names = {name for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


def refuse(what: str) -> NoReturn:
    """Raise `ValueError` for what dynamic sampling cannot be combined with."""
    raise ValueError(f"dynamic_sampling=True does not work with {what}. Turn it off.")


# --- where TRL has no argument ---


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """The context in which an attribute has another value."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def rounds_unlogged(trainer: GRPOTrainer) -> Iterator[None]:
    """The context of rounds: TRL's metrics and its count of tokens are those of the trained groups alone."""
    tokens = trainer.state.num_input_tokens_seen
    logged = trainer._metrics["train"]
    trainer._metrics["train"] = defaultdict(list)
    try:
        yield
    finally:
        trainer._metrics["train"] = logged
        trainer.state.num_input_tokens_seen = tokens


@contextmanager
def completions_of(trainer: GRPOTrainer, rows: list[Row]) -> Iterator[None]:
    """The context in which TRL takes the completions of these rows, and what rewards logged of them."""
    output = {"logprobs": None, **columns_of([row.output for row in rows])}
    trainer._pending_extra_logs.update(columns_of([row.logged for row in rows]))
    with replaced(trainer, "rollout_func", lambda prompts, trainer: output):
        yield
