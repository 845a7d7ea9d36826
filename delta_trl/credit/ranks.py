"""
Sums, means and lists over all ranks of the default process group; in a single process, the identity.

All ranks must make the same calls in the same order, whatever their tokens are. Otherwise a rank waits for the others,
or gets the values of another call.
"""

import math

import torch
import torch.distributed as dist


def is_distributed() -> bool:
    """Whether there are other ranks that this one works with."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def all_reduce(tensor: torch.Tensor, op: str = "SUM") -> torch.Tensor:
    """Reduce `tensor` over all ranks, in place, and return it. `op`: `"SUM"`, `"MIN"`, `"MAX"`. Collective."""
    if is_distributed():
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    return tensor


def mean_over_ranks(values: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:  # (N,), (k, N) -> (k,)
    """Means of k groups of the values, given as masks, over all ranks; NaN where a group is empty. Collective."""
    total = all_reduce((groups * values).sum(dim=1))
    count = all_reduce(groups.sum(dim=1).to(total))
    return total / count


def normalised_by_group(rewards: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """
    (r - mean) / (std + 1e-4) of rewards over their group, as TRL's GRPO computes it. Exactly 0 where all rewards of a
    group are equal. A group may be spread over ranks. Collective.

    Args:
        rewards, group (`torch.Tensor` of shape `(n,)`): Rewards, and the number of the group of each.
    """
    own_largest = torch.cat([group, group.new_zeros(1)]).amax()
    n_groups = int(all_reduce(own_largest, "MAX")) + 1
    infinity = rewards.new_full((n_groups,), math.inf)
    smallest = all_reduce(infinity.scatter_reduce(0, group, rewards, "amin"), "MIN")
    above = rewards - smallest[group]  # equal rewards are 0 here; their mean could differ from them by rounding
    powers = torch.stack([torch.ones_like(above), above, above**2])  # (3, n)
    sums = rewards.new_zeros(3, n_groups).index_add_(1, group, powers)
    count, total, squares = all_reduce(sums)
    n = count.clamp(min=1)
    mean = total / n
    variance = (squares / n - mean**2).clamp(min=0)
    unbiased = variance * n / (n - 1).clamp(min=1)
    deviation = unbiased.sqrt()[group]
    return (above - mean[group]) / (deviation + 1e-4)


def all_gather(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Concatenate 1-d tensors of any lengths over all ranks. Also returns where this rank's begins. Collective."""
    if not is_distributed():
        return tensor, 0
    rank = dist.get_rank()
    lengths = torch.zeros(dist.get_world_size(), dtype=torch.long, device=tensor.device)
    lengths[rank] = len(tensor)
    ends = all_reduce(lengths).cumsum(0).tolist()
    start = ends[rank] - len(tensor)
    whole = tensor.new_zeros(ends[-1])
    whole[start : ends[rank]] = tensor  # every rank fills its part, and has 0 elsewhere
    return all_reduce(whole), start
