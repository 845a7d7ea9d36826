"""The tokens of each response at which the policy was most uncertain keep their weight."""

from dataclasses import dataclass

import torch

from ..tokens import Tokens
from .shared import TopOfResponse


@dataclass
class Entropy(TopOfResponse):
    """
    Like [`Surprisal`], by the entropy of the distribution that the token was sampled from. The forking tokens of
    Wang et al. (arXiv 2506.01939) are a quantile over the batch instead: TRL's `top_entropy_quantile`.

    Args:
        fraction, side, rest: As in [`Surprisal`].
    """

    def token_scores(self, tokens: Tokens) -> torch.Tensor:
        return tokens.entropies
