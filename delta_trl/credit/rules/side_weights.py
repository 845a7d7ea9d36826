"""One weight per side: the baseline for rules that weigh winners and losers differently."""

from dataclasses import dataclass

import torch

from ...arguments.values import NOT_NEGATIVE, check_values
from ..coefficients import split_sides
from ..ranks import mean_over_ranks
from ..rule import Credit, TokenCredit, Tokens


@dataclass
class SideWeights(TokenCredit):
    """
    One weight for the tokens of winners (A > 0) and one for those of losers (A < 0), divided by their mean over all
    tokens with A ≠ 0, so that the step does not shrink with the weights. All tokens of a side have the same weight: a
    rule that weighs the sides differently has to beat this one.

    Without the losers (`losers=0`) it is rejection sampling with the advantages as weights.

    Args:
        winners, losers (`float`, *optional*, defaults to `1.0` and `0.2`): The weights, not negative.
    """

    winners: float = 1.0
    losers: float = 0.2

    def __post_init__(self):
        check_values(self, winners=NOT_NEGATIVE, losers=NOT_NEGATIVE)
        if self.winners == self.losers == 0:
            raise ValueError("winners=0, losers=0: nothing would be left to train on.")

    def of_rollout(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        is_winner, is_loser = sides
        trains = is_winner | is_loser
        weights = torch.where(is_winner, self.winners, torch.where(is_loser, self.losers, 1.0))
        mean = mean_over_ranks(weights, trains[None])
        if not mean > 0:  # only the side of weight 0 has tokens
            return Credit(torch.ones_like(weights))
        return Credit(torch.where(trains, weights / mean, 1.0))

    @property
    def reads_all_rows(self) -> bool:
        return False
