"""Weights do not depend on how many processes computed them."""

import os
import pickle

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from delta_trl.credit import DelTA, Selected, SideMean, SideWeights, coefficient_statistics

from .batches import random_batch, tokens_of


RULES = {  # tests/distributed trains with others
    "topk_hidden": DelTA(token_gradient="topk_hidden", token_gradient_top_k=5),
    "side_weights": SideWeights(),
    "side_mean": SideMean(),
    "selected": Selected(),
}


BATCHES = ("uneven", "empty rank", "one side each")


def share(batch: str, rank: int) -> torch.Tensor:
    """The tokens of a rank: uneven, none at all, or one side only."""
    _, _, advantages = random_batch(0)
    n = len(advantages)
    if batch == "uneven":
        return torch.arange(n)[n // 4 :] if rank else torch.arange(n)[: n // 4]
    if batch == "empty rank":
        return torch.arange(n if rank == 0 else 0)
    return torch.where((advantages > 0) == (rank == 0))[0]


def credited(chosen: torch.Tensor) -> dict[str, tuple[torch.Tensor, dict]]:
    """Weights and metrics by rule, of some tokens of a batch."""
    tokens = tokens_of(random_batch(0), chosen)
    found = {}
    for name, rule in RULES.items():
        credit = rule.of_rollout(tokens)
        found[name] = credit.weights, credit.metrics | coefficient_statistics(credit.weights, tokens.advantages)
    return found


def work(rank: int, store: str, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    found = {batch: credited(share(batch, rank)) for batch in BATCHES}
    (folder / str(rank)).write_bytes(pickle.dumps(found))
    dist.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit


@pytest.mark.processes
def test_two_processes_equal_one(tmp_path):
    expected = credited(torch.arange(200))
    context = mp.get_context("spawn")
    workers = [context.Process(target=work, args=(r, tmp_path / "store", tmp_path)) for r in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    found = [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(2)]
    for batch in BATCHES:
        for name, (expected_weights, expected_metrics) in expected.items():
            ours = torch.zeros(200)
            for rank in range(2):
                weights, metrics = found[rank][batch][name]
                ours[share(batch, rank)] = weights.float()
                assert metrics == pytest.approx(expected_metrics, rel=1e-5, abs=1e-6, nan_ok=True), (batch, name)
            torch.testing.assert_close(ours, expected_weights.float(), atol=1e-6, rtol=0, msg=f"{batch}, {name}")
