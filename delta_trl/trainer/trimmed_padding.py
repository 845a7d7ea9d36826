"""Micro-batches without unnecessary padding, for any `GRPOTrainer`; `policy/padding.py` has the parts."""

import math
from contextlib import nullcontext
from functools import partial

import torch
from accelerate.logging import get_logger
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from ..policy.padding import Piece, in_order, order_by_length, pieces, score_in_pieces, used, widest_cut
from .scoring import (
    LOSSES,
    autocast_dtype,
    causal_model,
    has_images,
    only_labels_in_lm_head,
    overridden,
    rollout_scoring,
)


logger = get_logger(__name__)

ROWS = "rollout_rows"  # entry of a rollout batch: its row numbers, which TRL shuffles with everything else


class TrimmedPadding(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose micro-batches are only as wide as their own rows. Rows of similar length share a
    micro-batch, within an optimiser step. On a CPU, the LM head leaves out prompts and padding, as TRL does on a GPU.
    Losses are the same up to rounding, but rows come in another random order. Batches with images stay as they are,
    and rollout batches whose rows a subclass has left out or replaced keep TRL's micro-batches. Whether padding may be
    cut off is asked of the policy: a reference model is taken to be of its kind.

    Attributes:
        trim_padding (`bool`, defaults to `True`): Whether to do so; `False` is `GRPOTrainer` bit for bit.
    """

    trim_padding = True
    _widest_cut: int | None = None  # columns of a batch whose padding may be cut off; `None` before the first rollout
    _row_order: torch.Tensor | None = None  # of the rollout batch's micro-batches; `None` before they are needed
    _rollout_size = 0  # rows of the rollout batch of this process
    _piece: Piece | None = None  # that is being scored

    def piece_in_progress(self) -> Piece | None:
        """The piece of a scoring call that is being scored; `None` if the rows are not scored in pieces."""
        return self._piece

    def _generate_and_score_completions(self, inputs):
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if self._widest_cut is None:  # under ZeRO-3 and FSDP, all processes run the model at the same time
            # columns are the same on all processes: in data with images, some rows have none
            self._widest_cut = 0 if {"image", "images"} & inputs[0].keys() else self._probe()
        self._rollout_size, self._row_order = len(inputs), None
        batch = super()._generate_and_score_completions(inputs)
        batch[ROWS] = torch.arange(len(batch["completion_mask"]), device=self.accelerator.device)
        return batch

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        score = super()._get_per_token_logps_and_entropies
        with only_labels_in_lm_head(self.accelerator.device) if self.trim_padding else nullcontext():
            cuts = self.model.training and input_ids.size(1) <= (self._widest_cut or 0)
            if not cuts or has_images(options):
                return score(model, input_ids, attention_mask, logits_to_keep, batch_size, **options)
            mask = attention_mask[:, -logits_to_keep:]
            is_rollout = batch_size is not None and len(mask) == self._rollout_size
            order = self._order(mask) if is_rollout else torch.arange(len(mask), device=mask.device)
            # some 64 widths for all micro-batches of a run
            multiple = math.lcm(
                self.args.pad_to_multiple_of or 1, max(1, (self.args.max_completion_length or 0) // 64)
            )
            plan = pieces(mask, order, batch_size or len(mask), multiple, input_ids.size(1) - mask.size(1))

            def score_piece(piece, *args, **others):
                self._piece = piece
                try:
                    return score(model, *args, **others)
                finally:
                    self._piece = None

            return score_in_pieces(score_piece, input_ids, attention_mask, logits_to_keep, plan, **options)

    def _prepare_inputs(self, generation_batch):
        buffered = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        is_new = self._buffered_inputs is not buffered
        if not (is_new and self._widest_cut and ROWS in inputs) or has_images(inputs):
            return inputs
        rows, mask = (
            torch.cat([batch[name] for batch in self._buffered_inputs]) for name in (ROWS, "completion_mask")
        )
        if sorted(rows.tolist()) != list(range(self._rollout_size)):  # a subclass has left rows out
            return inputs
        place = rows.argsort()  # of each row, after TRL's shuffling
        whole = in_order(self._buffered_inputs, place[self._order(mask[place])])
        self._buffered_inputs = split_tensor_dict(whole, self.args.steps_per_generation)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _order(self, mask: torch.Tensor) -> torch.Tensor:
        """The order of a rollout batch's rows (B,) in its micro-batches, from the mask (B, T) of its completions."""
        if self._row_order is None:
            args = self.args
            generator = torch.Generator().manual_seed(args.seed + self.state.global_step)
            random = torch.randperm(len(mask), generator=generator).to(mask.device)
            steps = min(args.gradient_accumulation_steps, args.steps_per_generation)
            size = len(mask) // args.steps_per_generation
            self._row_order = order_by_length(used(mask), random, size, steps if self._may_exchange_rows() else 1)
        return self._row_order

    def _may_exchange_rows(self) -> bool:
        """Whether rows may change places within an optimiser step: not if any value is a mean over a micro-batch."""
        steps, accumulated = self.args.steps_per_generation, self.args.gradient_accumulation_steps
        whole_steps = steps % accumulated == 0 or accumulated % steps == 0
        entropy = self.top_entropy_quantile < 1 or self._entropy_bonus_enabled
        means = self.loss_type == "bnpo" or entropy or self.aux_loss_enabled or overridden(type(self), LOSSES)
        return accumulated > 1 and whole_steps and not means

    def _probe(self) -> int:
        """How wide a batch may be whose padding is cut off; 0 if none may be."""
        if not self.trim_padding:
            return 0
        causal, found, reason = causal_model(self), 0, "computes something else without padding"
        in_training = [module for module in causal.modules() if module.training]

        def score(positions, *args):
            model = self.model if positions is None else partial(self.model, position_ids=positions)
            return super(TrimmedPadding, self)._get_per_token_logps_and_entropies(model, *args)

        causal.eval()  # no dropout
        try:
            with rollout_scoring(self):
                eps = torch.finfo(autocast_dtype(self) or causal.dtype).eps
                found = widest_cut(score, causal, self.args.pad_to_multiple_of or 1, self.accelerator.device, eps)
        except Exception as error:  # of a model that does not take text alone, say
            reason = f"cannot score a plain row of tokens ({type(error).__name__}: {error})"
        finally:
            for module in in_training:
                module.training = True
        if self.args.neftune_noise_alpha is not None:
            found, reason = 0, "has NEFTune's noise, which depends on the width"
        if not found:
            logger.warning(
                f"trim_padding: {type(causal).__name__} {reason}. Nothing is cut off: its micro-batches are as wide "
                "as the longest completion, as in GRPOTrainer."
            )
        return found
