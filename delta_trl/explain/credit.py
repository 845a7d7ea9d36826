"""Advantages of completions, and the coefficients that DelTA would train with if they were one rollout batch."""

import math

import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from ..credit import (
    FullGradients,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TopKHiddenGradients,
    token_coefficients,
)


TOP_K = 20  # of topk_hidden


def add_advantages(rows: list[dict]) -> None:
    """(r - mean) / (std + 1e-4) over each group, as in GRPO; 0 without a reward."""
    rewards = torch.tensor([math.nan if row["reward"] is None else row["reward"] for row in rows])
    groups = torch.tensor([row["group"] for row in rows])
    for group in groups.unique():
        inside = (groups == group) & ~rewards.isnan()
        r = rewards[inside]
        scaled = (r - r.mean()) / (r.std() + 1e-4) if len(r) > 1 else torch.zeros_like(r)
        rewards[inside] = scaled
    for row, advantage in zip(rows, rewards.nan_to_num(0.0).tolist(), strict=True):
        row["advantage"] = advantage


class Scorer:
    """
    Forward passes over micro-batches of rows. Tokens are numbered through the completions of all rows.

    Args:
        model (`PreTrainedModel`): The causal language model.
        rows (`list[dict]`): With `prompt_ids` and `token_ids`.
        batch_size (`int`): Rows in a pass.
    """

    def __init__(self, model: PreTrainedModel, rows: list[dict], batch_size: int):
        self.model = model
        self.batches = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]

    def predictions(self, i: int, hidden_states: bool = False):
        """Log-probabilities of the next token (n, V) and final hidden states (n, d) before each completion token."""
        sequences = [row["prompt_ids"] + row["token_ids"] for row in self.batches[i]]
        longest = max(map(len, sequences))
        ids = torch.zeros(len(sequences), longest, dtype=torch.long)
        attention, predicts = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for k, (row, sequence) in enumerate(zip(self.batches[i], sequences, strict=True)):
            ids[k, : len(sequence)] = torch.tensor(sequence)
            attention[k, : len(sequence)] = 1
            predicts[k, len(row["prompt_ids"]) - 1 : len(sequence) - 1] = True
        ids, attention, predicts = (x.to(self.model.device) for x in (ids, attention, predicts))
        output = self.model(
            input_ids=ids, attention_mask=attention, use_cache=False, output_hidden_states=hidden_states
        )
        log_probs = output.logits[predicts].float().log_softmax(dim=-1)
        return log_probs, output.hidden_states[-1][predicts] if hidden_states else None

    def tokens(self, i: int) -> torch.Tensor:  # (n,)
        ids = [token for row in self.batches[i] for token in row["token_ids"]]
        return torch.tensor(ids, dtype=torch.long, device=self.model.device)

    def log_probs(self, i: int) -> torch.Tensor:  # (n,)
        return self.predictions(i)[0].gather(1, self.tokens(i)[:, None])[:, 0]

    @torch.no_grad()
    def everything(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of all N tokens: ids (N,), log-probabilities (N,), entropies (N,) and hidden states (N, d)."""
        parts = []
        for i in tqdm(range(len(self.batches)), desc="scoring"):
            predictions, hidden = self.predictions(i, hidden_states=True)
            tokens = self.tokens(i)
            log_probs = predictions.gather(1, tokens[:, None])[:, 0]
            entropies = -(predictions.exp() * predictions).nan_to_num(0.0).sum(dim=1)
            parts.append((tokens, log_probs, entropies, hidden))
        return tuple(torch.cat(x) for x in zip(*parts, strict=True))


def add_credit(rows: list[dict], model: PreTrainedModel, token_gradient: str, batch_size: int) -> torch.Tensor:
    """
    Add `coefficients`, `log_probs` and `entropies` to the rows.

    Args:
        rows (`list[dict]`): With `prompt_ids`, `token_ids` and `advantage`.
        model (`PreTrainedModel`): The causal language model.
        token_gradient (`str`): What stands for a token's gradient, as in [`~credit.DelTA`].
        batch_size (`int`): Rows in a forward pass.

    Returns:
        `torch.Tensor` of shape `(N,)`: The advantage of every token.

    Raises:
        ValueError: If the LM head does not reproduce the model's log-probabilities.
    """
    scorer = Scorer(model, rows, batch_size)
    tokens, log_probs, entropies, hidden = scorer.everything()
    lengths = [len(row["token_ids"]) for row in rows]
    advantages = torch.tensor([row["advantage"] for row in rows]).repeat_interleave(torch.tensor(lengths))
    if token_gradient == "output_row":
        gradients = OutputRowGradients(hidden, log_probs)
    elif token_gradient == "full":
        gradients = FullGradients(model, scorer.log_probs, len(scorer.batches))
    else:
        head = LMHead.of(model, temperature=1.0)
        head.check(hidden, tokens, log_probs)
        if token_gradient == "lm_head":
            gradients = LMHeadGradients(hidden, tokens, head)
        else:
            gradients = TopKHiddenGradients(hidden, tokens, head, min(TOP_K, len(head.weight)))
    coefficients = token_coefficients(gradients, advantages.to(model.device))
    values = {"coefficients": coefficients, "log_probs": log_probs, "entropies": entropies}
    for name, column in values.items():
        for row, part in zip(rows, column.cpu().split(lengths), strict=True):
            row[name] = part.tolist()
    return advantages
