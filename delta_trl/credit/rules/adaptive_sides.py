r"""
A weight of losers relative to winners, chosen for each rollout batch to maximise its gradient's signal-to-noise ratio.

Take one prompt with pass rate p, q = 1 - p. A binary reward, normalised in the group, gives winners the advantage
sqrt(q/p) and losers -sqrt(p/q). With G = ∇θ log π(y) of a whole response, the n responses contribute g± = Σ A G over
each side. E[G] = 0 over all responses, so with d = E[G | win] we have E[G | lose] = -d p/q, and

    E[g+] = n p sqrt(q/p) d = n sqrt(p q) d                  Var[g+] ≈ n p (q/p) τ+² = n q τ+²
    E[g-] = n q sqrt(p/q) d p/q = n sqrt(p q) d (p/q)        Var[g-] ≈ n q (p/q) τ-² = n p τ-²

with τ±² the variance of G on each side. Both point along d, so that a g+ + b g- does for any a, b >= 0. Its ratio of
signal to noise, (a s+ + b s-)² / (a² Var+ + b² Var-) with s± = |E[g±]|, is greatest where a : b = s+/Var+ : s-/Var-.
Here s-/s+ = p/q and Var-/Var+ = (p/q) (τ-²/τ+²): the pass rate cancels, and b/a = τ+²/τ-².

This holds for losses that sum over tokens (DAPO's, Dr. GRPO's, BNPO's). For a loss that divides each response by its
length, G would have to be divided, too. Two things are ignored: g+ and g- share their group's mean; and p, d and τ
differ between prompts, so that one b is best only for a batch of similar prompts. Second moments replace the
variances, so that a prompt does not need two winners: ‖E[G | side]‖² is a few hundredths of E‖G‖² on the study's start
models.

Σ‖G‖² over a side is E‖Σ ε G‖² for random signs ε, which takes one backward pass per side. The estimate is good because
the gradients of different responses are nearly orthogonal. G is over all trainable parameters: the gradient of the LM
head alone does not show the rare losers with enormous gradients that make the difference.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from ..coefficients import split_sides
from ..distributed import all_gather, all_reduce
from ..gradients.full import FullGradients
from ..options import check_backward
from ..rule import TokenCredit
from ..tokens import Credit, Tokens
from .shared import with_mean_one


@dataclass
class AdaptiveSides(TokenCredit):
    r"""
    One weight for the tokens of losers, measured on the rollout batch; winners have 1:

        b = E‖G‖² of winners / E‖G‖² of losers,     G = ∇θ log π(y) of a whole response

    It maximises the signal-to-noise ratio of the gradient of DAPO's loss if prompts are alike and rewards are 0 or 1.
    It has no parameter. As with [`SideWeights`], all tokens of a side have the same weight, and weights are divided by
    their mean. It costs a forward and a backward pass over the rollout batch, up to two if ranks have different sides.
    """

    def of_rollout(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        here = torch.stack([tokens.padded(side.float()).any(dim=1).sum() for side in sides])  # responses of each side
        # every rank makes as many forwards as the one with the most responses
        passed, responses = all_reduce(here.clone(), "MAX"), all_reduce(here)
        if not responses.all():
            return Credit(torch.ones_like(tokens.advantages), {"losers": math.nan}, neutral=True)
        signs = _signs(tokens)[tokens.row]
        moments = []
        for side, count in zip(sides, responses.tolist(), strict=True):
            gradients = FullGradients.of(tokens, only=side)
            moments.append(gradients.square(gradients.combine(signs * side)) / count)
        passes = float(passed.sum()) / max(len(tokens.mask), 1)
        metrics = {"losers": math.nan, "extra_forward_passes": passes}
        if not all(0 < moment < math.inf for moment in moments):
            return Credit(torch.ones_like(tokens.advantages), metrics, neutral=True)
        metrics["losers"] = moments[0] / moments[1]
        weights = torch.where(sides[1], metrics["losers"], 1.0)
        return Credit(with_mean_one(weights, sides), metrics)

    def check(self, trainer: Any) -> None:
        check_backward(trainer, "AdaptiveSides", "SideWeights, whose weights are constant")


def _signs(tokens: Tokens) -> torch.Tensor:  # (B,)
    """1 or -1 at random for every completion. Does not depend on how completions are spread over ranks."""
    of_all_ranks, first = all_gather(tokens.mask.any(dim=1).float())
    generator = torch.Generator().manual_seed(int(all_reduce(tokens.ids.sum())))
    signs = torch.randint(0, 2, (len(of_all_ranks),), generator=generator).mul(2.0).sub(1.0)
    return signs[first : first + len(tokens.mask)].to(tokens.mask.device)
