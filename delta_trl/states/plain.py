"""Tokens of completions that one already has, scored by a causal language model without a trainer."""

from collections.abc import Sequence

import torch
from torch import nn
from tqdm import tqdm
from transformers import PreTrainedModel

from ..credit import HiddenStates, LMHead, Scores, Tokens


SLICE = 2**26  # logits that are normalised at a time: 256 MiB in float32


class PlainPolicy:
    """
    A causal language model as the `policy` of [`Tokens`].

    Args:
        model (`PreTrainedModel`): The model; in evaluation mode, or its log-probabilities are random.
        prompts, completions (`Sequence[list[int]]` of length B): Token ids, at least one of each.
        temperature (`float`): Of the sampling.
        micro_batch_size (`int`): Completions in a forward pass.
        progress (`bool`): Whether scoring shows a bar.
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
    ):
        self.model, self.micro_batch_size = model, micro_batch_size
        self._prompts, self._completions = prompts, completions
        self._temperature, self._progress = temperature, progress
        self.ids = torch.zeros(len(completions), max(map(len, completions)), dtype=torch.long, device=model.device)
        self.mask = torch.zeros_like(self.ids, dtype=torch.bool)
        for i, completion in enumerate(completions):
            self.ids[i, : len(completion)] = torch.tensor(completion)
            self.mask[i, : len(completion)] = True

    @torch.no_grad()
    def scores(self, hidden: bool) -> Scores:
        log_probs = torch.zeros(self.mask.shape, device=self.mask.device)
        entropies, states = torch.zeros_like(log_probs), []
        rows = torch.arange(len(self.mask)).split(self.micro_batch_size)
        for some in tqdm(rows, desc="scoring", disable=not self._progress):
            seen: list[torch.Tensor] = []
            handle = backbone_of(self.model).register_forward_hook(lambda *call, seen=seen: seen.append(call[2][0]))
            try:
                logits, predicts = self._logits(some)
            finally:
                handle.remove()
            tokens = self.ids[some][self.mask[some]]
            size = max(1, SLICE // logits.size(1))
            parts = [
                _log_probs_and_entropies(part, own, self._temperature)
                for part, own in zip(logits.split(size), tokens.split(size), strict=True)
            ]
            for values, found in zip((log_probs, entropies), zip(*parts, strict=True), strict=True):
                values[some] = values[some].masked_scatter(self.mask[some], torch.cat(found))
            if hidden:
                states.append(seen[0][predicts])
        return Scores(log_probs, entropies, HiddenStates(states) if hidden else None)

    def head(self) -> LMHead:
        return LMHead.of(self.model, self._temperature)

    def log_probs_at(self, rows: torch.Tensor, length: int, plain: bool) -> torch.Tensor:  # (b, length)
        logits, _ = self._logits(rows)
        mask = self.mask[rows]
        log_probs = (logits.float() / self._temperature).log_softmax(dim=-1)
        own = log_probs.gather(1, self.ids[rows][mask][:, None])[:, 0]
        return torch.zeros(mask.shape, dtype=own.dtype, device=own.device).masked_scatter(mask, own)[:, :length]

    def _logits(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, V) of the n tokens of some completions, and which positions of the padded input predict them."""
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
        output = self.model(input_ids=ids.to(device), attention_mask=attention.to(device), use_cache=False)
        return output.logits[predicts.to(device)], predicts.to(device)


def _log_probs_and_entropies(
    logits: torch.Tensor, tokens: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    distribution = (logits.float() / temperature).log_softmax(dim=-1)
    entropies = -(distribution.exp() * distribution).nan_to_num(0.0).sum(dim=1)
    return distribution.gather(1, tokens[:, None])[:, 0], entropies


def backbone_of(model: nn.Module) -> nn.Module:
    """The module whose last hidden state enters the LM head. Raises `ValueError` if the model shows none."""
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


def given_tokens(
    model: PreTrainedModel,
    rows: Sequence[dict],
    *,
    temperature: float = 1.0,
    micro_batch_size: int = 4,
    progress: bool = False,
) -> Tokens:
    """
    The tokens of completions as a rollout batch.

    Args:
        model (`PreTrainedModel`): The policy that scores them.
        rows (`Sequence[dict]`):
            With `prompt_ids`, `token_ids`, `advantage`, `reward` (`None` where it is not known) and `group`, the
            number of the prompt from 0.
        temperature (`float`, *optional*, defaults to `1.0`): Of the sampling.
        micro_batch_size (`int`, *optional*, defaults to `4`): Completions in a forward pass.
        progress (`bool`, *optional*, defaults to `False`): Whether scoring shows a bar.
    """
    prompts, completions = ([row[name] for row in rows] for name in ("prompt_ids", "token_ids"))
    policy = PlainPolicy(model, prompts, completions, temperature, micro_batch_size, progress)
    device = policy.mask.device
    rewards = [torch.nan if row["reward"] is None else row["reward"] for row in rows]
    groups = torch.tensor([row["group"] for row in rows], device=device)
    return Tokens(
        policy.ids,
        policy.mask,
        torch.tensor([row["advantage"] for row in rows], dtype=torch.float32, device=device),
        rewards=torch.tensor(rewards, dtype=torch.float32, device=device),
        groups=groups,
        n_groups=int(groups.max()) + 1,
        policy=policy,
    )
