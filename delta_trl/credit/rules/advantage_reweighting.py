"""Tokens that the policy was sure of count more (arXiv 2505.12929)."""

from dataclasses import dataclass

from ..options import check_number
from ..rule import TokenCredit
from ..tokens import Credit, Tokens


@dataclass
class AdvantageReweighting(TokenCredit):
    r"""
    w = α π + (1 - α): tokens that the policy was sure of count more (advantage reweighting, arXiv 2505.12929).

    Args:
        alpha (`float`, *optional*, defaults to `0.3`): α, in [0, 1].
    """

    arxiv = "2505.12929"

    alpha: float = 0.3

    def __post_init__(self):
        check_number(self, "alpha", "[0, 1]")

    def of_rollout(self, tokens: Tokens) -> Credit:
        return Credit(self.alpha * tokens.log_probs.exp() + 1 - self.alpha)
