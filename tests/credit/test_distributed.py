"""Coefficients do not depend on how many processes computed them."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from delta_trl.credit import (
    OutputRowGradients,
    Selected,
    coefficient_statistics,
    compare_centroids,
)
from delta_trl.credit.coefficients import contrast_credit
from delta_trl.credit.groups import group_credit

from .batches import random_batch
from .test_controls import Given, tokens_with


def share(batch: str, rank: int, world: int) -> slice | torch.Tensor:
    """The tokens of a rank: uneven, none at all, or one side only."""
    hidden, _, advantages = random_batch(0)
    n = len(hidden)
    if batch == "uneven":
        return torch.arange(n)[n // 4 :] if rank else torch.arange(n)[: n // 4]
    if batch == "empty rank":
        return torch.arange(n if rank == 0 else 0)
    return torch.where((advantages > 0) == (rank == 0))[0]


def selected(coefficients, advantages) -> torch.Tensor:
    return Selected(Given(coefficients)).of_rollout(tokens_with(advantages)).weights


def work(rank: int, world: int, store: str, batch: str, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    hidden, log_probs, advantages = random_batch(0)
    tokens = share(batch, rank, world)
    gradients = OutputRowGradients(hidden[tokens], log_probs[tokens])
    credit = contrast_credit(gradients, advantages[tokens], refinement_steps=2)
    coefficients = credit.weights
    statistics = credit.metrics | coefficient_statistics(coefficients, advantages[tokens])
    statistics["selected"] = selected(coefficients, advantages[tokens]).tolist()
    statistics |= compare_centroids(gradients, advantages[tokens])
    results.put((tokens.tolist(), coefficients.tolist(), statistics))
    dist.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit


@pytest.mark.processes
@pytest.mark.parametrize("batch", ["uneven", "empty rank", "one side each"])
def test_two_processes_equal_one(tmp_path, batch):
    hidden, log_probs, advantages = random_batch(0)
    gradients = OutputRowGradients(hidden, log_probs)
    credit = contrast_credit(gradients, advantages, refinement_steps=2)
    expected = credit.weights
    expected_statistics = credit.metrics | coefficient_statistics(expected, advantages)
    expected_statistics |= compare_centroids(gradients, advantages)

    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    workers = [context.Process(target=work, args=(r, 2, tmp_path / "store", batch, results)) for r in range(2)]
    for worker in workers:
        worker.start()
    collected = [results.get() for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    ours, ours_selected = torch.zeros_like(expected), torch.zeros_like(expected)
    for tokens, coefficients, statistics in collected:
        ours[tokens] = torch.tensor(coefficients)
        ours_selected[tokens] = torch.tensor(statistics.pop("selected"))
        assert statistics == pytest.approx(expected_statistics, rel=1e-6)
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours_selected, selected(expected, advantages))


def grouped() -> tuple[OutputRowGradients, torch.Tensor, torch.Tensor]:
    """Six groups of 20 tokens, the last of them losers only."""
    torch.manual_seed(0)
    groups = torch.arange(120) // 20
    advantages = torch.where(torch.arange(120) % 20 < 9, 1.0, -0.5)
    advantages[100:] = -1.0
    return OutputRowGradients(torch.randn(120, 16), -torch.rand(120)), advantages, groups


def work_on_groups(rank: int, store: str, share: list, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    gradients, advantages, groups = grouped()
    tokens = torch.tensor(share, dtype=torch.long)
    sums, reduce = [], dist.all_reduce
    dist.all_reduce = lambda tensor, *args: sums.append(tensor.numel()) or reduce(tensor, *args)
    credit = group_credit(gradients[tokens], advantages[tokens], groups[tokens], 6)
    results.put((share, credit.weights.tolist(), credit.scores.tolist(), credit.neutral, sums))
    dist.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit


@pytest.mark.processes
@pytest.mark.parametrize(("first", "spread"), [(60, 0), (50, 1), (120, 0)])
def test_groups_are_summed_over_ranks_only_if_they_are_spread(tmp_path, first, spread):
    """The same credit as on one process; one rank's whole groups cost no sums, however many they are."""
    expected = group_credit(*grouped(), 6)
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    shares = [list(range(first)), list(range(first, 120))]
    workers = [
        context.Process(target=work_on_groups, args=(rank, tmp_path / "store", share, results), daemon=True)
        for rank, share in enumerate(shares)
    ]
    for worker in workers:
        worker.start()
    for share, weights, scores, neutral, sums in [results.get() for _ in workers]:
        torch.testing.assert_close(torch.tensor(weights), expected.weights[share], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(torch.tensor(scores), expected.scores[share], atol=1e-5, rtol=1e-5)
        assert neutral == expected.neutral
        assert len(sums) == 3 + 12 * spread  # who has what, whether any had a contrast, the mean
    for worker in workers:
        worker.join(timeout=60)
