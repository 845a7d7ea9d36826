"""What tokens fetch from the policy in training."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from .head import LMHead
from .hidden_states import HiddenStates


@dataclass(frozen=True)
class PolicyOutputs:
    """
    Results of a forward pass of the policy over B completions.

    Args:
        log_probs, entropies (`torch.Tensor` of shape `(B, T)`): Under the sampling temperature.
        hidden ([`HiddenStates`], *optional*): Final hidden states that predicted the N valid tokens.
    """

    log_probs: torch.Tensor
    entropies: torch.Tensor
    hidden: HiddenStates | None = None


@dataclass(frozen=True)
class Turn:
    """
    What the policy generated between two texts of tools. Without tools, a completion is one turn.

    Args:
        text (`str`): Its text, without special tokens.
        start, end (`int`): Its characters in the policy's text, which is that of all turns of the completion.
        first, last (`int`): Its tokens in the completion, special ones included; both inside.
        tools (`tuple[str, ...]`):
            The names of the tools that its own tokens call, as TRL parses them: of chats whose tokenizer has a
            `response_template` or `response_schema`.
    """

    text: str
    start: int
    end: int
    first: int
    last: int
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Responses:
    """
    The B responses of a rollout batch in words.

    Args:
        prompts, completions (`list`), ids (`list[list[int]]`), columns (`dict[str, list]`):
            As TRL gave them to the reward functions.
        texts (`list[list[str | None]]`): What each of the `ids` adds to its turn's text; `None` for special tokens.
        turns (`list[list[Turn]]`):
            The policy's turns in each completion. With tools, none where TRL masks a completion that is cut off.
    """

    prompts: list
    completions: list
    ids: list[list[int]]
    columns: dict[str, Any]
    texts: list[list[str | None]]
    turns: list[list[Turn]]


class Policy(Protocol):
    """
    The policy in training, from which [`Tokens`] fetch log-probabilities and hidden states of their rollout batch.
    Methods run the model, so all ranks must call them.

    Attributes:
        model (`torch.nn.Module`): The causal language model, unwrapped.
        dtype (`torch.dtype`, *optional*): Of autocast, if that is on.
        micro_batch_size (`int`): Completions in a forward pass.
    """

    model: nn.Module
    dtype: torch.dtype | None
    micro_batch_size: int

    def outputs(self, hidden: bool) -> PolicyOutputs:
        """Results of a forward pass that was made anyway, or else of a new one. `hidden`: with hidden states."""

    def head(self) -> LMHead:
        """The layer that turns hidden states into log-probabilities."""

    def responses(self) -> Responses:
        """The responses in words."""

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:
        """Log-probabilities (b, length) of some completions at the model's present parameters, differentiable."""
