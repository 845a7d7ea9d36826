"""Notices when rewards teach nothing."""

import torch

from ..rewards.failures import without_middle


PATIENCE = 3  # rollout batches in a row


class ContrastWatch:
    """Rewards that are the same for all responses to a prompt have no advantage: nothing is learned from them."""

    def __init__(self):
        self._without = 0  # rollout batches in a row without contrast
        self._told = False

    def see(self, rewards: torch.Tensor, names: list[str], contrast: bool, truncated: float, completion: str) -> str:
        """
        Look at a rollout batch.

        Args:
            rewards (`torch.Tensor` of shape `(completions, functions)`): NaN where there is none.
            names (`list[str]`): Of the functions.
            contrast (`bool`): Whether the rewards of any group differ.
            truncated (`float`): Share of the completions that were cut off.
            completion (`str`): One of them.

        Returns:
            `str`: What to warn of, once; else empty.
        """
        self._without = 0 if contrast else self._without + 1
        if self._without < PATIENCE or self._told:
            return ""
        self._told = True
        seen = ", ".join(f"{name} {_describe(column)}" for name, column in zip(names, rewards.T, strict=True))
        text = without_middle(completion, 400)
        return (
            f"No group had responses with different rewards in {PATIENCE} rollout batches in a row: nothing was "
            f"learned from them. The last one's {len(rewards)} rewards: {seen}; {truncated:.0%} of the completions "
            f"were cut off at max_completion_length. One completion: {text!r}. Check that the completion has what the "
            "reward looks for (the prompt must ask for it) and that the reward's columns are right; raise "
            "max_completion_length if answers are cut off; choose prompts that the model solves sometimes."
        )


def _describe(rewards: torch.Tensor) -> str:
    known = rewards[~rewards.isnan()]
    if not len(known):
        return "all None"
    low, high = known.min().item(), known.max().item()
    values = f"all {low:g}" if low == high else f"{low:g} to {high:g}"
    missing = len(rewards) - len(known)
    return values + (f" ({missing} None)" if missing else "")
