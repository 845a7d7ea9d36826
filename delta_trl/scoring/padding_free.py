"""Scoring without padding and without rows that train nothing, for any `GRPOTrainer`."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from accelerate.logging import get_logger
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from .callables import runs_foreign_code
from .layouts import Layouts
from .recorder import Recorder
from .rollout import autocast_dtype, causal_model, has_images, in_order


logger = get_logger(__name__)

ROWS = "rollout_rows"  # entry of a rollout batch: its row numbers, which TRL shuffles with everything else
LOSS = {"compute_loss", "_compute_loss", "_get_per_token_logps_and_entropies"}  # methods that may read all rows


class PaddingFree(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose micro-batches have no padding. Their rows follow each other in one, or are moved to the
    left where a model's layers mix them. Each row is scored as it was sampled, with positions from 0. The loss leaves
    out rows whose advantages are all 0. With rotary positions, losses are TRL's to rounding.

    The random order of rows differs from TRL's: within an optimiser step, rows of one prompt are adjacent. It is fixed
    when the rollout batch is scored. Scoring and loss thus run the same micro-batches.

    Batches with images keep TRL's shapes, and so does a model other than the policy, unless it is of the policy's kind
    ([`stand_in.kind_of`]). Rollout batches of which a subclass has left rows out keep TRL's micro-batches.

    Attributes:
        trim_padding (`bool`, defaults to `True`): Whether to do so; `False` is `GRPOTrainer` bit for bit.
    """

    trim_padding = True
    _row_order = torch.arange(0)  # (B,), of the rollout batch's micro-batches
    _recorder: Recorder | None = None  # of the next scoring call
    _micro_batch: dict | None = None  # of the loss in progress

    @cached_property
    def _layouts(self) -> Layouts:
        return Layouts(self, share_prompts=self._prompts_stay_together())

    # --- a rollout batch, and its order ---

    def _generate_and_score_completions(self, inputs):
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if self.trim_padding:
            self._layouts.before_rollout()
        self._row_order = self._random_order(len(inputs))
        batch = super()._generate_and_score_completions(inputs)
        n_rows = len(batch["completion_mask"])
        batch[ROWS] = torch.arange(n_rows, device=self.accelerator.device)
        return batch

    def _generate(self, prompts):
        generated = super()._generate(prompts)
        if self.trim_padding and self.model.training:
            prompt_ids, completion_ids, *_, images, _ = generated
            self._layouts.confirm(prompt_ids, completion_ids, bool(images))
        return generated

    def _random_order(self, n_rows: int) -> torch.Tensor:
        """Rows are assigned to optimiser steps at random; within a step, rows of one prompt are adjacent."""
        args = self.args
        generator = torch.Generator().manual_seed(args.seed + self.state.global_step)
        order = torch.randperm(n_rows, generator=generator)
        if not self._prompts_stay_together():
            return order
        batches_in_a_step = math.gcd(args.steps_per_generation, args.gradient_accumulation_steps)
        steps = order.split(batches_in_a_step * args.per_device_train_batch_size)
        return torch.cat([rows.sort().values for rows in steps])

    def _prepare_inputs(self, generation_batch):
        buffered = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        is_new = self._buffered_inputs is not buffered
        if not (is_new and self._layouts.current and ROWS in inputs) or has_images(inputs):
            return inputs
        rows = [batch[ROWS] for batch in self._buffered_inputs]
        shuffled = torch.cat(rows)  # by TRL
        if len(shuffled) != len(self._row_order):  # a subclass has left rows out
            return inputs
        place_of_row = shuffled.argsort()
        order = place_of_row[self._row_order]
        whole = in_order(self._buffered_inputs, order)
        n_batches = self.args.steps_per_generation
        self._buffered_inputs = split_tensor_dict(whole, n_batches)
        return self._buffered_inputs[self._step % n_batches]

    # --- scoring ---

    @contextmanager
    def recording(self, recorder: Recorder | None) -> Iterator[None]:
        """The context whose first scoring call `recorder` records."""
        self._recorder = recorder
        try:
            yield
        finally:
            self._recorder = None

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        layout = None if has_images(options) else self._layouts.of_call(model, input_ids)
        recorder = self._recorder
        micro_batch = self._micro_batch  # the loss's first call is the policy's
        self._recorder = None
        self._micro_batch = None
        rows = torch.arange(len(input_ids))
        if layout and micro_batch is not None:
            rows = self._rows_that_train(micro_batch, attention_mask)
        elif layout and len(rows) == len(self._row_order):  # the rollout batch
            rows = self._row_order
        rows = rows.to(input_ids.device)
        tokens = attention_mask[:, -logits_to_keep:]
        if recorder is not None:
            recorder.begin(tokens, rows)
            options["compute_entropy"] = True  # the fused LM head computes them anyway
        stand_in = self._layouts.stand_in(model, layout, recorder)
        log_probs, entropies, aux_loss = super()._get_per_token_logps_and_entropies(
            stand_in, input_ids[rows], attention_mask[rows], logits_to_keep, batch_size, **options
        )
        if stand_in.layout != layout:
            logger.warning("trim_padding: packed rows miss an attention layer. Rows keep their padding from now on.")
            self._layouts.current = None

        # Rows left out get their old log-probabilities, a ratio of 1, and the mean entropy, which thus stays the mean
        others = log_probs.new_zeros(tokens.shape)
        if micro_batch is not None:
            others = micro_batch.get("old_per_token_logps", others)
        log_probs = others.index_copy(0, rows, log_probs)
        if entropies is not None:
            scored = tokens[rows].bool()
            mean = entropies[scored].mean()
            mean = mean.nan_to_num()  # 0 without any token
            entropies = mean.expand(tokens.shape).index_copy(0, rows, entropies)

        if recorder is not None:
            recorder.log_probs = log_probs
            recorder.entropies = entropies
        if micro_batch is not None:
            self._after_scoring(micro_batch, log_probs.detach(), entropies.detach())
        return log_probs, entropies, aux_loss

    def _prompts_stay_together(self) -> bool:
        """Whether rows of a prompt follow each other. Not where a loss depends on which rows are in a micro-batch."""
        return self.loss_type != "bnpo" and not self._loss_reads_entropies_or_routers()

    def _loss_reads_entropies_or_routers(self) -> bool:
        return bool(self.top_entropy_quantile < 1 or self._entropy_bonus_enabled or self.aux_loss_enabled)

    # --- rows that train nothing ---

    def _compute_loss(self, model, inputs):
        self._micro_batch = inputs = dict(inputs)
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._micro_batch = None

    def _after_scoring(self, micro_batch: dict, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        """For subclasses: called after the loss has scored its micro-batch and before it reads the advantages."""

    def _loss_reads_all_rows(self) -> bool:
        """Whether the loss depends on rows without advantage, or may do so in a subclass."""
        if self.beta or self._layouts.random or runs_foreign_code(self, LOSS):
            return True
        return self._loss_reads_entropies_or_routers()

    def _rows_that_train(self, micro_batch: dict, attention_mask: torch.Tensor) -> torch.Tensor:
        """
        The rows (n,) that the loss runs: those with an advantage that is not 0. Without any, the shortest row: every
        process makes a forward and a backward pass.

        In 16 bit, a row's log-probabilities change with the number of tokens beside it. Where they are compared with
        old ones, a micro-batch thus runs as it was scored, or no row of it trains. Ratios stay exactly 1.
        """
        advantages = micro_batch["advantages"]  # (b,) or (b, T)
        every_row = torch.arange(len(advantages))
        if self._loss_reads_all_rows():
            return every_row
        trains = advantages.reshape(len(advantages), -1).any(dim=1)
        if not trains.any():
            lengths = attention_mask.sum(dim=1)
            return lengths.argmin()[None]
        dtype = autocast_dtype(self) or causal_model(self).dtype
        if dtype != torch.float32 and "old_per_token_logps" in micro_batch:
            return every_row
        return trains.nonzero()[:, 0]
