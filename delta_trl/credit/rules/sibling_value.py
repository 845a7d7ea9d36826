r"""
Sibling value: the mean advantage of other responses to the same prompt that passed through a similar hidden state.

With s_t the final hidden state after token t, and s_u^b the states of every other response b of the group,

    k_b(s) = exp(-(min_u |s - s_u^b| / h)²),   h = bandwidth · |std(s)|,
    V(s)   = Σ_b k_b(s) A_b / (Σ_b k_b(s) + 1e-3)
    j_t    = sign(A) (V(s_t) - V(s_{t-1}))

The jump j is large where a token turns away from siblings with the opposite outcome. Weights are
λ_min + (λ_max - λ_min) σ(j / γ), γ the mean of |j| over the side's tokens in the rollout batch, at least 1e-3. The
state before the first token counts, too. No state follows the last token, so its jump is 0.

The rule is this project's own. It needs hidden states and advantages of whole groups only.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ..coefficients import check_credit_options, in_range, split_sides
from ..distributed import all_reduce
from ..hidden_states import HiddenStates
from ..options import check_number, check_whole_groups
from ..rule import Requirements, TokenCredit
from ..tokens import Credit, Tokens


@dataclass
class SiblingValue(TokenCredit):
    """
    A token counts by how much it changes an estimate of the response's value, made from the other responses to its
    prompt.

    Time grows with the square of a group's tokens: n states of size d take n² d multiplications. Memory is bounded by
    a group's states and a block of distances.

    Args:
        bandwidth (`float`, *optional*, defaults to `0.1`): h, in units of the norm of the states' standard deviation.
        lambda_min, lambda_max (`float`, *optional*, defaults to `0.8` and `1.2`): Bounds of the weights.
        normalize_coefficients (`bool`, *optional*, defaults to `True`): Divide by the mean over the rollout batch.
    """

    bandwidth: float = 0.1
    lambda_min: float = 0.8
    lambda_max: float = 1.2
    normalize_coefficients: bool = True

    def __post_init__(self):
        check_credit_options(0, self.lambda_min, self.lambda_max)
        check_number(self, "bandwidth", "(0, inf)")

    def of_rollout(self, tokens: Tokens) -> Credit:
        A, sides = split_sides(tokens.advantages)
        jumps, hidden = torch.zeros_like(A), tokens.hidden
        assert isinstance(hidden, HiddenStates), "`requirements` says that they cannot be recomputed"
        for group in tokens.group.unique().tolist():
            members = (tokens.group == group).nonzero()[:, 0]
            states = torch.cat([block.to(torch.float32, copy=True) for _, block in hidden[members].chunks()])
            jumps[members] = sibling_jumps(states, A[members], tokens.row[members], self.bandwidth).to(A)
        jumps = jumps * A.sign()
        total, count = all_reduce(torch.stack([(sides * jumps.abs()).sum(dim=1), sides.sum(dim=1).to(A)]))
        if not (total > 0).any():
            return Credit(torch.ones_like(A).float(), neutral=True)
        gamma = (total / count.clamp(min=1)).clamp(min=1e-3)
        scaled = torch.where(sides[0], jumps / gamma[0], torch.where(sides[1], jumps / gamma[1], 0.0))
        weights = in_range(scaled.sigmoid(), self.lambda_min, self.lambda_max, self.normalize_coefficients)
        return Credit(weights.float(), scores=jumps)

    def requirements(self) -> Requirements:
        return Requirements(hidden_states=True, recomputable=False)

    def check(self, trainer: Any) -> None:
        check_whole_groups("SiblingValue", trainer)


def sibling_jumps(
    states: torch.Tensor, advantages: torch.Tensor, rows: torch.Tensor, bandwidth: float = 0.1, block: int = 4096
) -> torch.Tensor:
    """
    V(s_t) - V(s_{t-1}) of the n tokens of a group.

    Args:
        states (`torch.Tensor` of shape `(n, d)`): Those that predicted the tokens: s_{t-1} of each.
        advantages, rows (`torch.Tensor` of shape `(n,)`): Advantage and index of each token's response; in order.
        bandwidth (`float`, *optional*, defaults to `0.1`): See the module's docstring.
        block (`int`, *optional*, defaults to `4096`): Number of states whose distances are in memory at a time.
    """
    responses, counts = rows.unique_consecutive(return_counts=True)
    h = (bandwidth * states.std(dim=0, unbiased=False).norm()).clamp(min=1e-8)
    starts = counts.cumsum(0) - counts
    weighted, mass = torch.zeros_like(states[:, 0]), torch.zeros_like(states[:, 0])
    for response, start, count in zip(responses.tolist(), starts.tolist(), counts.tolist(), strict=True):
        own = states[start : start + count]
        for part in torch.arange(len(states), device=states.device).split(block):
            nearest = torch.cdist(states[part], own).amin(dim=1)
            kernel = torch.exp(-((nearest / h) ** 2)) * (rows[part] != response)
            weighted[part] += kernel * advantages[start]
            mass[part] += kernel
    value = weighted / (mass + 1e-3)
    after = value.roll(-1)
    after[starts + counts - 1] = value[starts + counts - 1]  # no state follows the last token
    return after - value
