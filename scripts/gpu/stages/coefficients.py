"""
Times the coefficients of 1 M tokens of size 4096 in bfloat16, with hidden states in every tier, and those of the
representations and rules that multiply with the LM head or compare states. Beside each is its roofline: the time that
its bytes or operations take at the measured rates.

On a GPU of 141 GB: states 8.2 GB on the device, and again in pinned main memory (which must have 9 GB); the LM head,
151,936 x 4,096, is 1.2 GB, a direction 2.5 GB in float32, and 3 of these exist at a time. 20 GB in all.
"""

from collections.abc import Callable, Iterator

import torch

from delta_trl.credit import LMHead, LMHeadGradients, RecomputedStates
from delta_trl.credit.groups import group_credit
from delta_trl.credit.rules.sibling_value import sibling_jumps

from ...benchmarks.coefficients import computing, keep_states, reading
from ...benchmarks.timing import alternating, spread
from .stage import Stage, rates_of


SIZES = {
    False: {
        "tokens": 1_000_000,
        "dim": 4096,
        "vocabulary": 151_936,
        "head_tokens": 32_768,  # for lm_head, topk_hidden and group_contrast, which multiply V x d by N x d
        "groups": 8,
        "responses": 16,
        "response_tokens": 4096,  # of sibling_value, one group
        "matrices": 8,  # of the stand-in for a forward pass
        "repetitions": 9,
    },
    True: {
        "tokens": 2048,
        "dim": 64,
        "vocabulary": 512,
        "head_tokens": 256,
        "groups": 2,
        "responses": 4,
        "response_tokens": 32,
        "matrices": 2,
        "repetitions": 2,
    },
}
K = 1  # refinement steps
READS = 2 * (K + 1)


def run(stage: Stage) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    size = stage.settings = {**SIZES[stage.dry], "refinement_steps": K, "dtype": "bfloat16"}
    best = rates_of(stage)
    stage.results["rates"] = best
    end = stage.left() / 2
    tiers(stage, size, best, device, lambda: stage.left() - end)  # half of the time for each half
    stage.save()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    heads(stage, size, best, device)


def tiers(stage: Stage, size: dict, best: dict, device: torch.device, left: Callable[[], float]) -> None:
    n, d = size["tokens"], size["dim"]
    n_bytes = n * d * 2
    log_probs, advantages = -torch.rand(n, device=device), torch.randn(n, device=device)
    ids = torch.zeros(n, dtype=torch.long, device=device)
    states = {tier: keep_states(n, d, torch.bfloat16, tier, device) for tier in ("device", "cpu")}
    weights = torch.randn(size["matrices"], d, d, device=device).bfloat16() / d**0.5

    def forward() -> Iterator[tuple[slice, torch.Tensor]]:
        for tokens, block in states["device"].chunks():
            for weight in weights:  # orthogonal enough that numbers keep their scale
                block = block @ weight
            yield tokens, block

    states["recompute"] = RecomputedStates((n, d), torch.bfloat16, device, forward)
    works = {
        tier: computing("output_row", of_tier, log_probs, advantages, ids, None, K) for tier, of_tier in states.items()
    }
    works["reading, device"] = reading(states["device"])
    works["reading, cpu"] = reading(states["cpu"])
    times = alternating(works, size["repetitions"], device, left)
    matrices = (READS + 1) * size["matrices"] * 2 * n * d * d
    floors = {
        "device": ("2 (K + 1) readings at the bandwidth of a copy", READS * n_bytes / best["copy"]),
        "cpu": ("2 (K + 1) readings at the bandwidth to the device", READS * n_bytes / best["to_device"]),
        "recompute": ("the stand-in's products for 2 (K + 1) + 1 readings", matrices / best["bfloat16"]),
        "reading, device": ("one reading at the bandwidth of a copy", n_bytes / best["copy"]),
        "reading, cpu": ("one reading at the bandwidth to the device", n_bytes / best["to_device"]),
    }
    shape = f"{n:,} x {d:,}"
    for name, (what, floor) in floors.items():
        record(stage, f"output_row, {name}" if "reading" not in name else name, shape, times[name], what, floor)


def heads(stage: Stage, size: dict, best: dict, device: torch.device) -> None:
    n, d, V = size["head_tokens"], size["dim"], size["vocabulary"]
    states = keep_states(n, d, torch.bfloat16, "device", device)
    head = LMHead(torch.randn(V, d, device=device).bfloat16() / d**0.5)
    log_probs, advantages = -torch.rand(n, device=device), torch.randn(n, device=device)
    ids = torch.randint(V, (n,), device=device)
    groups = torch.arange(n, device=device) * size["groups"] // n
    members, count = size["responses"], size["responses"] * size["response_tokens"]
    group = torch.randn(count, d, device=device)
    rows = torch.arange(members, device=device).repeat_interleave(size["response_tokens"])
    of_rows = torch.randn(members, device=device)[rows]
    works = {name: computing(name, states, log_probs, advantages, ids, head, K) for name in ("topk_hidden", "lm_head")}
    works["group_contrast"] = lambda: group_credit(
        LMHeadGradients(states, ids, head), advantages, groups, size["groups"], refinement_steps=K
    )
    works["sibling_value"] = lambda: sibling_jumps(group, of_rows, rows)
    times = alternating(works, size["repetitions"], device, stage.left)
    product = 2 * n * d * V
    # logits in bfloat16 for the normaliser and every combine and score; the other product of these is float32
    whole = (1 + READS) * product / best["bfloat16"] + READS * product / best["float32"]
    shape = f"{n:,} x {d:,}, V = {V:,}"
    record(stage, "topk_hidden", shape, times["topk_hidden"], "logits once", product / best["bfloat16"])
    record(stage, "lm_head", shape, times["lm_head"], "5 products in bfloat16 and 4 in float32", whole)
    record(stage, "group_contrast", f"{shape}, {size['groups']} groups", times["group_contrast"], "as lm_head", whole)
    shape = f"{members} x {size['response_tokens']:,} x {d:,}"
    operations = 2 * count**2 * d
    record(stage, "sibling_value", shape, times["sibling_value"], "n² d in float32", operations / best["float32"])


def record(stage: Stage, name: str, shape: str, times: list[float], roofline: str, floor: float) -> None:
    if not times:
        stage.left_out.append(f"{name}: no time was left")
        return
    if len(times) < stage.settings["repetitions"]:
        stage.left_out.append(f"{name}: {stage.settings['repetitions'] - len(times)} repetitions")
    measured = spread(times)
    stage.results.setdefault("cases", {})[name] = {
        "shape": shape,
        "seconds": measured,
        "roofline": roofline,
        "roofline_seconds": floor,
        "times_roofline": measured["median"] / floor,
    }
