"""Micro-batches without padding, for any `GRPOTrainer`; `policy/padding.py` has the parts."""

import math
from contextlib import nullcontext
from functools import partial

import torch
from accelerate.logging import get_logger
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from ..policy.padding import Piece, WithoutPadding, in_order, widest_batch
from .scoring import autocast_dtype, causal_model, has_images, only_labels_in_lm_head, rollout_scoring


logger = get_logger(__name__)

ROWS = "rollout_rows"  # entry of a rollout batch: its row numbers, which TRL shuffles with everything else


class TrimmedPadding(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose micro-batches have no padding: their rows follow each other in one, or are moved to the
    left where a model's layers mix them. On a CPU, the LM head leaves out prompts and padding, as TRL does on a GPU.
    Losses are the same up to rounding, but rows come in another random order, in an optimiser step those of a prompt
    together. It is fixed when the rollout batch is scored: scoring and loss thus run the same micro-batches, 16-bit
    numbers round alike in both, and ratios are 1 at the rollout. Batches with images stay as they are, and rollout
    batches whose rows a subclass has left out or replaced keep TRL's micro-batches. Whether padding matters is asked
    of the policy: a reference model is taken to be of its kind.

    Attributes:
        trim_padding (`bool`, defaults to `True`): Whether to do so; `False` is `GRPOTrainer` bit for bit.
    """

    trim_padding = True
    _widest: int | None = None  # columns of a batch that runs without padding; `None` before the first rollout
    _packed = False  # whether rows follow each other in one
    _row_order: torch.Tensor | None = None  # of the rollout batch's micro-batches
    _running: WithoutPadding | None = None  # the scoring call in progress

    def piece_in_progress(self) -> Piece | None:
        """The forward pass in progress; `None` if it has TRL's rows and padding."""
        return self._running and self._running.piece

    def _generate_and_score_completions(self, inputs):
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if self._widest is None:  # under ZeRO-3 and FSDP, all processes run the model at the same time
            # columns are the same on all processes: in data with images, some rows have none
            self._widest = 0 if {"image", "images"} & inputs[0].keys() else self._probe()
        generator = torch.Generator().manual_seed(self.args.seed + self.state.global_step)
        self._row_order = torch.randperm(len(inputs), generator=generator)
        if self._shares_prompts():
            # chance says which rows are in an optimiser step; there, those of a prompt follow each other
            in_one_step = math.gcd(self.args.steps_per_generation, self.args.gradient_accumulation_steps)
            size = max(1, len(inputs) // self.args.steps_per_generation * in_one_step)
            self._row_order = torch.cat([rows.sort().values for rows in self._row_order.split(size)])
        batch = super()._generate_and_score_completions(inputs)
        batch[ROWS] = torch.arange(len(batch["completion_mask"]), device=self.accelerator.device)
        return batch

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        score = super()._get_per_token_logps_and_entropies
        with only_labels_in_lm_head(self.accelerator.device) if self.trim_padding else nullcontext():
            if not self._runs_without_padding(model, input_ids) or has_images(options):
                return score(model, input_ids, attention_mask, logits_to_keep, batch_size, **options)
            order = torch.arange(len(input_ids))
            if batch_size is not None and len(order) == len(self._row_order):  # the rollout batch
                # the largest micro-batch comes first: it shows how much memory they take
                lengths = attention_mask.sum(dim=1).cpu()
                together = self._row_order.split(batch_size)
                order = torch.cat(sorted(together, key=lambda rows: -int(lengths[rows].sum())))
            self._running = WithoutPadding(model, self._packed, self._shares_prompts(), order.tolist())
            try:
                *scored, aux_loss = score(
                    self._running, input_ids[order], attention_mask[order], logits_to_keep, batch_size, **options
                )
            finally:
                self._running = None
            back = order.argsort()
            return *(None if values is None else values[back] for values in scored), aux_loss

    def _prepare_inputs(self, generation_batch):
        buffered = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        is_new = self._buffered_inputs is not buffered
        if not (is_new and self._widest and ROWS in inputs) or has_images(inputs):
            return inputs
        rows = torch.cat([batch[ROWS] for batch in self._buffered_inputs])  # after TRL's shuffling
        if sorted(rows.tolist()) != list(range(len(self._row_order))):  # a subclass has left rows out
            return inputs
        whole = in_order(self._buffered_inputs, rows.argsort()[self._row_order])
        self._buffered_inputs = split_tensor_dict(whole, self.args.steps_per_generation)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _runs_without_padding(self, model, input_ids: torch.Tensor) -> bool:
        if not (self.model.training and input_ids.size(1) <= (self._widest or 0)):
            return False
        return type(causal_model(self, model).config) is type(causal_model(self).config)

    def _shares_prompts(self) -> bool:
        """Whether a prompt runs once for its rows. Not where a loss depends on which rows are in a micro-batch."""
        entropies = self.top_entropy_quantile < 1 or self.entropy_coef or self.use_adaptive_entropy
        return self._packed and not (self.loss_type == "bnpo" or entropies or self.aux_loss_enabled)

    def _probe(self) -> int:
        """How many columns a batch may have that runs without padding; 0 if none may. Tries to pack its rows first."""
        args, causal, reason = self.args, causal_model(self), "computes something else without padding"
        if not self.trim_padding:
            return 0
        if args.neftune_noise_alpha is not None or args.torch_compile or args.pad_to_multiple_of is not None:
            logger.warning(
                "trim_padding is off: NEFTune, torch_compile and pad_to_multiple_of depend on TRL's shapes."
            )
            return 0
        score = partial(super()._get_per_token_logps_and_entropies, compute_aux_loss=self.aux_loss_enabled)
        config, device = causal.config.get_text_config(), self.accelerator.device
        eps = torch.finfo(autocast_dtype(self) or causal.dtype).eps
        in_training = [module for module in causal.modules() if module.training]
        causal.eval()  # no dropout
        try:
            for self._packed in (True, False):
                try:
                    with rollout_scoring(self):
                        stand_in = WithoutPadding(self.model, self._packed, self._shares_prompts())
                        found = widest_batch(score, stand_in, config, device, eps)
                except Exception as error:  # of a model that does not take text alone, say
                    found, reason = 0, f"cannot score plain rows of tokens ({type(error).__name__}: {error})"
                if found:
                    logger.info(f"trim_padding: rows are {'packed' if self._packed else 'moved to the left'}.")
                    return found
        finally:
            for module in in_training:
                module.training = True
        logger.warning(f"trim_padding: {type(causal).__name__} {reason}. Its micro-batches are those of GRPOTrainer.")
        return 0
