"""
Policy gradients of a rollout batch under the weights of several rules, from the same forward passes. Gradients of
large models are reduced by a seeded random projection: the errors of inner products have a standard deviation of 0.3 %
of the product of the lengths.
"""

from collections.abc import Sequence

import torch

from ..credit import Tokens


SIZE = 2**17  # numbers kept of a gradient
PART = 2**24  # parameters that are projected at a time


def policy_gradients(tokens: Tokens, weights: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """
    Gradients of Σ_j w_j A_j log π_j / N with respect to all trainable parameters.

    Args:
        tokens (`Tokens`): A rollout batch, with a policy.
        weights (`dict[str, torch.Tensor]`): By rule, of shape `(N,)`.
        seed (`int`): Seed of the projection.

    Returns:
        `dict[str, torch.Tensor]`: By rule, float32 on the CPU: the gradient for up to `SIZE` parameters, else its
        projection to that size (count sketch).
    """
    policy = tokens.policy
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in parameters)
    sums = {name: torch.zeros(min(total, SIZE), device=tokens.mask.device) for name in weights}
    numbers = tokens.padded(torch.arange(len(tokens), device=tokens.mask.device))
    active = torch.zeros(len(tokens.mask), dtype=torch.bool, device=tokens.mask.device)
    active[tokens.row[tokens.advantages != 0]] = True  # the others have no gradient
    for rows in active.nonzero()[:, 0].split(policy.micro_batch_size):
        if not len(rows):  # `split` of an empty tensor has one empty part
            continue
        with torch.enable_grad():
            log_probs = tokens.log_probs_at(rows)
        own = numbers[rows][tokens.mask[rows]]
        for name, of_all in weights.items():
            objective = (of_all[own] * tokens.advantages[own] * log_probs).sum() / len(tokens)
            gradients = torch.autograd.grad(objective, parameters, retain_graph=True, allow_unused=True)
            _add(sums[name], parameters, gradients, seed, whole=total <= SIZE)
        del log_probs
    return {name: value.cpu() for name, value in sums.items()}


def _add(
    sums: torch.Tensor,
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    seed: int,
    whole: bool,
) -> None:
    start = 0
    for parameter, gradient in zip(parameters, gradients, strict=True):
        size = parameter.numel()
        if gradient is not None:
            flat = gradient.flatten()
            if whole:
                sums[start : start + size] += flat
            else:
                for first in range(0, size, PART):
                    part = flat[first : first + PART].float()
                    place, sign = _hash(start + first, len(part), seed, part.device)
                    sums.index_add_(0, place, part * sign)
        start += size


def _hash(start: int, count: int, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """A place and a sign for each of `count` parameters, hashed from their indices (SplitMix64)."""
    z = torch.arange(start + 1, start + count + 1, device=device) * -7046029254386353131 + seed
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685), (31, None)):
        z = z ^ ((z >> shift) & ((1 << (64 - shift)) - 1))
        z = z if factor is None else z * factor
    return (z >> 1) & (SIZE - 1), 1.0 - 2.0 * (z & 1)
