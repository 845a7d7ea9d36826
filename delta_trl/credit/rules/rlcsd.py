r"""
RLCSD: how much more probable a token is after a sibling that was right than after siblings that were wrong
(arXiv 2606.11709; formula and defaults of its authors' code).

    e_t = log π(y_t | x, y_c, y_<t) - [log Σ_k π(y_t | x, y_w,k, y_<t) - log K]
    r_t = clamp(strength · tanh(e_t / τ), -clip, clip)
    A'_t = A + r_t where |r_t| > threshold, cut off at 0 so as to keep the sign of A;   w_t = A'_t / A

Siblings are the other completions of the prompt. y_c is the next one in the group with A > 0; y_w,1 … y_w,K are the
next ones with A < 0, up to four. w = 1 where A = 0, and where a completion lacks siblings of one kind.

Departures: a sibling is a turn of its own before the prompt (prompt, sibling, prompt), without the text that the
authors put around it; the teacher is the policy at the rollout, not a copy that is renewed every ten steps; selected
and other tokens share one mean in the loss, where the authors take one mean of each.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from ..distributed import all_reduce
from ..options import check_number, check_whole_groups
from ..rule import TokenCredit
from ..tokens import Credit, Tokens


@dataclass
class RLCSD(TokenCredit):
    """
    A token counts more in winners and less in losers if a right sibling in the prompt makes it more probable than
    wrong siblings do. Costs a forward pass for the right sibling and one for each wrong one, each three times as long.

    Args:
        strength (`float`, *optional*, defaults to `0.5`): Largest change of the advantage.
        temperature (`float`, *optional*, defaults to `0.02`): τ.
        threshold (`float`, *optional*, defaults to `0.02`): Smaller changes are set to 0.
        clip (`float`, *optional*, defaults to `2.0`): Bound of a change.
        wrong (`int`, *optional*, defaults to `4`): K, the largest number of wrong siblings.
    """

    arxiv = "2606.11709"

    strength: float = 0.5
    temperature: float = 0.02
    threshold: float = 0.02
    clip: float = 2.0
    wrong: int = 4

    def __post_init__(self):
        for name in ("strength", "temperature", "wrong"):
            check_number(self, name, "(0, inf)")
        if not isinstance(self.wrong, int):
            raise ValueError(f"wrong={self.wrong!r}: expected a whole number of siblings.")
        check_number(self, "clip", "(0, inf]")
        check_number(self, "threshold", "[0, inf)")

    def of_rollout(self, tokens: Tokens) -> Credit:
        right, wrong = (_siblings(tokens, sign, count) for sign, count in ((1, 1), (-1, self.wrong)))  # (B, 1), (B, K)
        both = tokens.flat((right[:, 0] >= 0) & (wrong[:, 0] >= 0))
        after_right = tokens.log_probs_after(right[:, 0])
        after_wrong = torch.stack([tokens.log_probs_after(column) for column in wrong.T])  # (K, N)
        there = torch.stack([tokens.flat(column >= 0) for column in wrong.T])
        mean = after_wrong.masked_fill(~there, -math.inf).logsumexp(dim=0) - there.sum(dim=0).log()
        evidence = torch.where(both, after_right - mean, 0.0)
        change = (self.strength * torch.tanh(evidence / self.temperature)).clamp(-self.clip, self.clip)
        A = tokens.advantages.to(change)
        change = torch.where((change.abs() > self.threshold) & (A != 0), change, 0.0)
        weights = ((A + change) / torch.where(A == 0, 1.0, A)).clamp(min=0)
        return Credit(torch.where(A == 0, 1.0, weights), scores=evidence * A.sign())

    def check(self, trainer: Any) -> None:
        check_whole_groups("RLCSD", trainer)
        if hasattr(trainer.processing_class, "tokenizer"):  # a processor of several modalities
            raise ValueError("RLCSD puts completions into prompts, which it can do with text only.")


def _siblings(tokens: Tokens, sign: int, count: int) -> torch.Tensor:
    """
    For each completion, the indices of up to `count` others of its prompt whose advantage has the given sign: (B, n),
    padded with -1. n is the largest number that any completion of any rank has, at least 1.
    """
    B = len(tokens.mask)
    group, advantage = (torch.zeros(B, dtype=x.dtype, device=x.device) for x in (tokens.group, tokens.advantages))
    group[tokens.row], advantage[tokens.row] = tokens.group, tokens.advantages
    groups, signs, filled = group.tolist(), advantage.sign().tolist(), tokens.mask.any(dim=1).tolist()
    members: dict[int, list[int]] = {}
    for row in range(B):
        if filled[row]:
            members.setdefault(groups[row], []).append(row)
    chosen: list[list[int]] = [[] for _ in range(B)]
    for rows in members.values():
        for i, row in enumerate(rows):
            around = rows[i + 1 :] + rows[:i]
            chosen[row] = [b for b in around if signs[b] == sign][:count]
    most = torch.tensor(max([1, *map(len, chosen)]), device=tokens.mask.device)
    n = int(all_reduce(most, "MAX"))
    numbers = [row + [-1] * (n - len(row)) for row in chosen]
    return torch.tensor(numbers, dtype=torch.long, device=tokens.mask.device).view(B, n)
