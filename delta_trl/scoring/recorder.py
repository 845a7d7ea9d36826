"""Recording what a scoring pass computes beside log-probabilities: entropies and the final hidden states."""

from collections.abc import Callable
from typing import Any

import torch
from accelerate.logging import get_logger
from accelerate.utils import is_peft_model
from torch import nn
from transformers import PreTrainedModel

from ..credit import HiddenStates


logger = get_logger(__name__)

MARGIN = 0.1  # share of all device memory that "auto" leaves free


def has_room(device: torch.device, n_bytes: int) -> bool:
    """Whether a device keeps a tenth of its memory free beside so many bytes of hidden states."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by PyTorch
    return n_bytes + MARGIN * total <= free + unused


class Recorder:
    """
    Records one scoring pass over completions: its log-probabilities, its entropies, and the final hidden states that
    predicted the tokens. Hidden states are kept in the dtype in which they enter the LM head, without padding.

    Args:
        backbone (`torch.nn.Module`, *optional*):
            The module whose last hidden states enter the LM head. Without, no hidden states are recorded.
        place (`str`, *optional*, defaults to `"device"`):
            Where to keep hidden states: on the `"device"`, in main memory (`"cpu"`), or by `"auto"` on the
            device if it has room, else in main memory.

    Attributes:
        log_probs, entropies (`torch.Tensor` of shape `(B, T)`): What the pass returned. Empty before.
        hidden ([`HiddenStates`] or `None`): Hidden states row by row, once the pass is finished.
        remaining (`list`): The rows that are still to come, and how many tokens each has.
    """

    def __init__(self, backbone: nn.Module | None = None, place: str = "device"):
        self.log_probs = torch.empty(0)
        self.entropies = torch.empty(0)
        self.hidden: HiddenStates | None = None
        self.remaining: list = []
        self._backbone = backbone
        self._place = place
        self._device = torch.device("cpu")  # of the model
        self._memory = torch.device("cpu")  # where states are kept
        self._blocks: dict = {}  # by row, hidden states (n, d)

    def expect(self, rows: torch.Tensor, tokens: torch.Tensor) -> None:
        """Expect a pass over some rows (n,) of the tokens (B, T)."""
        counts = tokens.sum(dim=1)[rows]
        self.remaining = list(zip(rows.tolist(), counts.tolist(), strict=True))

    def finish(self, tokens: torch.Tensor) -> None:
        """Put the hidden states of the tokens (B, T) together, if all came. They are 0 in rows that did not run."""
        if self.remaining or not self._blocks:  # a hook may not fire at all, as on a compiled module
            return
        counts = tokens.sum(dim=1).tolist()
        block = next(iter(self._blocks.values()))
        nothing = block.new_zeros(block.size(1))  # `expand` takes no memory
        blocks = [self._blocks.pop(row, nothing.expand(count, -1)) for row, count in enumerate(counts)]
        self.hidden = HiddenStates(blocks, self._device, staged=self._memory != self._device)

    def run(self, model: Callable, rows: int, /, **inputs: Any) -> Any:
        """
        Make a forward pass and record the hidden states that enter the LM head.

        Args:
            model (`Callable`): The model.
            rows (`int`): How many rows of the scoring pass it runs.
            **inputs: The arguments of the model. Tokens whose `labels` are -100 are not scored.
        """
        if self._backbone is None:
            return model(**inputs)
        scored = inputs["labels"][:, 1:] != -100

        def keep(module: nn.Module, args: tuple, output: Any) -> None:
            states = output.last_hidden_state.detach()
            device = states.device
            first = -scored.size(1) - 1  # the state one position earlier predicts a token
            predicting = states[:, first:-1]
            predicting = predicting[scored.to(device)]
            if torch.is_autocast_enabled(device.type):
                # float32 weights under autocast give float32 states, which the LM head then casts
                predicting = predicting.to(torch.get_autocast_dtype(device.type))
            self._keep(predicting, rows)

        handle = self._backbone.register_forward_hook(keep)
        try:
            return model(**inputs)
        finally:
            handle.remove()

    def _keep(self, states: torch.Tensor, n_rows: int) -> None:  # (n, d)
        self._device = states.device
        if not self._blocks and self._fits(states):
            self._memory = states.device
        rows = self.remaining[:n_rows]
        self.remaining = self.remaining[n_rows:]
        parts = states.to(self._memory).split([n for _, n in rows])  # raises if they are not as many
        for (row, _), part in zip(rows, parts, strict=True):
            self._blocks[row] = part

    def _fits(self, states: torch.Tensor) -> bool:
        """Whether the device keeps all states. Asked after the first forward, whose peak memory is known by then."""
        if self._place != "auto":
            return self._place == "device"
        n_tokens = sum(n for _, n in self.remaining)
        n_bytes = n_tokens * states.size(1) * states.dtype.itemsize
        fits = has_room(states.device, n_bytes)
        if not fits:
            logger.warning_once("hidden_state_cache='auto': the device has no room, main memory is used.")
        return fits


def without_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """A causal language model itself, without PEFT's wrapper."""
    if is_peft_model(model):
        return model.get_base_model()
    return model


def backbone_of(model: PreTrainedModel) -> nn.Module:
    """
    The module whose last hidden state enters the LM head of a model without PEFT's wrapper, whose own `base_model`
    includes the head. Raises `ValueError` if the model has none.
    """
    backbone = getattr(model, "base_model", model)
    if backbone is model or model.get_output_embeddings() is None:
        raise ValueError(
            f"Token credit needs the hidden states that enter the LM head, but {type(model).__name__} shows no "
            "backbone and LM head: `model.base_model` must be a submodule and `model.get_output_embeddings()` must "
            "return the head. Use a causal language model of transformers (AutoModelForCausalLM), set "
            "`base_model_prefix` on your model class to the attribute that holds the backbone, or train without token "
            'credit: `token_credit="none"`.'
        )
    return backbone
