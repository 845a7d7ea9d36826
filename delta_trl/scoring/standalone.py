"""Completions scored by a causal language model alone, without a trainer, as TRL's trainer scores them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.utils import add_fused_lm_head

from ..credit import LMHead, PolicyOutputs, Responses, TokenCredit, Tokens, make_rule
from ..credit.ranks import normalised_by_group
from .recorder import Recorder, backbone_of, without_adapter
from .texts import TokenTexts


@dataclass
class StandalonePolicy:
    """
    A causal language model without a trainer, at temperature 1, as the `policy` of [`Tokens`]. Gives the model TRL's
    fused LM head.

    Args:
        model (`PreTrainedModel`): The model. Must be in evaluation mode: dropout would make log-probabilities random.
        rows (`Sequence[dict]` of length B), tokenizer, micro_batch_size, progress: As in [`given_tokens`].

    Attributes:
        ids, mask (`torch.Tensor` of shape `(B, T)`): Completions, and which of their tokens are the policy's.
    """

    model: PreTrainedModel
    rows: Sequence[dict]
    tokenizer: PreTrainedTokenizerBase
    micro_batch_size: int
    progress: bool
    dtype: torch.dtype | None = None  # no autocast

    def __post_init__(self):
        self._completions = []
        self._turns = []
        for row in self.rows:
            ids = row["token_ids"]
            self._completions.append(ids)
            self._turns.append(row.get("turns") or [1] * len(ids))
        self.ids = self._padded(self._completions)
        self.mask = self._padded(self._turns) > 0
        self._causal = without_adapter(self.model)
        add_fused_lm_head(self._causal, 1.0, outputs=("log_probs", "entropy"))

    @torch.no_grad()
    def outputs(self, hidden: bool) -> PolicyOutputs:
        recorder = Recorder(backbone_of(self._causal) if hidden else None)
        every_row = torch.arange(len(self.mask), device=self.mask.device)
        recorder.expect(every_row, self.mask)
        pieces = every_row.split(self.micro_batch_size)
        log_probs = []
        entropies = []
        for rows in tqdm(pieces, desc="scoring", disable=not self.progress):
            of_rows = self._score(rows, recorder)
            log_probs.append(of_rows[0])
            entropies.append(of_rows[1])
        recorder.finish(self.mask)
        return PolicyOutputs(torch.cat(log_probs), torch.cat(entropies), recorder.hidden)

    def responses(self) -> Responses:
        read = TokenTexts(self.tokenizer)
        prompts = [row["prompt"] for row in self.rows]
        words = [read.decode(ids, skip_special_tokens=True) for ids in self._completions]
        prompt_ids = [row["prompt_ids"] for row in self.rows]
        return read.responses(prompts, words, self._completions, self._turns, {}, prompt_ids)

    def head(self) -> LMHead:
        return LMHead.of(self.model, 1.0)

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:  # (b, length)
        log_probs, _ = self._score(rows, Recorder())
        return log_probs[:, :length]

    def _score(self, rows: torch.Tensor, recorder: Recorder) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (b, T) of some rows."""
        inputs = []  # a prompt and its completion
        turns = []
        for i in rows.tolist():
            prompt = self.rows[i]["prompt_ids"]
            inputs.append(prompt + self._completions[i])
            turns.append([0] * len(prompt) + self._turns[i])
        ids = self._padded(inputs)  # (b, P + T)
        is_policy = self._padded(turns) > 0
        labels = ids.masked_fill(~is_policy, -100)
        output = recorder.run(self.model, len(rows), input_ids=ids, labels=labels, fused_lm_head=True)
        mask = self.mask[rows]

        def of_completions(values: torch.Tensor) -> torch.Tensor:  # (b, P + T - 1) -> (b, T)
            empty = torch.zeros_like(mask, dtype=torch.float32)
            return empty.masked_scatter(mask, values[is_policy[:, 1:]].float())

        return of_completions(output.log_probs), of_completions(output.entropy)

    def _padded(self, rows: list[list[int]]) -> torch.Tensor:
        """Rows as one tensor (b, longest). Padding on the right changes nothing before it."""
        return pad_sequence([torch.tensor(row, device=self.model.device) for row in rows], batch_first=True)


def group_advantages(rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:  # (B,), (B,) -> (B,)
    """Advantages over each group, as TRL's GRPO computes them. 0 where a reward is NaN."""
    scored = ~rewards.isnan()
    advantages = torch.zeros_like(rewards)
    advantages[scored] = normalised_by_group(rewards[scored], groups[scored])
    return advantages


def rule_without_training(name: str) -> TokenCredit:
    """A rule at the start of its life. Raises `ValueError` also for one that credits micro-batches."""
    rule = make_rule(name)
    if rule.credits_micro_batches:
        raise ValueError(f"rule {name!r} credits micro-batches, as the policy moves. There are none without training.")
    rule.load_state_dict({})
    return rule


def given_tokens(
    model: PreTrainedModel,
    rows: Sequence[dict],
    tokenizer: PreTrainedTokenizerBase,
    *,
    micro_batch_size: int,
    progress: bool = False,
) -> Tokens:
    """
    Turn given completions into the tokens of a rollout batch. Adds `advantage` to the rows: over each group as in
    GRPO, 0 without a reward.

    Args:
        model (`PreTrainedModel`): The policy that scores them.
        rows (`Sequence[dict]`):
            One for each completion, with `prompt`, `prompt_ids`, `token_ids`, `reward` (`None` if unknown) and
            `group`, the number of the prompt; perhaps with `turns`, the number of each token's turn, 0 for a tool's.
        tokenizer (`PreTrainedTokenizerBase`): For rules that read texts.
        micro_batch_size (`int`): Completions in a forward pass.
        progress (`bool`, *optional*, defaults to `False`): Whether scoring shows a progress bar.
    """
    policy = StandalonePolicy(model, rows, tokenizer, micro_batch_size, progress)
    device = policy.mask.device
    numbers = [torch.nan if row["reward"] is None else row["reward"] for row in rows]
    rewards = torch.tensor(numbers, dtype=torch.float32, device=device)
    groups = torch.tensor([row["group"] for row in rows], device=device)
    advantages = group_advantages(rewards, groups)
    for row, advantage in zip(rows, advantages.tolist(), strict=True):
        row["advantage"] = advantage
    known = {"rewards": rewards, "groups": groups, "policy": policy, "tokenizer": tokenizer}
    return Tokens(policy.ids, policy.mask, advantages, **known)
