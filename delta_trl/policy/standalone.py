"""Completions scored by a causal language model alone, without a trainer."""

from collections.abc import Sequence

import torch
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..credit import HiddenStates, LMHead, PolicyOutputs, Responses, Tokens
from .recorder import backbone_of
from .texts import TokenTexts


SLICE = 2**26  # logits at a time: 256 MiB in float32


class StandalonePolicy:
    """
    A causal language model without a trainer, as the `policy` of [`Tokens`].

    Args:
        model (`PreTrainedModel`): The model. Must be in evaluation mode: dropout would make log-probabilities random.
        prompts, completions (`Sequence[list[int]]` of length B): Token ids; no list is empty.
        temperature (`float`): The sampling temperature.
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
        temperature: float,
        micro_batch_size: int,
        progress: bool,
        responses: Responses | None = None,
    ):
        self.model, self.micro_batch_size = model, micro_batch_size
        self._prompts, self._completions = prompts, completions
        self._temperature, self._progress, self._responses = temperature, progress, responses
        self.ids = torch.zeros(len(completions), max(map(len, completions)), dtype=torch.long, device=model.device)
        self.mask = torch.zeros_like(self.ids, dtype=torch.bool)
        for i, completion in enumerate(completions):
            self.ids[i, : len(completion)] = torch.tensor(completion)
            self.mask[i, : len(completion)] = True

    @torch.no_grad()
    def outputs(self, hidden: bool) -> PolicyOutputs:
        """Computes logits from hidden states, a slice at a time, and checks a few against the model's own."""
        log_probs = torch.zeros(self.mask.shape, device=self.mask.device)
        entropies, states, head = torch.zeros_like(log_probs), [], self.head()
        size = max(1, SLICE // len(head.weight))
        rows = torch.arange(len(self.mask)).split(self.micro_batch_size)
        for some in tqdm(rows, desc="scoring", disable=not self._progress):
            ids, attention, predicts = self._inputs(some)
            h = backbone_of(self.model)(input_ids=ids, attention_mask=attention, use_cache=False)[0][predicts]
            tokens = self.ids[some][self.mask[some]]
            parts = []
            for part, own in zip(h.split(size), tokens.split(size), strict=True):
                distribution = head.logits(part)[0].log_softmax(dim=-1)
                entropy = -(distribution.exp() * distribution).nan_to_num(0.0).sum(dim=1)
                parts.append((distribution.gather(1, own[:, None])[:, 0].float(), entropy.float()))
            for values, found in zip((log_probs, entropies), zip(*parts, strict=True), strict=True):
                values[some] = values[some].masked_scatter(self.mask[some], torch.cat(found))
            if some[0] == 0:
                few = len(self._completions[0])
                head.check(h[:few], tokens[:few], self.log_probs_at(some[:1], few)[0])
            if hidden:
                states.append(h)
        return PolicyOutputs(log_probs, entropies, HiddenStates(states) if hidden else None)

    def responses(self) -> Responses:
        if self._responses is None:
            raise RuntimeError("These completions are known by their tokens alone: give their tokenizer.")
        return self._responses

    def head(self) -> LMHead:
        return LMHead.of(self.model, self._temperature)

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:  # (b, length)
        ids, attention, predicts = self._inputs(rows)
        longest = int(self.mask[rows].sum(dim=1).max())  # logits of the prompts are not needed
        start = int(predicts.any(dim=0).nonzero()[0])
        output = self.model(
            input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=ids.size(1) - start
        )
        log_probs = (output.logits[predicts[:, start:]].float() / self._temperature).log_softmax(dim=-1)
        mask = self.mask[rows, :longest]
        own = log_probs.gather(1, self.ids[rows, :longest][mask][:, None])[:, 0]
        return torch.zeros(mask.shape, dtype=own.dtype, device=own.device).masked_scatter(mask, own)[:, :length]

    def _inputs(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids and attention mask (b, P + T) of some rows, and the positions that predict a completion token."""
        sequences = [(self._prompts[i], self._completions[i]) for i in rows.tolist()]
        longest = max(len(prompt) + len(completion) for prompt, completion in sequences)
        ids = torch.zeros(len(sequences), longest, dtype=torch.long)
        attention, predicts = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for i, (prompt, completion) in enumerate(sequences):
            end = len(prompt) + len(completion)
            ids[i, :end] = torch.tensor(prompt + completion)
            attention[i, :end] = 1
            predicts[i, len(prompt) - 1 : end - 1] = True
        device = self.model.device
        return ids.to(device), attention.to(device), predicts.to(device)


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
    rewards = torch.tensor([torch.nan if row["reward"] is None else row["reward"] for row in rows])
    groups = torch.tensor([row["group"] for row in rows])
    for row, advantage in zip(rows, group_advantages(rewards, groups).tolist(), strict=True):
        row["advantage"] = advantage


def given_tokens(
    model: PreTrainedModel,
    rows: Sequence[dict],
    *,
    temperature: float = 1.0,
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
        temperature (`float`, *optional*, defaults to `1.0`): The sampling temperature.
        micro_batch_size (`int`, *optional*, defaults to `4`): Completions in a forward pass.
        progress (`bool`, *optional*, defaults to `False`): Whether scoring shows a progress bar.
        tokenizer (`PreTrainedTokenizerBase`, *optional*): For rules that read texts; rows then have `prompt`, too.
    """
    prompts, completions = ([row[name] for row in rows] for name in ("prompt_ids", "token_ids"))
    responses = None
    if tokenizer is not None:
        texts = list(map(TokenTexts(tokenizer).of_response, completions))
        words = ["".join(filter(None, row)) for row in texts]
        responses = Responses([row["prompt"] for row in rows], words, completions, texts, {})
    policy = StandalonePolicy(model, prompts, completions, temperature, micro_batch_size, progress, responses)
    device = policy.mask.device
    rewards = [torch.nan if row["reward"] is None else row["reward"] for row in rows]
    return Tokens(
        policy.ids,
        policy.mask,
        torch.tensor([row["advantage"] for row in rows], dtype=torch.float32, device=device),
        rewards=torch.tensor(rewards, dtype=torch.float32, device=device),
        groups=torch.tensor([row["group"] for row in rows], device=device),
        policy=policy,
    )
