"""The paper's control without information."""

from dataclasses import dataclass

from ..coefficients import in_range, split_sides
from ..options import check_range
from ..rule import Credit, TokenCredit, Tokens, uniform


@dataclass
class RandomCredit(TokenCredit):
    """
    The paper's control without information: λ uniform in its range where A ≠ 0, and λ_min elsewhere.

    Args:
        lambda_min, lambda_max (`float`, *optional*, defaults to `0.8` and `1.2`): The range.
        normalize_coefficients (`bool`, *optional*, defaults to `True`): Divide by the mean over the rollout batch.
    """

    arxiv = "2605.21467"

    lambda_min: float = 0.8
    lambda_max: float = 1.2
    normalize_coefficients: bool = True

    def __post_init__(self):
        check_range(self)

    def of_rollout(self, tokens: Tokens) -> Credit:
        A, sides = split_sides(tokens.advantages)
        alpha = uniform(tokens).to(A) * sides.any(dim=0)
        return Credit(in_range(alpha, self.lambda_min, self.lambda_max, self.normalize_coefficients).float())

    @property
    def reads_all_rows(self) -> bool:
        return False
