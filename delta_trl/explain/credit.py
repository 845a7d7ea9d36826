"""Advantages of completions, and the weights that a rule would train with if they were one rollout batch."""

import math

import torch
from transformers import PreTrainedModel

from ..credit import TokenCredit, credit_at_rollout, group_advantages
from ..policy.standalone import given_tokens


def add_advantages(rows: list[dict]) -> None:
    """Advantages over each group, as in GRPO; 0 without a reward."""
    rewards = torch.tensor([math.nan if row["reward"] is None else row["reward"] for row in rows])
    groups = torch.tensor([row["group"] for row in rows])
    for row, advantage in zip(rows, group_advantages(rewards, groups).tolist(), strict=True):
        row["advantage"] = advantage


def add_credit(rows: list[dict], model: PreTrainedModel, rule: TokenCredit, batch_size: int) -> torch.Tensor:
    """
    Add `coefficients`, `log_probs` and `entropies` to the rows.

    Args:
        rows (`list[dict]`): With `prompt_ids`, `token_ids`, `reward`, `group` and `advantage`.
        model (`PreTrainedModel`): The causal language model.
        rule (`TokenCredit`): The rule.
        batch_size (`int`): Rows in a forward pass.

    Returns:
        `torch.Tensor` of shape `(N,)`: The advantage of every token.

    Raises:
        ValueError: If the model shows no hidden states, or the LM head does not reproduce its log-probabilities.
    """
    tokens = given_tokens(model, rows, micro_batch_size=batch_size, progress=True)
    credit = credit_at_rollout(rule, tokens)
    values = {
        "coefficients": torch.ones_like(tokens.advantages) if credit is None else credit.weights,
        "log_probs": tokens.log_probs,
        "entropies": tokens.entropies,
    }
    lengths = [len(row["token_ids"]) for row in rows]
    for name, column in values.items():
        for row, part in zip(rows, column.cpu().split(lengths), strict=True):
            row[name] = part.tolist()
    return tokens.advantages.cpu()
