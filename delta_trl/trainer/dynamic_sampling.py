"""
Dynamic sampling, for any `GRPOTrainer`: groups whose rewards are equal give way to groups of further prompts, as in
DAPO (arXiv 2503.14476).

Completions are generated and rewarded first, in rounds. TRL then scores, logs and gives advantages once, to the groups
that are trained: it gets their completions from a `rollout_func`, and their rewards again.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from accelerate.utils import gather_object
from transformers.trainer_utils import has_length
from trl import GRPOTrainer
from trl.trainer.utils import nanstd

from .prompt_order import PromptOrder


ROUNDING = 1e-5  # of the largest reward in a group: rewards that differ by less are equal


class DynamicSampling(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that replaces groups of completions whose rewards are equal: their advantages would all be 0.

    A rollout batch takes the next prompts of the training data, in the order of TRL's sampler. While groups with
    contrast are missing, another round generates completions for the prompts that follow. Its size follows from the
    share of groups with contrast so far, and is at most one rollout batch. The first groups with contrast are trained.
    If some are missing after the last round, the first groups without contrast fill the batch. Surplus groups are
    dropped; they would be off-policy in the next batch.

    So training passes over the data more often. `max_steps` still counts optimiser steps, and an epoch still has as
    many rollout batches as the data has prompts for. Runs resume exactly if checkpoints hold `prompt_order`. If a
    subclass changes `inputs` before it calls this class, the change is lost: prompts come from the data.

    TRL's metrics and logs are those of the trained groups alone; values that rewards give to `log_metric` are averaged
    over all rounds. Metrics of its own, once per rollout batch, under `dynamic_sampling/`: `rounds` (further ones),
    `prompts` (of all rounds), `reward_before` (mean over the first round), `no_contrast_before` and `no_contrast`
    (share of groups, in the first round and in the trained batch),
    `tokens_per_trained_token` (tokens of completions).

    Attributes:
        dynamic_sampling (`bool`, defaults to `False`): Whether to do so; `False` is `GRPOTrainer` bit for bit.
        dynamic_sampling_max_rounds (`int`, defaults to `4`): How many further rounds a rollout batch may take.
        prompt_order ([`~prompt_order.PromptOrder`]): Which prompts come next.
        last_rewards (`torch.Tensor` of shape `(completions of all processes, functions)`):
            Rewards from which TRL computed the last advantages. NaN: not scored. Kept without dynamic sampling, too.
        last_reward_call (`tuple`): What TRL gave `_calculate_rewards`: inputs, prompts, completions, their tokens.

    Raises:
        ValueError: At construction, with streamed data, tools or environments; in training, with images.
    """

    dynamic_sampling = False
    dynamic_sampling_max_rounds = 4
    last_rewards = torch.zeros(0)
    last_reward_call: tuple = ()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.prompt_order = PromptOrder(self)
        if self.dynamic_sampling and not has_length(self.train_dataset):
            refuse("a streamed train_dataset")
        if self.dynamic_sampling and (self.tools or self.environment_factories):
            refuse("tools or environments")

    def _generate_and_score_completions(self, inputs):
        if not (self.dynamic_sampling and self.model.training):
            with self._rewards_by(self._calculate_rewards):
                return super()._generate_and_score_completions(inputs)
        # Only the number of inputs matters: the prompts come from `prompt_order`.
        size = len(inputs) * self.accelerator.num_processes // self.num_generations
        sample = self._sample(size)
        contrast = torch.cat(sample.contrast)
        chosen = (~contrast).int().argsort(stable=True)[:size]  # groups with contrast first
        of_group = torch.arange(self.num_generations)
        numbers = (chosen[:, None] * self.num_generations + of_group).flatten()
        rewards = torch.cat(sample.rewards)[numbers]
        rows = self._own_rows(sample, numbers.tolist())
        inputs[:] = [row.inputs for row in rows]  # a subclass may look at them afterwards
        with self._completions_of(rows), self._rewards_by(lambda *call: rewards):
            batch = super()._generate_and_score_completions(inputs)
        self._log_sampling(sample, contrast, chosen)
        return batch

    @contextmanager
    def _rewards_by(self, calculate: Callable[..., torch.Tensor]) -> Iterator[None]:
        """Let TRL get rewards from a function, in place of the last subclass's method, and keep them."""

        def keep(*call):
            self.last_rewards = calculate(*call)
            self.last_reward_call = call
            return self.last_rewards

        self._calculate_rewards = keep
        try:
            yield
        finally:
            del self._calculate_rewards

    # --- rounds ---

    def _sample(self, size: int) -> "Sample":
        """Generate until `size` groups have contrast or the rounds are over."""
        # TRL's metrics and its count of tokens are those of the trained groups alone
        metrics = self._metrics["train"]
        tokens = self.state.num_input_tokens_seen
        self._metrics["train"] = defaultdict(list)
        sample = Sample()
        prompts = size
        while prompts > 0 and len(sample.rewards) <= self.dynamic_sampling_max_rounds:
            self._add_round(sample, prompts)
            prompts = self._prompts_needed(size, torch.cat(sample.contrast))
        self._metrics["train"] = metrics
        self.state.num_input_tokens_seen = tokens
        return sample

    def _prompts_needed(self, size: int, contrast: torch.Tensor) -> int:
        """How many prompts the next round takes, so that all processes have equal parts of its completions."""
        found = int(contrast.sum())
        needed = size
        if found:
            needed = min(size, math.ceil((size - found) * len(contrast) / found))
        processes = self.accelerator.num_processes
        even = processes // math.gcd(processes, self.num_generations)
        return math.ceil(needed / even) * even

    def _add_round(self, sample: "Sample", prompts: int) -> None:
        order = [row for row in self.prompt_order.take(prompts) for _ in range(self.num_generations)]
        own = self._own_part(len(order))
        inputs = [self.train_dataset[row] for row in order[own]]
        texts = [row["prompt"] for row in inputs]
        prompt_ids, completion_ids, env_mask, completions, logprobs, fields, images, _ = self._generate(texts)
        if images is not None or not {"image", "images"}.isdisjoint(inputs[0]):
            refuse("images")
        for i, row in enumerate(inputs):  # what a `rollout_func` has for the rewards
            row |= {name: values[i] if isinstance(values, list) else values for name, values in fields.items()}
        rewards = self._calculate_rewards(inputs, texts, completions, completion_ids)
        output = {
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "env_mask": env_mask,
            "logprobs": logprobs,
        }
        first = sum(map(len, sample.rewards)) + own.start
        for i, row in enumerate(inputs):
            sample.rows[first + i] = Row(row, row_at(i, output), row_at(i, self._pending_extra_logs))
        self._pending_extra_logs.clear()
        learns = (stands_out(self, rewards) & self._counted(completion_ids)).view(-1, self.num_generations)
        sample.rewards.append(rewards)
        sample.contrast.append(learns.any(dim=1).cpu())
        sample.tokens += self._metrics["train"]["completions/mean_length"][-1] * len(order)

    def _counted(self, completion_ids: list[list[int]]) -> torch.Tensor:
        """Which completions of all processes the loss counts."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        own = [not self.mask_truncated_completions or ids[-1] in ends for ids in completion_ids]
        return self.accelerator.gather(torch.tensor(own, device=self.accelerator.device))

    def _own_part(self, rows: int) -> slice:
        """This process's part of the rows of all processes."""
        size = rows // self.accelerator.num_processes
        start = self.accelerator.process_index * size
        return slice(start, start + size)

    def _own_rows(self, sample: "Sample", numbers: list[int]) -> list["Row"]:
        """This process's part of the rows with these numbers. Other processes may have generated some of them."""
        known = [(number, sample.rows[number]) for number in numbers if number in sample.rows]
        if len(sample.rewards) > 1:  # else none has moved
            known = gather_object(known)
        row_of = dict(known)
        return [row_of[number] for number in numbers[self._own_part(len(numbers))]]

    # --- TRL's own pass over the groups that are trained ---

    @contextmanager
    def _completions_of(self, rows: list["Row"]) -> Iterator[None]:
        """Let TRL take the completions of these rows in place of generating any, and what rewards logged of them."""
        output = {"logprobs": None, **columns_of([row.output for row in rows])}
        self._pending_extra_logs.update(columns_of([row.logged for row in rows]))
        rollout_func = self.rollout_func
        self.rollout_func = lambda prompts, trainer: output
        try:
            yield
        finally:
            self.rollout_func = rollout_func

    def _log_sampling(self, sample: "Sample", contrast: torch.Tensor, chosen: torch.Tensor) -> None:
        metrics = self._metrics["train"]
        trained_tokens = metrics["completions/mean_length"][-1] * len(chosen) * self.num_generations
        found = {
            "rounds": len(sample.rewards) - 1,
            "prompts": len(contrast),
            "reward_before": total_rewards(self, sample.rewards[0]).nanmean(),
            "no_contrast_before": 1 - sample.contrast[0].float().mean(),
            "no_contrast": 1 - contrast[chosen].float().mean(),
            "tokens_per_trained_token": sample.tokens / max(trained_tokens, 1),
        }
        for name, value in found.items():
            metrics[f"dynamic_sampling/{name}"].append(float(value))


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
    The completions of all rounds, numbered over all processes, those of a prompt in a row.

    Attributes:
        rows (`dict[int, Row]`): Those of this process.
        rewards (`list[torch.Tensor]`): Those of each round, (completions of all processes, functions).
        contrast (`list[torch.Tensor]`):
            Which groups of each round, (groups,), have a completion that stands out and that the loss counts.
        tokens (`float`): How many the completions have together.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    rewards: list[torch.Tensor] = field(default_factory=list)
    contrast: list[torch.Tensor] = field(default_factory=list)
    tokens: float = 0.0


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


# --- rewards as TRL uses them, and which of them differ within their group ---


def total_rewards(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    Rewards as TRL sums them, with the weights of the functions; NaN where none could score.

    Args:
        trainer (`GRPOTrainer`): Whose weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): NaN where a function could not score.

    Returns:
        `torch.Tensor` of shape `(completions,)`.
    """
    total = (rewards * trainer.reward_weights.to(rewards.device)).nansum(dim=1)
    return total.masked_fill(rewards.isnan().all(dim=1), torch.nan)


def stands_out(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    Which completions have a reward that differs from their group's mean by more than rounding. In float32, `0.1 + 0.6`
    and `0.2 + 0.5` differ, and the mean of three times 0.1 is not 0.1. The advantages of all others are 0 but for that
    rounding. Where TRL normalises each function's rewards before it sums them, so does this function.

    Args:
        trainer (`GRPOTrainer`): Whose groups and weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): Those of whole groups, one after the other. NaN
            where a function could not score: left out, as TRL does.

    Returns:
        `torch.Tensor` of shape `(completions,)`.
    """
    if trainer.multi_objective_aggregation == "normalize_then_sum":
        groups = rewards.view(-1, trainer.num_generations, rewards.size(1))
        distances = beyond_rounding(groups, groups.abs())
        rewards = (distances / (nanstd(groups, dim=1, keepdim=True) + 1e-4)).view_as(rewards)
    terms = rewards * trainer.reward_weights.to(rewards.device)
    size = terms.abs().nansum(dim=1).view(-1, trainer.num_generations)
    total = total_rewards(trainer, rewards).view_as(size)
    distances = beyond_rounding(total, size)
    return (distances.abs() > 0).flatten()  # NaN is not


def beyond_rounding(values: torch.Tensor, size: torch.Tensor) -> torch.Tensor:  # (groups, num_generations, ...)
    """Distances of values from their group's mean, 0 where it is rounding of numbers as large as `size`."""
    distance = values - values.nanmean(dim=1, keepdim=True)
    return distance * (distance.abs() > ROUNDING * size.nan_to_num().amax(dim=1, keepdim=True))
