"""Completions scored by a causal language model alone, without a trainer, as TRL's trainer scores them."""

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.utils import add_fused_lm_head

from ..credit import LMHead, PolicyOutputs, Responses, Tokens
from .recorder import Recorder, backbone_of
from .stand_in import StandIn
from .texts import TokenTexts


class StandalonePolicy:
    """
    A causal language model without a trainer, at temperature 1, as the `policy` of [`Tokens`]. Gives the model TRL's
    fused LM head.

    Args:
        model (`PreTrainedModel`): The model. Must be in evaluation mode: dropout would make log-probabilities random.
        prompts, completions (`Sequence[list[int]]` of length B): Token ids; no list is empty.
        micro_batch_size (`int`): Completions in a forward pass.
        progress (`bool`): Whether scoring shows a progress bar.
        responses (`Responses`, *optional*): The completions in words, for rules that read them.
    """

    dtype: torch.dtype | None = None  # no autocast

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[list[int]],
        completions: Sequence[list[int]],
        micro_batch_size: int,
        progress: bool,
        responses: Responses | None = None,
    ):
        self.model, self.micro_batch_size = model, micro_batch_size
        self._progress, self._responses = progress, responses
        self._prompts, self._prompt_mask = _padded(prompts, "left", model.device)  # (B, P)
        self.ids, self.mask = _padded(completions, "right", model.device)  # (B, T)
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model  # within PEFT
        add_fused_lm_head(causal, 1.0, outputs=("log_probs", "entropy"))

    @torch.no_grad()
    def outputs(self, hidden: bool) -> PolicyOutputs:
        recorder = Recorder(backbone_of(self.model) if hidden else None, "device")
        recorder.begin(self.mask)
        every_row = torch.arange(len(self.mask))
        stand_in = StandIn(self.model, None, order=every_row.tolist(), recorder=recorder)
        pieces = tqdm(every_row.split(self.micro_batch_size), desc="scoring", disable=not self._progress)
        scored = [self._score(stand_in, rows) for rows in pieces]
        recorder.log_probs, recorder.entropies = map(torch.cat, zip(*scored, strict=True))
        return PolicyOutputs(recorder.log_probs, recorder.entropies, recorder.hidden)

    def responses(self) -> Responses:
        if self._responses is None:
            raise RuntimeError("These completions are known by their tokens alone: give their tokenizer.")
        return self._responses

    def head(self) -> LMHead:
        return LMHead.of(self.model, 1.0)

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:  # (b, length)
        return self._score(self.model, rows)[0][:, :length]

    def _score(self, model: Callable, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (b, T) of some rows, run at the width of the longest of them."""
        prompt_mask, mask = self._prompt_mask[rows], self.mask[rows]
        before, after = int(prompt_mask.sum(dim=1).max()), int(mask.sum(dim=1).max())
        prompt_mask, mask = prompt_mask[:, -before:], mask[:, :after]
        ids = torch.cat([self._prompts[rows, -before:], self.ids[rows, :after]], dim=1)
        output = model(
            input_ids=ids,
            attention_mask=torch.cat([prompt_mask, mask], dim=1).long(),
            labels=ids.masked_fill(~pad(mask, (before, 0)), -100),
            fused_lm_head=True,
        )
        missing = self.ids.size(1) - after
        log_probs, entropies = (values[:, -after:].float() for values in (output.log_probs, output.entropy))
        return pad(log_probs, (0, missing)), pad(entropies, (0, missing))


def _padded(rows: Sequence[list[int]], side: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask (B, longest) of rows with padding on one side."""
    ids = pad_sequence([torch.tensor(row) for row in rows], True, 0, side)
    mask = pad_sequence([torch.ones(len(row), dtype=torch.bool) for row in rows], True, False, side)
    return ids.to(device), mask.to(device)


def group_advantages(rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:  # (B,), (B,) -> (B,)
    """
    (r - mean) / (std + 1e-4) over each group, as TRL's GRPO computes it. 0 where a reward is NaN, and where all of its
    group are equal (which differ from their mean by rounding).
    """
    advantages = torch.zeros_like(rewards)
    for group in groups.unique():
        inside = (groups == group) & ~rewards.isnan()
        r = rewards[inside]
        if len(r.unique()) > 1:
            advantages[inside] = (r - r.mean()) / (r.std() + 1e-4)
    return advantages


def add_advantages(rows: Sequence[dict]) -> None:
    """Add `advantage` to rows with `reward` and `group`: over each group as in GRPO, 0 without a reward."""
    groups = torch.tensor([row["group"] for row in rows])
    for row, advantage in zip(rows, group_advantages(_rewards(rows), groups).tolist(), strict=True):
        row["advantage"] = advantage


def _rewards(rows: Sequence[dict]) -> torch.Tensor:
    return torch.tensor([torch.nan if row["reward"] is None else float(row["reward"]) for row in rows])


def given_tokens(
    model: PreTrainedModel,
    rows: Sequence[dict],
    *,
    micro_batch_size: int = 4,
    progress: bool = False,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Tokens:
    """
    Turn given completions into the tokens of a rollout batch.

    Args:
        model (`PreTrainedModel`): The policy that scores them.
        rows (`Sequence[dict]`):
            One for each completion, with `prompt_ids`, `token_ids`, `advantage`, `reward` (`None` if unknown) and
            `group`, the number of the prompt.
        micro_batch_size (`int`, *optional*, defaults to `4`): Completions in a forward pass.
        progress (`bool`, *optional*, defaults to `False`): Whether scoring shows a progress bar.
        tokenizer (`PreTrainedTokenizerBase`, *optional*): For rules that read texts; rows then have `prompt`, too.
    """
    prompts, completions = ([row[name] for row in rows] for name in ("prompt_ids", "token_ids"))
    responses = None
    if tokenizer is not None:
        read = TokenTexts(tokenizer)
        texts, turns = zip(*(read.of_turns(ids, [True] * len(ids)) for ids in completions), strict=True)
        words = ["".join(turn.text for turn in row) for row in turns]
        responses = Responses([row["prompt"] for row in rows], words, completions, {}, list(texts), list(turns))
    policy = StandalonePolicy(model, prompts, completions, micro_batch_size, progress, responses)
    device = policy.mask.device
    return Tokens(
        policy.ids,
        policy.mask,
        torch.tensor([row["advantage"] for row in rows], dtype=torch.float32, device=device),
        rewards=_rewards(rows).to(device),
        groups=torch.tensor([row["group"] for row in rows], device=device),
        policy=policy,
    )
