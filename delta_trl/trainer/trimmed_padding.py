"""Micro-batches without unnecessary padding, for any `GRPOTrainer`; `policy/padding.py` has the parts."""

import inspect
from contextlib import nullcontext
from functools import partial
from weakref import WeakKeyDictionary

import torch
from accelerate.logging import get_logger
from torch import nn
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context

from ..policy.padding import (
    Piece,
    Trim,
    micro_batches,
    pieces,
    probe,
    regrouped,
    score_in_pieces,
    used,
)
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
    Losses are the same up to rounding. Batches with images stay as they are, and rollout batches whose rows a subclass
    has left out or replaced keep TRL's micro-batches.

    Attributes:
        trim_padding (`bool`, defaults to `True`): Whether to do so; `False` is `GRPOTrainer` bit for bit.
    """

    trim_padding = True
    _rollout_size = 0  # rows of the rollout batch of this process
    # these rows in the order in which they will be trained on; drawn when they are first scored
    _row_order: torch.Tensor | None = None
    _piece: Piece | None = None  # that is being scored

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._trims: WeakKeyDictionary[nn.Module, Trim | None] = WeakKeyDictionary()  # of models that were probed

    def piece_in_progress(self) -> Piece | None:
        """The piece of a scoring call that is being scored; `None` if the rows are not scored in pieces."""
        return self._piece

    def scoring_plan(
        self, model, attention_mask: torch.Tensor, logits_to_keep: int, batch_size: int | None = None, **inputs
    ) -> list[Piece]:
        """
        Which rows of a scoring call are scored together, in which order, from which column and how wide. Without
        trimming, one piece with all rows, which TRL itself splits into batches of `batch_size`.

        Args:
            model, attention_mask, logits_to_keep, batch_size, **inputs: The arguments of
                `_get_per_token_logps_and_entropies`.
        """
        rows = torch.arange(len(attention_mask), device=attention_mask.device)
        trim = None if has_images(inputs) or not self.model.training else self._trim(model)
        if trim is None:
            return [Piece(rows, 0, logits_to_keep)]
        P = attention_mask.size(1) - logits_to_keep
        prompt_mask, mask = attention_mask[:, :P], attention_mask[:, P:]
        together = list(rows.split(batch_size or len(rows)))
        if len(rows) == self._rollout_size and len(together) > 1:
            together = self._micro_batches(mask)
        return pieces(prompt_mask, mask, together, trim)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        plan = self.scoring_plan(model, attention_mask, logits_to_keep, batch_size, **options)
        with only_labels_in_lm_head(self.accelerator.device) if self.trim_padding else nullcontext():
            if len(plan) == 1 and plan[0][1:] == (0, logits_to_keep):
                return super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, batch_size, **options
                )
            with profiling_context(self, "_get_per_token_logps_and_entropies"):  # once for all pieces
                score = partial(self._score_piece, model)
                return score_in_pieces(score, input_ids, attention_mask, logits_to_keep, plan, **options)

    def _score_piece(self, model, piece: Piece | None, positions, *args, **options):
        """Score as the base class does, without TRL's profiler. `positions`: position ids, if the model needs them."""
        model = model if positions is None else partial(model, position_ids=positions)
        score = super()._get_per_token_logps_and_entropies.__func__
        if score is GRPOTrainer._get_per_token_logps_and_entropies:
            score = inspect.unwrap(score)
        self._piece = piece
        try:
            return score(self, model, *args, **options)
        finally:
            self._piece = None

    def _generate_and_score_completions(self, inputs):
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        # decided by columns, which are the same on all processes: in data with images, some rows have none
        if {"image", "images"} & inputs[0].keys():
            self.trim_padding = False
        self._trim(self.model)  # probes the model, on all processes at the same time
        self._rollout_size, self._row_order = len(inputs), None
        batch = super()._generate_and_score_completions(inputs)
        batch[ROWS] = torch.arange(len(batch["completion_mask"]), device=self.accelerator.device)
        return batch

    def _prepare_inputs(self, generation_batch):
        buffered = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        is_new = self._buffered_inputs is not buffered
        if not is_new or ROWS not in inputs or has_images(inputs) or self._trim(self.model) is None:
            return inputs
        rows, mask = (
            torch.cat([batch[name] for batch in self._buffered_inputs]) for name in (ROWS, "completion_mask")
        )
        if sorted(rows.tolist()) != list(range(self._rollout_size)):  # a subclass has left rows out
            return inputs
        if self._row_order is None:  # nothing was scored: any rows may share a micro-batch
            self._row_order = rows
        self._buffered_inputs = regrouped(self._buffered_inputs, self._micro_batches(mask[rows.argsort()]), ROWS)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _micro_batches(self, mask: torch.Tensor) -> list[torch.Tensor]:
        """The rows of each micro-batch, for a rollout batch whose completions have this mask (B, T)."""
        if self._row_order is None:
            with torch.random.fork_rng(devices=[]):  # as TRL will draw it, unless something else draws before
                self._row_order = torch.randperm(len(mask)).to(mask.device)
        args = self.args
        per_step = min(args.gradient_accumulation_steps, args.steps_per_generation) if self._may_exchange_rows() else 1
        return micro_batches(used(mask), self._row_order, len(mask) // args.steps_per_generation, per_step)

    def _may_exchange_rows(self) -> bool:
        """Whether rows may change places within an optimiser step: not if any value is a mean over a micro-batch."""
        args = self.args
        steps, accumulated = args.steps_per_generation, args.gradient_accumulation_steps
        whole_steps = steps % accumulated == 0 or accumulated % steps == 0
        entropy = self.top_entropy_quantile < 1 or self._entropy_bonus_enabled
        means = self.loss_type == "bnpo" or entropy or self.aux_loss_enabled or overridden(type(self), LOSSES)
        return accumulated > 1 and whole_steps and not means

    def _trim(self, model) -> Trim | None:
        """Which padding may be cut off what this model scores; `None` if none."""
        if not self.trim_padding:
            return None
        causal = causal_model(self, model)
        if causal not in self._trims:
            self._trims[causal] = self._probe(model, causal)
        return self._trims[causal]

    def _probe(self, model, causal) -> Trim | None:
        """Which padding does not affect a model. Runs it in the first rollout: under ZeRO-3 it cannot run before."""
        score, multiple = partial(self._score_piece, model, None), self.args.pad_to_multiple_of or 1
        reason, found = "computes something else without padding", None
        in_training = [module for module in causal.modules() if module.training]
        causal.eval()  # no dropout
        try:
            with rollout_scoring(self):
                eps = torch.finfo(autocast_dtype(self) or causal.dtype).eps
                found = probe(score, causal, multiple, self.accelerator.device, eps)
        except Exception as error:  # of a model that does not take text alone, say
            reason = f"cannot score a plain row of tokens ({type(error).__name__}: {error})"
        finally:
            for module in in_training:
                module.training = True
        if found is None:
            logger.warning(
                f"trim_padding: {type(causal).__name__} {reason}. Nothing is cut off: its micro-batches are as wide "
                "as the longest completion, as in GRPOTrainer."
            )
        return found
