"""Weights do not depend on how many processes computed them."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from delta_trl.credit import DelTA, RandomCredit, Selected, SideMean, SideWeights, WithinSide, coefficient_statistics

from .batches import random_batch, tokens_of


RULES = [  # tests/distributed trains with others
    DelTA(token_gradient="topk_hidden", token_gradient_top_k=5),
    DelTA(token_gradient="lm_head"),
    WithinSide(),
    SideWeights(),
    SideMean(),
    Selected(),
]
DRAWING = [RandomCredit(), Selected(which="random")]  # by the numbers of responses, in the order of ranks


def credited(rule, chosen=slice(None)) -> tuple[torch.Tensor, dict]:
    """Weights and metrics of some tokens of a batch."""
    tokens = tokens_of(random_batch(0), chosen)
    credit = rule.of_rollout(tokens)
    return credit.weights, credit.metrics | coefficient_statistics(credit.weights, tokens.advantages)


def work(rank: int, store: str):
    torch.set_num_threads(1)
    expected = list(map(credited, [*RULES, *DRAWING]))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    _, _, advantages = random_batch(0)
    numbers = torch.arange(len(advantages))
    of_first_rank = {
        "uneven": numbers < len(numbers) // 4,
        "empty rank": numbers >= 0,
        "one side each": advantages > 0,
    }
    for batch, of_first in of_first_rank.items():
        mine = of_first if rank == 0 else ~of_first
        rules = RULES if batch == "one side each" else [*RULES, *DRAWING]
        for rule, (weights, metrics) in zip(rules, expected, strict=False):
            ours, found = credited(rule, mine)
            torch.testing.assert_close(ours, weights[mine], atol=1e-6, rtol=0, msg=f"{batch}, {rule}")
            assert found == pytest.approx(metrics, rel=1e-5, abs=1e-6, nan_ok=True), (batch, rule)
    dist.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit


@pytest.mark.processes
def test_two_processes_equal_one(tmp_path):
    mp.spawn(work, (str(tmp_path / "store"),), nprocs=2)
