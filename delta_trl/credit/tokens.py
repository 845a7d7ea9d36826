"""The input of a rule of token credit, the tokens of a rollout batch, and its output, their credit."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import nn

from .distributed import announce
from .head import LMHead
from .hidden_states import HiddenStates, RecomputedStates


@dataclass
class Credit:
    """
    Token credit of N tokens.

    Args:
        weights (`torch.Tensor` of shape `(N,)`):
            Factors of the advantage of each token's response. Finite; a negative weight reverses the advantage's sign.
        metrics (`dict[str, float]`, *optional*):
            Logged under `credit/`; the same on all ranks, NaN where undefined. `extra_forward_passes` is the number of
            passes over the rollout batch that the rule has made itself.
        neutral (`bool`, *optional*, defaults to `False`):
            Whether nothing told tokens apart, as in a batch without winners or without losers.
        scores (`torch.Tensor` of shape `(N,)`, *optional*):
            Numbers that rank the tokens of a response, if the weights are coarser, such as those of a mask. A higher
            score counts more. For audits only.
    """

    weights: torch.Tensor
    metrics: dict[str, float] = field(default_factory=dict)
    neutral: bool = False
    scores: torch.Tensor | None = None


@dataclass(frozen=True)
class PolicyOutputs:
    """
    Results of a forward pass of the policy over B completions.

    Args:
        log_probs, entropies (`torch.Tensor` of shape `(B, T)`): Under the sampling temperature.
        hidden ([`HiddenStates`] or [`RecomputedStates`], *optional*): Final states that predicted the N valid tokens.
    """

    log_probs: torch.Tensor
    entropies: torch.Tensor
    hidden: HiddenStates | RecomputedStates | None = None


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

    def log_probs_after(self, examples: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (B, T) after one example each, see [`Tokens.log_probs_after`]."""

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:
        """Log-probabilities (b, length) of some completions at the model's present parameters, differentiable."""


class Tokens:
    """
    The N tokens that the policy sampled in B completions, row by row, without padding and without a tool's tokens.
    Every rank has tokens of its own; use [`all_reduce`] for sums over all of them.

    Args:
        ids (`torch.Tensor` of shape `(B, T)`): Completions, padded.
        mask (`torch.Tensor` of shape `(B, T)`): The tokens that the loss counts, N of them.
        advantages (`torch.Tensor` of shape `(B,)`): Of the responses.
        rewards (`torch.Tensor` of shape `(B,)`, *optional*): NaN where a response could not be scored.
        groups (`torch.Tensor` of shape `(B,)`, *optional*):
            Index of each response's prompt, from 0 to `n_groups - 1` over all ranks.
        n_groups (`int`, *optional*): How many prompts there are over all ranks.
        policy ([`Policy`], *optional*): Where values that are not known yet are fetched from.
        **known: What is known already: `log_probs`, `old_log_probs` or `entropies`, `(B, T)`; `hidden` or `head`.

    Attributes:
        ids, advantages, rewards, group (`torch.Tensor` of shape `(N,)`): Of each token, or of its response.
        row (`torch.Tensor` of shape `(N,)`): Index of each token's completion on this rank.
        mask (`torch.Tensor` of shape `(B, T)`), n_groups: As above.
    """

    def __init__(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        advantages: torch.Tensor,
        *,
        rewards: torch.Tensor | None = None,
        groups: torch.Tensor | None = None,
        n_groups: int = 1,
        policy: Policy | None = None,
        **known: Any,
    ):
        self.mask = mask.bool()
        self.policy = policy
        self.ids = self.flat(ids)
        self.advantages = self.flat(advantages)
        self.rewards = self.flat(torch.full_like(advantages, torch.nan) if rewards is None else rewards)
        rows = torch.arange(len(mask), device=mask.device)
        self.row = self.flat(rows)
        self.group = self.flat(torch.zeros_like(rows) if groups is None else groups)
        self.n_groups = n_groups
        for name, value in known.items():
            vars(self)[name] = self.flat(value) if name in ("log_probs", "old_log_probs", "entropies") else value

    def __len__(self) -> int:
        return len(self.ids)

    def flat(self, values: torch.Tensor) -> torch.Tensor:  # (B,) or (B, T) -> (N,)
        """Values of responses or of all positions, for the N tokens."""
        return (values[:, None].expand(self.mask.shape) if values.ndim == 1 else values)[self.mask]

    def padded(self, values: torch.Tensor) -> torch.Tensor:  # (N,) -> (B, T)
        """Values of the N tokens at their positions; 0 elsewhere."""
        return values.new_zeros(self.mask.shape).masked_scatter_(self.mask, values)

    def knows(self, name: str) -> bool:
        """Whether `log_probs`, `old_log_probs`, `entropies`, `hidden` or `head` is known without a forward pass."""
        return name in vars(self)

    @cached_property
    def log_probs(self) -> torch.Tensor:  # (N,)
        """log π of each token under the sampling temperature: at the rollout; in a micro-batch, at present."""
        return self.flat(self._outputs("log_probs").log_probs)

    @cached_property
    def old_log_probs(self) -> torch.Tensor:  # (N,)
        """log π at the rollout."""
        return self.log_probs

    @cached_property
    def entropies(self) -> torch.Tensor:  # (N,)
        """Entropy of the distribution that each token was sampled from, in nats."""
        return self.flat(self._outputs("entropies").entropies)

    @cached_property
    def hidden(self) -> HiddenStates | RecomputedStates:  # (N, d)
        """The final hidden states that predicted the tokens, as they enter the LM head. They are read in chunks."""
        hidden = self._outputs("hidden").hidden
        assert hidden is not None, "a policy returns hidden states when asked for them"
        return hidden

    @cached_property
    def head(self) -> LMHead:
        """The layer that turns hidden states into log-probabilities."""
        return self._fetch("head").head()

    def log_probs_at(self, rows: torch.Tensor) -> torch.Tensor:  # (n,)
        """
        Log-probabilities of the n tokens of some completions at the model's present parameters, differentiable.

        Args:
            rows (`torch.Tensor` of shape `(b,)`): Indices of the completions.
        """
        mask = self.mask[rows]
        positions = mask.any(dim=0).nonzero()[:, 0]
        length = int(positions[-1]) + 1 if len(positions) else 1
        return self._fetch("log_probs_at").log_probs_at(rows, length)[mask[:, :length]]

    def log_probs_after(self, examples: torch.Tensor) -> torch.Tensor:  # (B,) -> (N,)
        """
        Log-probabilities of the tokens with another completion as an example in their context: the prompt, the
        example, and the prompt again. One forward pass, three times as long.

        Args:
            examples (`torch.Tensor` of shape `(B,)`):
                Index of each completion's example, on this rank and of the same prompt; -1 for none, which gives the
                log-probabilities without one.
        """
        return self.flat(self._fetch("log_probs_after").log_probs_after(examples))

    def _outputs(self, name: str) -> PolicyOutputs:
        outputs = self._fetch(name).outputs(hidden=name == "hidden")
        for also in ("log_probs", "entropies"):
            vars(self).setdefault(also, self.flat(getattr(outputs, also)))
        return outputs

    def _fetch(self, name: str) -> Policy:
        if self.policy is None:
            raise RuntimeError(
                f"tokens.{name} is not at hand: in `of_micro_batch` there are `log_probs`, `old_log_probs` and "
                "`entropies`; hidden states and forward passes are for `of_rollout`."
            )
        announce(f"tokens.{name}")
        return self.policy
