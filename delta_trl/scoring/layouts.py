"""Which layout the rows of a trainer's policy have, by what its kind allows and by what it shows."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from accelerate.logging import get_logger
from accelerate.utils import DistributedType
from torch import nn
from trl import GRPOTrainer

from .evidence import (
    Comparison,
    Evidence,
    Rows,
    comparisons,
    draws_random_numbers,
    plain_forward,
    probe_rows,
)
from .models import causal_model, unwrapped
from .recorder import Recorder
from .stand_in import LEFT, PACKED, StandIn, can_be_packed, kind_of, register_attention


logger = get_logger(__name__)

SHAPES = "depends on TRL's shapes (NEFTune, torch_compile, pad_to_multiple_of, activated LoRA)"


class Layouts:
    """
    The layout of the rows of a trainer's policy.

    Args:
        trainer ([`~trl.GRPOTrainer`]): The trainer.
        share_prompts (`bool`): Whether rows of a prompt follow each other, so that a pack has it once.

    Attributes:
        current (`str`, *optional*): `PACKED`, `LEFT`, or `None` for TRL's rows.
        kind (`dict`, *optional*): What [`stand_in.kind_of`] said of the policy; `None` before `look`.
        random (`bool`): Whether the policy draws random numbers in training. With fewer rows, these would be others.
    """

    def __init__(self, trainer: GRPOTrainer, share_prompts: bool):
        self.current: str | None = None
        self.kind: dict[str, Any] | None = None
        self.random = True
        self._trainer = trainer
        self._share_prompts = share_prompts
        self._score = partial(
            GRPOTrainer._get_per_token_logps_and_entropies, trainer, compute_aux_loss=trainer.aux_loss_enabled
        )

    def of_call(self, model, input_ids: torch.Tensor) -> str | None:
        """The layout of rows in a scoring call of a model, which may be another one than the policy."""
        if self.current is None or not isinstance(model, nn.Module):
            return None
        kind = kind_of(unwrapped(self._trainer, model))
        if kind != self.kind or input_ids.size(1) > kind["positions"]:
            return None
        return self.current

    def stand_in(self, model, layout: str | None, recorder: Recorder | None = None) -> StandIn:
        """The stand-in for a model in one scoring call."""
        layers = len(self.kind["layers"]) if layout else 0
        return StandIn(model, layout, layers, self._share_prompts, recorder or Recorder())

    def give_up(self, layout: str | None, stand_in: StandIn) -> None:
        """Keep TRL's rows from now on if a stand-in could not run its layout."""
        if stand_in.layout != layout:
            logger.warning("trim_padding: packed rows miss an attention layer. Rows keep their padding from now on.")
            self.current = None

    def look_once(self) -> None:
        """Look before the first rollout batch. Under ZeRO-3 and FSDP, all processes run the model at the same time."""
        if self.kind is None:
            self.look()

    def look(self) -> None:
        """Choose the best layout in which the policy computes the truth. Under ZeRO-3 and FSDP, all processes look."""
        trainer = self._trainer
        causal = causal_model(trainer)
        register_attention()
        self.kind = kind_of(unwrapped(trainer, trainer.model))
        self.current = None
        problem: str | None = SHAPES
        for layout in self._possible():
            problem = self._problem_of(layout, causal)
            if problem is None:
                self.current = layout
                break
        if problem is None:
            logger.info(f"trim_padding: rows are {self.current}.")
        else:
            model = type(causal).__name__
            logger.warning(f"trim_padding: {model} {problem}. Its micro-batches are those of GRPOTrainer.")

    def _possible(self) -> list[str]:
        """The layouts to look at, the best first."""
        args = self._trainer.args
        depends_on_shapes = (args.neftune_noise_alpha, args.torch_compile, args.pad_to_multiple_of)
        if self.kind["adapters per row"] or any(depends_on_shapes):
            return []
        return [PACKED, LEFT] if can_be_packed(self.kind) else [LEFT]

    def _problem_of(self, layout: str, causal: nn.Module) -> str | None:
        """Why the policy cannot have a layout; `None` if it computes the truth there."""
        trainer = self._trainer
        model = trainer.model
        rows = probe_rows(causal, trainer.accelerator.device)
        parameters = self._compared_parameters(causal)
        try:
            with plain_forward(model, causal):
                self.random = self._draws_random_numbers(rows)
            with plain_forward(model, causal), torch.set_grad_enabled(bool(parameters)), evaluating(causal):
                evidence = Evidence(self._score, model, parameters, rows, torch.finfo(causal.dtype).eps, copies=2)
                padded = evidence.padded()
                if not padded.agrees:
                    if "position_ids" not in signature(type(causal).forward).parameters:
                        return f"depends on padding when it generates, too: {padded}"
                    warn_of_padding(type(causal).__name__, padded)
                failed = first_that_differs(comparisons(evidence, self.stand_in(model, layout), causal))
        except Exception as error:  # of a model that does not take text alone, say
            return f"cannot score plain rows of tokens ({type(error).__name__}: {error})"
        if failed:
            return f"computes something else without padding: {failed}"
        return None

    def _compared_parameters(self, causal: nn.Module) -> list[nn.Parameter]:
        """Whose gradients are compared, where parameters are whole: all vectors, and a few matrices."""
        if self._trainer.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            return []
        trained = [parameter for parameter in causal.parameters() if parameter.requires_grad]
        vectors = [parameter for parameter in trained if parameter.ndim <= 1]  # a gate that is 0 hides what it lets in
        matrices = [parameter for parameter in trained if parameter.ndim > 1]
        return vectors + matrices[1 :: len(matrices) // 8 + 1]

    def _draws_random_numbers(self, rows: Rows) -> bool:
        """Asked of a model in training, by a forward pass."""
        trainer = self._trainer
        score = partial(self._score, trainer.model, rows.ids, rows.mask, rows.n_completion)
        with torch.no_grad():
            return draws_random_numbers(score, trainer.accelerator.device)


def first_that_differs(comparisons: Iterable[Comparison]) -> Comparison | None:
    for comparison in comparisons:
        if not comparison.agrees:
            return comparison
    return None


def warn_of_padding(name: str, padded: Comparison) -> None:
    logger.warning_once(
        f"trim_padding: {name} samples each row as if it stood alone. GRPOTrainer trains something else, as padding "
        f"moves the positions: {padded}."
    )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The context in which a model evaluates."""
    in_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in in_training:
            module.training = True
