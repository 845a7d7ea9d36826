"""The input of a rule of token credit, the tokens of a rollout batch, and its output, their credit."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from .head import LMHead
from .hidden_states import HiddenStates


@dataclass
class Credit:
    """
    Token credit of N tokens: weights, or advantages.

    Args:
        weights (`torch.Tensor` of shape `(N,)`, *optional*):
            Factors of the advantage of each token's response. Finite; a negative weight reverses the advantage's sign.
        metrics (`dict[str, float]`, *optional*):
            Logged under `credit/`; the same on all ranks, NaN where undefined. `extra_forward_passes` is the number of
            passes over the rollout batch that the rule has made itself.
        neutral (`bool`, *optional*, defaults to `False`):
            Whether nothing told tokens apart, as in a batch without winners or without losers.
        advantages (`torch.Tensor` of shape `(N,)`, *optional*): Finite; they take the place of the response's.
    """

    weights: Any = None  # `Any`: what `checked_credit` returns always has them
    metrics: dict[str, float] = field(default_factory=dict)
    neutral: bool = False
    advantages: torch.Tensor | None = None


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
class Responses:
    """
    The B responses of a rollout batch in words.

    Args:
        prompts, completions (`list`): As reward functions get them. Completions are without special tokens and without
            what the loss does not count, such as a tool's text.
        ids (`list[list[int]]`): The tokens of each completion, of which the loss counts all.
        texts (`list[list[str | None]]`): What each token adds to the completion; `None` for special tokens.
        columns (`dict[str, list]`): Of the dataset.
    """

    prompts: list
    completions: list
    ids: list[list[int]]
    texts: list[list[str | None]]
    columns: dict[str, Any]


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


class Tokens:
    """
    The N tokens that the policy sampled in B completions, row by row, without padding and without a tool's tokens.
    Every rank has tokens of its own; use [`all_reduce`] for sums over all of them.

    Args:
        ids (`torch.Tensor` of shape `(B, T)`): Completions, padded.
        mask (`torch.Tensor` of shape `(B, T)`): The tokens that the loss counts, N of them.
        advantages (`torch.Tensor` of shape `(B,)` or `(B, T)`): Of the responses, or of their tokens.
        rewards (`torch.Tensor` of shape `(B,)`, *optional*): NaN where a response could not be scored.
        groups (`torch.Tensor` of shape `(B,)`, *optional*): Number of each response's prompt, over all ranks.
        policy ([`Policy`], *optional*): Where values that are not known yet are fetched from.
        log_probs, old_log_probs, entropies (`torch.Tensor` of shape `(B, T)`, *optional*): What is known already.
        hidden ([`HiddenStates`]), head ([`LMHead`]), *optional*: What is known already.

    Attributes:
        ids, advantages, rewards, group (`torch.Tensor` of shape `(N,)`): Of each token, or of its response.
        row (`torch.Tensor` of shape `(N,)`): Index of each token's completion on this rank.
        mask (`torch.Tensor` of shape `(B, T)`): As above.
    """

    def __init__(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        advantages: torch.Tensor,
        *,
        rewards: torch.Tensor | None = None,
        groups: torch.Tensor | None = None,
        policy: Policy | None = None,
        log_probs: torch.Tensor | None = None,
        old_log_probs: torch.Tensor | None = None,
        entropies: torch.Tensor | None = None,
        hidden: HiddenStates | None = None,
        head: LMHead | None = None,
    ):
        self.mask = mask.bool()
        self._policy = policy
        self.ids = self.flat(ids)
        self.advantages = self.flat(advantages)
        rows = torch.arange(len(mask), device=mask.device)
        self.rewards = self.flat(torch.full_like(rows, torch.nan, dtype=torch.float32) if rewards is None else rewards)
        self.row = self.flat(rows)
        self.group = self.flat(torch.zeros_like(rows) if groups is None else groups)
        per_token = {"log_probs": log_probs, "old_log_probs": old_log_probs, "entropies": entropies}
        self._known: dict[str, Any] = {
            **{name: self.flat(values) for name, values in per_token.items() if values is not None},
            **{name: value for name, value in (("hidden", hidden), ("head", head)) if value is not None},
        }

    @classmethod
    def of_batch(cls, batch: dict[str, torch.Tensor], policy: Policy | None = None, **known: Any) -> "Tokens":
        """
        The tokens that the loss counts of a rollout batch or a micro-batch: sampled by the policy, neither padding nor
        a tool's.

        Args:
            batch (`dict`): With `completion_ids`, `completion_mask`, `advantages` and perhaps `tool_mask`, as in TRL.
            policy ([`Policy`], *optional*), **known: As in the class.
        """
        mask = batch["completion_mask"].bool()
        if "tool_mask" in batch:
            mask &= batch["tool_mask"].bool()
        return cls(batch["completion_ids"], mask, batch["advantages"], policy=policy, **known)

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
        return name in self._known

    @property
    def policy(self) -> Policy:
        """The policy in training. Raises `RuntimeError` where there is none, as in `of_micro_batch`."""
        if self._policy is None:
            raise RuntimeError(
                "These tokens have no policy to run. In `of_micro_batch` there are `log_probs`, `old_log_probs` and "
                "`entropies`; hidden states and forward passes are for `of_rollout`."
            )
        return self._policy

    @property
    def log_probs(self) -> torch.Tensor:  # (N,)
        """log π of each token under the sampling temperature: at the rollout; in a micro-batch, at present."""
        return self._output("log_probs")

    @property
    def old_log_probs(self) -> torch.Tensor:  # (N,)
        """log π at the rollout."""
        return self._known["old_log_probs"] if self.knows("old_log_probs") else self.log_probs

    @property
    def entropies(self) -> torch.Tensor:  # (N,)
        """Entropy of the distribution that each token was sampled from, in nats."""
        return self._output("entropies")

    @property
    def hidden(self) -> HiddenStates:  # (N, d)
        """The final hidden states that predicted the tokens, as they enter the LM head. They are read in chunks."""
        return self._output("hidden")

    @property
    def head(self) -> LMHead:
        """The layer that turns hidden states into log-probabilities."""
        if not self.knows("head"):
            self._known["head"] = self.policy.head()
        return self._known["head"]

    def log_probs_at(self, rows: torch.Tensor) -> torch.Tensor:  # (n,)
        """
        Log-probabilities of the n tokens of some completions at the model's present parameters, differentiable.

        Args:
            rows (`torch.Tensor` of shape `(b,)`): Indices of the completions.
        """
        mask = self.mask[rows]
        positions = mask.any(dim=0).nonzero()[:, 0]
        length = int(positions[-1]) + 1 if len(positions) else 1
        return self.policy.log_probs_at(rows, length)[mask[:, :length]]

    def _output(self, name: str) -> Any:
        """`log_probs`, `entropies` or `hidden`. One forward pass gives all that it can; what is known stays."""
        if not self.knows(name):
            outputs = self.policy.outputs(hidden=name == "hidden")
            found: dict[str, Any] = {name: self.flat(getattr(outputs, name)) for name in ("log_probs", "entropies")}
            if outputs.hidden is not None:
                found["hidden"] = outputs.hidden
            self._known = found | self._known
        return self._known[name]
