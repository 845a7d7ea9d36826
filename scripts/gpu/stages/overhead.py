"""
Seconds of a rollout batch under every rule, compared with GRPOTrainer: overhead.py's measurement at the shapes of
Qwen3's models. The roofline is the time of the forward and backward passes at the measured rate of a large product.

On a GPU of 141 GB, with gradient checkpointing and micro-batches of 8 x 2048 tokens, in GB:

    model           parameters, gradients, AdamW       checkpoints        one layer, LM head    exact credit
    0.6B, float32   0.6 x 16 =  9.6                    28 x 0.03 = 0.9    3                     2.4
    1.7B, float32   1.7 x 16 = 27.5                    28 x 0.07 = 1.9    5                     6.9
    8B, LoRA        8.2 x 2 + 0.04 x 16 = 17.1         36 x 0.07 = 2.4    4                     (not measured)

(8B at 1024 tokens. The LM head is TRL's fused one, which makes no logits.) All of it leaves half of the GPU free.

A round measures every variant once: a new trainer, one rollout batch that warms up, and two that count. The first
rounds of all cases come first and take 5 to 6 minutes on an H200; then come as many others as there is time for.
"""

import time
from argparse import Namespace
from functools import partial

import torch
import transformers
from transformers.utils import is_flash_attn_2_available

from ...benchmarks.overhead import MODELS, MODES, RULE_VARIANTS, VARIANTS, draw_lengths, make_trainer, summarize, visit
from ...benchmarks.project_overhead import forward_flops, widths
from .stage import Stage, rates_of


ALL = (*VARIANTS, *RULE_VARIANTS)
SHORT = ("grpo", "none", "padded", "delta", "cpu cache", "lm_head", "full", "fipo")
UNTRIMMED = ("grpo", "padded")
BACKWARDS = {"full": 2}  # passes that a rule makes itself, with its defaults
PROMPT = 3  # tokens
GUESS = 8  # how many times its roofline a rollout batch is assumed to take, until one is measured


def case(model: str, variants: tuple[str, ...], mode: str = "misaligned", **options) -> dict:
    return {
        "model": model,
        "mode": mode,
        "variants": list(variants),
        "completions": 64,
        "micro_batch": 8,
        "tokens": 2048,
        "lengths": "lognormal",
        "rollouts": 2,
        "dtype": "float32",  # as TRL loads models, under autocast to bfloat16
        "attention": "sdpa",
        "lora": False,
        **options,
    }


def tiny(variants: tuple[str, ...], mode: str = "misaligned", **options) -> dict:
    return case("tiny", variants, mode, completions=16, micro_batch=4, tokens=16, rollouts=1, **options)


CASES = {
    False: {
        "0.6B, every rule": case("0.6b", ALL),
        "1.7B": case("1.7b", ("grpo", "none", "delta", "cpu cache", "lm_head", "full")),
        "8B, LoRA": case("8b", ("grpo", "none", "delta"), lora=True, dtype="bfloat16", tokens=1024),
        "0.6B, one optimiser step": case("0.6b", ("grpo", "none", "delta"), "aligned"),
        "0.6B in bfloat16, sdpa": case("0.6b", ("grpo", "none", "delta"), dtype="bfloat16"),
        "0.6B in bfloat16, flash": case(
            "0.6b", ("grpo", "none", "delta"), dtype="bfloat16", attention="flash_attention_2"
        ),
    },
    True: {
        "tiny": tiny(SHORT),
        "tiny, LoRA": tiny(("grpo", "delta"), "aligned", lora=True),
        "tiny, flash": tiny(("grpo",), attention="flash_attention_2"),
    },
}
ROUNDS = {False: 4, True: 1}


def run(stage: Stage) -> None:
    transformers.logging.set_verbosity_error()
    cases = CASES[stage.dry]
    stage.settings = {"cases": cases, "rounds": ROUNDS[stage.dry]}
    stage.go_on()
    rate = rates_of(stage)["bfloat16"]
    stage.results |= {"bfloat16_rate": rate, "not_here": {}}
    cases = {name: setup for name, setup in cases.items() if is_possible(name, setup, stage)}
    done = stage.results.setdefault("cases", {})
    for number in range(stage.settings["rounds"]):
        for name, setup in cases.items():
            variants = done.setdefault(name, {})
            for variant in setup["variants"]:
                runs = variants.setdefault(variant, {"runs": []})["runs"]
                if len(runs) <= number:
                    measure(stage, name, setup, variant, variants, rate, number)


def is_possible(name: str, setup: dict, stage: Stage) -> bool:
    if setup["attention"] == "flash_attention_2" and not (torch.cuda.is_available() and is_flash_attn_2_available()):
        stage.results["not_here"][name] = "flash-attn is not installed, or there is no GPU"
    elif torch.cuda.is_available():
        needed = sum(p.numel() for p in on_meta(setup)) * (2 if setup["lora"] else 16) * 1.3
        if needed > torch.cuda.mem_get_info()[1]:
            stage.results["not_here"][name] = f"needs some {needed / 1e9:.0f} GB"
    return name not in stage.results["not_here"]


def on_meta(setup: dict):
    with torch.device("meta"):
        config = transformers.Qwen3Config(**MODELS[setup["model"]])
        return list(transformers.AutoModelForCausalLM.from_config(config).parameters())


def measure(stage: Stage, name: str, setup: dict, variant: str, variants: dict, rate: float, number: int) -> None:
    """One visit, if there is time for it."""
    entry = variants[variant]
    floor = step_flops(setup, variant) / rate
    guess = (setup["rollouts"] + 1) * GUESS * floor + 5 if torch.cuda.is_available() else 0.0
    expected = 1.1 * max((run["visit"] for run in entry["runs"]), default=guess)
    if expected > stage.left():
        stage.left_out.append(f"{name}, {variant}: round {number + 1}")
        return
    start = time.perf_counter()
    try:
        found = visit(partial(make_trainer, Namespace(**setup), variant, setup["mode"]))
    except torch.cuda.OutOfMemoryError as error:
        entry["error"] = str(error)[:500]
        stage.left_out.append(f"{name}, {variant}: out of memory")
        return
    entry["runs"].append({**found, "visit": time.perf_counter() - start})
    entry |= summarize(entry["runs"])
    passes = entry["extra_forward_passes"] * forward(setup, variant) + own_backward(setup, variant)
    entry["roofline_seconds"] = floor + passes / rate
    entry["times_roofline"] = entry["seconds"]["median"] / entry["roofline_seconds"]
    stage.save()


def forward(setup: dict, variant: str) -> float:
    """Operations of a forward over a rollout batch, as wide as it is run; the mean of the timed ones."""
    shape = MODELS[setup["model"]]
    sizes = (
        shape["hidden_size"],
        shape["num_hidden_layers"],
        shape["intermediate_size"],
        shape["num_attention_heads"],
        shape["num_key_value_heads"],
        shape["head_dim"],
        shape["vocab_size"],
    )
    steps, total = MODES[setup["mode"]], 0.0
    for rollout in range(1, setup["rollouts"] + 1):  # the first one warms up
        lengths = torch.tensor(draw_lengths(Namespace(**setup), rollout * steps))
        way = widths(lengths, steps, setup["micro_batch"])["TRL" if variant in UNTRIMMED else "trimmed"]
        total += forward_flops(sizes, way + PROMPT)
    return total / setup["rollouts"]


def step_flops(setup: dict, variant: str) -> float:
    """Operations of a rollout batch without what a rule adds: scoring if TRL does it, forward and backward."""
    scoring = 1 if setup["mode"] == "misaligned" else 0
    # a backward costs two forwards, or one where weights have no gradient; checkpointing repeats the forward
    training = 1 + (1 if setup["lora"] else 2) + (1 if torch.cuda.is_available() else 0)
    return (scoring + training) * forward(setup, variant)


def own_backward(setup: dict, variant: str) -> float:
    return BACKWARDS.get(variant, 0) * (2 + (1 if torch.cuda.is_available() else 0)) * forward(setup, variant)
