"""
The interface of a rule of token credit (docs/token_credit.md): its input, the tokens of a rollout batch; the rule; its
output, their credit, and the checks of that.
"""

import difflib
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from ..arguments.errors import UsageError, users_code
from .head import LMHead
from .hidden_states import HiddenStates
from .policy_outputs import Policy
from .ranks import all_gather


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
        step_rewards (`torch.Tensor` of shape `(N,)`, *optional*):
            For the report: the reward of the step that ends with a token, NaN where none ends.
    """

    # `Any`: what `checked_credit` returns always has both
    weights: Any = None
    metrics: dict[str, float] = field(default_factory=dict)
    neutral: bool = False
    advantages: Any = None
    step_rewards: torch.Tensor | None = None


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
        seed (`tuple[int, ...]`, *optional*): What [`uniform`] draws from, the same on all ranks.
        tokenizer (`Any`, *optional*): The policy's, for rules that look for a token or a text.

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
        seed: tuple[int, ...] | None = None,
        tokenizer: Any = None,
    ):
        self.mask = mask.bool()
        self.seed = seed
        self.tokenizer = tokenizer
        self._policy = policy
        self.ids = self.flat(ids)
        self.advantages = self.flat(advantages)
        rows = torch.arange(len(mask), device=mask.device)
        if rewards is None:
            rewards = torch.full_like(rows, torch.nan, dtype=torch.float32)
        if groups is None:
            groups = torch.zeros_like(rows)
        self.rewards = self.flat(rewards)
        self.row = self.flat(rows)
        self.group = self.flat(groups)
        per_token = {"log_probs": log_probs, "old_log_probs": old_log_probs, "entropies": entropies}
        self._known: dict[str, Any] = {}
        for name, values in per_token.items():
            if values is not None:
                self._known[name] = self.flat(values)
        if hidden is not None:
            self._known["hidden"] = hidden
        if head is not None:
            self._known["head"] = head

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
            mask = mask & batch["tool_mask"].bool()
        return cls(batch["completion_ids"], mask, batch["advantages"], policy=policy, **known)

    def __len__(self) -> int:
        return len(self.ids)

    def flat(self, values: torch.Tensor) -> torch.Tensor:  # (B,) or (B, T) -> (N,)
        """Values of responses or of all positions, for the N tokens."""
        if values.ndim == 1:
            values = values[:, None].expand(self.mask.shape)
        return values[self.mask]

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
            of_pass: dict[str, Any] = {
                "log_probs": self.flat(outputs.log_probs),
                "entropies": self.flat(outputs.entropies),
            }
            if outputs.hidden is not None:
                of_pass["hidden"] = outputs.hidden
            self._known = of_pass | self._known
        return self._known[name]


class TokenCredit:
    """
    A rule of token credit: how much of a response's advantage each of its tokens gets. This base changes nothing.

    Override the hook whose timing fits; both are called on every rank. Hooks are collective: on every rank they must
    ask for the same values and call the same sums, in the same order. Options should be dataclass fields.

    Attributes:
        arxiv (`str`, *optional*): The arXiv number of the rule's paper, for the model card.
    """

    arxiv: ClassVar[str | None] = None

    def of_rollout(self, tokens: Tokens) -> Credit | None:
        """The credit of a rollout batch before it is trained on, for all optimiser steps over it."""
        return None

    def of_micro_batch(self, tokens: Tokens) -> Credit | None:
        """
        The credit of a micro-batch in training. `tokens.log_probs` are those of the present policy, from the forward
        pass that the loss makes anyway.
        """
        return None

    @property
    def needs_hidden_states(self) -> bool:
        """
        Whether `of_rollout` reads hidden states. They are then kept from TRL's own scoring pass, if it makes one. A
        rule that reads them without saying so costs a forward pass.
        """
        return False

    @property
    def reads_all_rows(self) -> bool:
        """
        Whether `of_rollout` reads log-probabilities, entropies or hidden states of responses without advantage, or
        gives such responses an advantage. A rule that does neither says `False`, which saves time: they are not
        scored, and these three are 0 there.
        """
        return True

    def check(self, trainer: Any) -> None:
        """
        Raise `ValueError`, with a suggested fix, if it cannot work with the trainer. Called when a trainer is
        constructed. `explain` and `audit` have none: what a rule needs of the tokenizer, `tokens.tokenizer` has.
        """

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on exactly: tensors and plain values, saved with every checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state`, or start anew if it is empty. Called whenever training, `explain` or `audit` starts."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def credits_rollouts(self) -> bool:
        """Whether `of_rollout` is overridden."""
        return type(self).of_rollout is not TokenCredit.of_rollout

    @property
    def credits_micro_batches(self) -> bool:
        """Whether `of_micro_batch` is overridden."""
        return type(self).of_micro_batch is not TokenCredit.of_micro_batch


def check_rule(rule: TokenCredit) -> None:
    """Raise `ValueError` for a subclass that overrides neither hook, for example because of a misspelt name."""
    kind = type(rule)
    if kind is TokenCredit or rule.credits_rollouts or rule.credits_micro_batches:
        return
    hint = ""
    for hook in ("of_rollout", "of_micro_batch"):
        for name in difflib.get_close_matches(hook, vars(kind), n=1):
            hint = f" Did you mean `{hook}` by `{name}`?"
    raise ValueError(f"{kind.__name__} overrides neither `of_rollout` nor `of_micro_batch`: it credits nothing.{hint}")


class TokenCreditError(UsageError):
    """A rule returned something that cannot be used in training."""


def checked_credit(rule: TokenCredit, hook: str, tokens: Tokens) -> Credit | None:
    """
    What a hook of a rule returns: weights and advantages of shape (N,) in float32, without gradient, and metrics as
    numbers. If the rule returns advantages, its weights are these divided by the response's advantage (1 where that is
    0).

    Raises:
        TokenCreditError: If it returns something else.
    """
    name = f"{type(rule).__name__}.{hook}"
    with users_code(f"The rule {rule!r} raised this in `{hook}`, on {len(tokens):,} tokens."):
        credit = getattr(rule, hook)(tokens)
    if credit is None:
        return None
    if not isinstance(credit, Credit) or (credit.weights is None) == (credit.advantages is None):
        raise TokenCreditError(
            f"{name} returned {type(credit)}: expected None, or a delta_trl.credit.Credit with either weights or "
            "advantages."
        )
    what, values = ("weights", credit.weights) if credit.advantages is None else ("advantages", credit.advantages)
    if not isinstance(values, torch.Tensor):
        raise TokenCreditError(f"{name} returned {what} of {type(values)}: expected a tensor.")
    if values.shape != tokens.ids.shape:
        hint = f" Leave out padding with `tokens.flat({what})`." if values.shape == tokens.mask.shape else ""
        raise TokenCreditError(
            f"{name} returned {what} of shape {tuple(values.shape)}: expected ({len(tokens)},), one for each of "
            f"the tokens.{hint}"
        )
    wrong = ~torch.isfinite(values)
    if not values.dtype.is_floating_point or wrong.any():
        got = f"{values[wrong][:3].tolist()} among its {what}" if wrong.any() else f"{what} of {values.dtype}"
        raise TokenCreditError(f"{name} returned {got}: expected finite floating-point numbers.")
    metrics = {metric: _number(name, metric, value) for metric, value in credit.metrics.items()}
    values = values.detach().float()
    if len(values) and not values.any():
        warnings.warn(f"{name} returned {what} that are all 0: they train nothing.", stacklevel=2)
    weights = advantages = values
    if what == "weights":
        if (values < 0).any():
            warnings.warn(f"{name} returned negative weights, which reverse the advantages of tokens.", stacklevel=2)
        advantages = tokens.advantages * values
    else:
        weights = torch.where(tokens.advantages == 0, 1.0, values / tokens.advantages)
    return replace(credit, weights=weights, metrics=metrics, advantages=advantages)


def _number(name: str, metric: str, value: Any) -> float:
    """A metric, for example a tensor with one element, as a number: checkpoints hold metrics as JSON."""
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TokenCreditError(
        f"{name} returned the metric {metric!r}: {value!r}: expected a number, NaN where it is undefined."
    )


def uniform(tokens: Tokens) -> torch.Tensor:
    """
    Random numbers in [0, 1) for the tokens, (N,) in float64. With `tokens.seed` they depend on that and on the number
    of the token's response over all ranks, not on how many ranks there are; else on torch's generator. Collective.
    """
    lengths = tokens.mask.sum(dim=1)  # (B,)
    _, first = all_gather(lengths)
    seed = tokens.seed or torch.randint(2**31, (1,)).tolist()
    drawn = [np.random.default_rng([*seed, first + row]).random(length) for row, length in enumerate(lengths.tolist())]
    return torch.from_numpy(np.concatenate([[], *drawn])).to(tokens.mask.device)
