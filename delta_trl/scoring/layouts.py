"""Chooses between packed, left-aligned and TRL's own rows: the first layout with which the model computes the same."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import signature
from typing import Any

import torch
from accelerate.logging import get_logger
from accelerate.utils import DistributedType
from torch import nn
from transformers import PreTrainedModel
from trl import GRPOTrainer

from .evidence import (
    Comparison,
    Evidence,
    Rows,
    comparisons,
    evaluating,
    plain_forward,
    random_states,
    reached,
    real_rows,
    short_rows,
    undisturbed,
)
from .models import causal_model, unwrapped
from .recorder import Recorder
from .stand_in import LEFT, PACKED, StandIn, can_be_packed, kind_of, register_attention


logger = get_logger(__name__)

SHAPES = "depends on TRL's shapes (NEFTune, torch_compile, pad_to_multiple_of, activated LoRA)"
FEW = 4  # real rows that confirm a layout
DUE = {0, *(8**k for k in range(1, 12))}  # the rollout batches that do


class Layouts:
    """
    The layout of the rows of a trainer's policy.

    Args:
        trainer ([`~trl.GRPOTrainer`]): The trainer.
        share_prompts (`bool`): Whether rows of a prompt follow each other, so that a pack has it once.

    Attributes:
        current (`str`, *optional*): `PACKED`, `LEFT`, or `None` for TRL's rows.
        kind (`dict`): What [`stand_in.kind_of`] said of the policy; empty before `look`.
        random (`bool`): Whether the policy draws random numbers in training. With fewer rows, these would be others.
    """

    def __init__(self, trainer: GRPOTrainer, share_prompts: bool):
        self.current: str | None = None
        self.kind: dict[str, Any] = {}
        self.random = True
        self._trainer = trainer
        self._rollouts = 0
        self._share_prompts = share_prompts
        self._score = partial(
            GRPOTrainer._get_per_token_logps_and_entropies, trainer, compute_aux_loss=trainer.aux_loss_enabled
        )

    def of_call(self, model: Any, input_ids: torch.Tensor) -> str | None:
        """The layout of rows in a scoring call of a model, which may be another one than the policy."""
        if self.current is None or not isinstance(model, nn.Module):
            return None
        kind = kind_of(unwrapped(self._trainer, model))
        if kind != self.kind or input_ids.size(1) > kind["positions"]:
            return None
        return self.current

    def stand_in(self, model: Any, layout: str | None, recorder: Recorder | None = None) -> StandIn:
        """The stand-in for a model in one scoring call."""
        layers = len(self.kind["layers"]) if layout else 0
        return StandIn(model, layout, layers, self._share_prompts, recorder or Recorder())

    def give_up(self, layout: str | None, stand_in: StandIn) -> None:
        """Keep TRL's rows from now on if a stand-in could not run its layout."""
        if stand_in.layout != layout:
            logger.warning("trim_padding: packed rows miss an attention layer. Rows keep their padding from now on.")
            self.current = None

    def before_rollout(self) -> None:
        """Look for a layout at first, and again when the policy has become another kind, by a hook, say."""
        kind = kind_of(unwrapped(self._trainer, self._trainer.model))
        if self._anywhere(kind != self.kind):
            self.look()

    def confirm(self, prompts: Sequence[list[int]], completions: Sequence[list[int]], has_images: bool) -> None:
        """
        Compare a few real rows in the layout, in training, with each of them alone, before they are scored: in the
        first rollout batch, after 8 of them, after 64 and so on. All processes make as many forward passes.

        Args:
            prompts, completions (`Sequence[list[int]]` of length B): Token ids of the rollout batch.
            has_images (`bool`): Whether it has images. These have TRL's rows.
        """
        is_due = self._rollouts in DUE
        self._rollouts += 1
        if not is_due or self._anywhere(self.current is None):
            return
        rows = self._few(prompts, completions, has_images)
        if self._problem_with(self._on_real_rows, str(self.current), rows):
            self.look(rows)

    def look(self, real: Rows | None = None) -> None:
        """
        Choose the best layout in which the policy computes the truth. All processes look, and choose the same.

        Args:
            real ([`Rows`], *optional*): Rows of a rollout batch that must confirm it.
        """
        trainer = self._trainer
        register_attention()
        self.kind = kind_of(unwrapped(trainer, trainer.model))
        self.current = None
        problem: str | None = SHAPES
        for layout in self._possible():
            problem = self._problem_with(self._on_short_rows, layout)
            if problem is None and real is not None:
                problem = self._problem_with(self._on_real_rows, layout, real)
            if problem is None:
                self.current = layout
                break
        if problem is None:
            logger.info(f"trim_padding: rows are {self.current}.")
        else:
            model = type(causal_model(trainer)).__name__
            logger.warning(f"trim_padding: {model} {problem}. Its micro-batches are those of GRPOTrainer.")

    def _possible(self) -> list[str]:
        """The layouts to look at, the best first."""
        args = self._trainer.args
        depends_on_shapes = (args.neftune_noise_alpha, args.torch_compile, args.pad_to_multiple_of)
        if self.kind["adapters per row"] or any(depends_on_shapes):
            return []
        return [PACKED, LEFT] if can_be_packed(self.kind) else [LEFT]

    def _problem_with(self, check: Callable, *arguments: Any) -> str | None:
        """What a check says against a layout in any process; `None` if nothing."""
        trainer = self._trainer
        causal = causal_model(trainer)
        try:
            with undisturbed(causal, self._device), plain_forward(trainer.model, causal):
                problem = check(causal, *arguments)
        except Exception as error:  # of a model that does not take text alone, say
            problem = f"cannot score plain rows of tokens ({type(error).__name__}: {error})"
        if self._anywhere(problem is not None):
            return problem or "computes something else without padding in another process"
        return None

    def _on_short_rows(self, causal: PreTrainedModel, layout: str) -> str | None:
        rows = short_rows(causal, self._device)
        self.random = self._draws_random_numbers(rows)
        with evaluating(causal):
            evidence = self._evidence(causal, rows, copies=2)
            padded = evidence.padded()
            if not padded.agrees and "position_ids" not in signature(type(causal).forward).parameters:
                return f"depends on padding when it generates, too: {padded}"
            problem = problem_of(comparisons(evidence, self.stand_in(self._trainer.model, layout), causal))
        problem = problem or self._in_training(causal, layout, evidence)
        if problem is None and not padded.agrees:
            warn_of_padding(type(causal).__name__, padded)
        return problem

    def _on_real_rows(self, causal: PreTrainedModel, layout: str, rows: Rows) -> str | None:
        with evaluating(causal):
            evidence = self._evidence(causal, rows)
        return self._in_training(causal, layout, evidence)

    def _in_training(self, causal: PreTrainedModel, layout: str, evidence: Evidence) -> str | None:
        """As the loss runs rows, unless random numbers would make the difference."""
        stand_in = self.stand_in(self._trainer.model, layout)
        with evaluating(causal) if self.random else nullcontext():
            outcome = evidence.outcome(stand_in)
        in_training = evidence.compared(f"{layout}, in training,", outcome)
        return problem_of((in_training, reached(stand_in, layout)))

    def _evidence(self, causal: PreTrainedModel, rows: Rows, copies: int = 1) -> Evidence:
        parameters = self._compared_parameters(causal)
        eps = torch.finfo(causal.dtype).eps
        return Evidence(self._score, self._trainer.model, parameters, rows, eps, copies)

    def _compared_parameters(self, causal: PreTrainedModel) -> list[nn.Parameter]:
        """Whose gradients are compared: all vectors, and a few matrices. None where autograd cannot ask for them."""
        trainer = self._trainer
        is_sharded = trainer.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)
        is_reentrant = (trainer.args.gradient_checkpointing_kwargs or {}).get("use_reentrant", False)
        if is_sharded or is_reentrant:
            return []
        trained = [parameter for parameter in causal.parameters() if parameter.requires_grad]
        vectors = [parameter for parameter in trained if parameter.ndim <= 1]  # a gate that is 0 hides what it lets in
        matrices = [parameter for parameter in trained if parameter.ndim > 1]
        return vectors + matrices[1 :: len(matrices) // 8 + 1]

    def _draws_random_numbers(self, rows: Rows) -> bool:
        """Whether a forward pass in training changes the state of a generator."""
        before = random_states(self._device)
        self._score(self._trainer.model, rows.ids, rows.mask, rows.n_completion)
        return not all(map(torch.equal, before, random_states(self._device)))

    def _few(self, prompts: Sequence[list[int]], completions: Sequence[list[int]], has_images: bool) -> Rows:
        """As many rows as a micro-batch has, up to four: those that end with the longest."""
        n = min(FEW, self._trainer.args.per_device_train_batch_size)
        lengths = [len(prompt) + len(ids) for prompt, ids in zip(prompts, completions, strict=True)]
        end = lengths.index(max(lengths)) + 1
        chosen = [row % len(prompts) for row in range(end - n, end)]
        rows = real_rows([prompts[row] for row in chosen], [completions[row] for row in chosen], self._device)
        if has_images or not rows.n_completion or rows.ids.size(1) > self.kind["positions"]:  # they have TRL's rows
            return short_rows(causal_model(self._trainer), self._device, n)
        return rows

    @property
    def _device(self) -> torch.device:
        return self._trainer.accelerator.device

    def _anywhere(self, is_so: bool) -> bool:
        """Whether something is so in any process."""
        flags = torch.tensor([is_so], device=self._device)
        return bool(self._trainer.accelerator.gather(flags).any())


def problem_of(comparisons: Iterable[Comparison]) -> str | None:
    """The first comparison that does not agree, in words."""
    for comparison in comparisons:
        if not comparison.agrees:
            return f"computes something else without padding: {comparison}"
    return None


def warn_of_padding(name: str, padded: Comparison) -> None:
    logger.warning_once(
        f"trim_padding: {name} samples each row as if it stood alone. GRPOTrainer trains something else, as padding "
        f"moves the positions: {padded}."
    )
