r"""
The variance-optimal baseline of every position: instead of one baseline per response, one that depends on how much
gradient the responses of the group have accumulated up to this position.

    W_t = Σ_{s ≤ t} (1 - 2 π_s + Σ_v p_v²)                   what the LM head's logits contribute to |∇ log π|²
    B_t = Σ_i W_t^i G^i / (Σ_i W_t^i + 1e-8)                  over the responses i of the group that reach t
    A_t = G - B_t,   w_t = A_t / A

G is the response's reward, A its advantage in training, so that w A is A_t: the scaling of the advantages by their
standard deviation is undone. Where A = 0, which does not train, w = 1; also where |A| is below 1e-5 of the largest
one, which is rounding. Where no other response reaches t, A_t = 0.

Source: the optimal token baseline of verl (`compute_optimal_token_baseline_advantage`), for rewards at the end.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ..distributed import all_reduce
from ..gradients.lm_head import LMHeadGradients
from ..options import check_whole_parameters
from ..rule import Requirements, TokenCredit
from ..tokens import Credit, Tokens


@dataclass
class OptimalTokenBaseline(TokenCredit):
    """
    Replaces the group's mean reward by the baseline with the least variance at every position. Weights may be
    negative: where a winner's reward is below the baseline of a position, the token there is pushed down. Steps are of
    the rewards' scale, as nothing divides by their standard deviation.
    """

    def of_rollout(self, tokens: Tokens) -> Credit:
        gradients = LMHeadGradients(tokens.hidden, tokens.ids, tokens.head, log_probs=tokens.log_probs)
        energy = 1 - 2 * tokens.log_probs.exp() + gradients.collision_probabilities()
        W = tokens.flat(tokens.padded(energy.double()).cumsum(dim=1))
        W = W * ~tokens.rewards.isnan()
        positions = torch.arange(tokens.mask.size(1), device=W.device)
        at = tokens.flat(positions.expand(tokens.mask.shape))
        longest = int(all_reduce(torch.tensor(tokens.mask.size(1), device=W.device), "MAX"))
        sums = W.new_zeros(2, tokens.n_groups, longest)
        G = tokens.rewards.nan_to_num(0.0).double()
        for part, values in zip(sums, (W * G, W), strict=True):
            part.index_put_((tokens.group, at), values, accumulate=True)
        weighted, mass = all_reduce(sums)
        baseline = (weighted / (mass + 1e-8))[tokens.group, at]
        A = tokens.advantages.double()
        largest = all_reduce(torch.cat([A.abs(), A.new_zeros(1)]).max(), "MAX")
        trains = A.abs() > 1e-5 * largest
        return Credit(torch.where(trains, (G - baseline) / torch.where(trains, A, 1.0), 1.0).float())

    def requirements(self) -> Requirements:
        return Requirements(hidden_states=True)

    def check(self, trainer: Any) -> None:
        check_whole_parameters(trainer, "OptimalTokenBaseline", "a rule that needs no LM head")
        if len(trainer.reward_funcs) > 1 and trainer.multi_objective_aggregation == "normalize_then_sum":
            raise ValueError(
                "OptimalTokenBaseline trains on the sum of the rewards, which "
                "multi_objective_aggregation='normalize_then_sum' asks not to: use 'sum_then_normalize'."
            )
