"""Advantages as TRL's GRPO makes them, for completions without a trainer."""

import torch


def group_advantages(rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:  # (B,), (B,) -> (B,)
    """(r - mean) / (std + 1e-4) over each group, 0 where a reward is NaN or alone."""
    advantages = torch.zeros_like(rewards)
    for group in groups.unique():
        inside = (groups == group) & ~rewards.isnan()
        r = rewards[inside]
        if len(r) > 1:
            advantages[inside] = (r - r.mean()) / (r.std() + 1e-4)
    return advantages
