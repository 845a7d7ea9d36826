"""The paper's token selection: plain weights on a part of the tokens."""

from dataclasses import dataclass

import torch

from ...arguments.values import check_values
from ..coefficients import divide_by_mean, split_sides
from ..ranks import all_gather
from ..rule import Tokens, uniform
from .changed import ChangedCredit


@dataclass
class Selected(ChangedCredit):
    """
    The paper's token selection: a fraction of the tokens with A ≠ 0 keeps weight 1, the others get 0. Tokens with
    A = 0 do not train; they keep 1 and count in the mean. Of equal weights, the first ones are chosen.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): The rule whose weights select.
        which (`str`, *optional*, defaults to `"top"`): The `"top"` or the `"bottom"` by weight, or `"random"` ones.
        fraction (`float`, *optional*, defaults to `0.5`): The part of the tokens to keep, in (0, 1].
        normalize_coefficients (`bool`, *optional*, defaults to `True`): Divide by the mean over the rollout batch.
    """

    which: str = "top"
    fraction: float = 0.5
    normalize_coefficients: bool = True

    def __post_init__(self):
        check_values(self, which=("top", "bottom", "random"), fraction="(0, 1]")

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:
        _, sides = split_sides(tokens.advantages)
        candidates = sides.any(dim=0)
        key = uniform(tokens).to(weights) if self.which == "random" else weights
        key = key[candidates] if self.which == "bottom" else -key[candidates]
        keys, start = all_gather(key)
        n_chosen = max(1, round(self.fraction * len(keys)))
        smallest = keys.argsort(stable=True)[:n_chosen]
        chosen = torch.zeros_like(keys)
        chosen[smallest] = 1
        selected = torch.ones_like(weights)
        selected[candidates] = chosen[start : start + len(key)]
        return divide_by_mean(selected, 0.0) if self.normalize_coefficients else selected
