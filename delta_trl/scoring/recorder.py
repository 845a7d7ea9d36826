"""Recording what a scoring pass computes beside log-probabilities: entropies and the final hidden states."""

from collections.abc import Callable
from typing import Any

import torch
from accelerate.logging import get_logger
from torch import nn

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
            Where to keep hidden states: on the `"device"`, in main memory (`"cpu"`, pinned), or by `"auto"` on the
            device if it has room, else in main memory.

    Attributes:
        log_probs, entropies (`torch.Tensor` of shape `(B, T)` or `None`): What the pass returned.
        remaining (`list`): The first token and the end of each row that is still to come.
    """

    def __init__(self, backbone: nn.Module | None = None, place: str = "device"):
        self.log_probs: torch.Tensor | None = None
        self.entropies: torch.Tensor | None = None
        self._backbone = backbone
        self._place = place
        self._states: HiddenStates | None = None
        self.remaining: list = []
        self._n_tokens = 0

    @property
    def hidden(self) -> HiddenStates | None:
        """
        Hidden states row by row; `None` if none were recorded, or not of every row. A hook may not fire at all, as on
        a compiled module.
        """
        return None if self.remaining else self._states

    def begin(self, tokens: torch.Tensor, order: torch.Tensor) -> None:
        """Expect a pass over the tokens (B, T), whose rows come in the order (B,)."""
        counts = tokens.sum(dim=1)
        ends = counts.cumsum(0)
        self._n_tokens = int(ends[-1])
        first_and_end = torch.stack([ends - counts, ends], dim=1)
        self.remaining = first_and_end[order].tolist()

    def run(self, model: Callable, rows: int, /, **inputs) -> Any:
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

        def keep(module, args, output) -> None:
            self._keep(predicting_states(output.last_hidden_state, scored), rows)

        handle = self._backbone.register_forward_hook(keep)
        try:
            return model(**inputs)
        finally:
            handle.remove()

    def _keep(self, states: torch.Tensor, rows: int) -> None:  # (n, d)
        if self._states is None:
            self._states = self._allocate(states)
        self._states.write(states, self.remaining[:rows])
        self.remaining = self.remaining[rows:]

    def _allocate(self, states: torch.Tensor) -> HiddenStates:
        dim = states.size(1)
        device = states.device
        in_main_memory = self._place == "cpu"
        n_bytes = self._n_tokens * dim * states.dtype.itemsize
        if self._place == "auto" and not has_room(device, n_bytes):
            logger.warning_once("hidden_state_cache='auto': the device has no room, main memory is used.")
            in_main_memory = True
        return HiddenStates.empty(self._n_tokens, dim, states.dtype, device, staged=in_main_memory)


def backbone_of(model: nn.Module) -> nn.Module:
    """The module whose last hidden state enters the LM head. Raises `ValueError` if the model has none."""
    if hasattr(model, "get_base_model"):  # PEFT's own `base_model` includes the LM head
        model = model.get_base_model()
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


def predicting_states(states: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """
    The final hidden states that predict completion tokens, as they enter the LM head.

    Args:
        states (`torch.Tensor` of shape `(b, P + T, d)`): Final hidden states of prompts and completions.
        valid (`torch.Tensor` of shape `(b, T)`): The n completion tokens to look at.

    Returns:
        `torch.Tensor` of shape `(n, d)`.
    """
    device = states.device
    first = -valid.size(1) - 1  # the state one position earlier predicts a token
    predicting = states.detach()[:, first:-1]
    predicting = predicting[valid.to(device)]
    if torch.is_autocast_enabled(device.type):
        # float32 weights under autocast give float32 states, which the LM head then casts
        predicting = predicting.to(torch.get_autocast_dtype(device.type))
    return predicting
