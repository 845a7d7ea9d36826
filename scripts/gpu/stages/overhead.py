"""
Seconds of a rollout batch under every rule, compared with GRPOTrainer: overhead.py's measurement at the shapes of
Qwen3's models, with the ratios before any update.

On a GPU of 141 GB, with gradient checkpointing and micro-batches of 8 x 2048 tokens, in GB:

    model           parameters, gradients, AdamW       checkpoints        one layer, LM head    exact credit
    0.6B, float32   0.6 x 16 =  9.6                    28 x 0.03 = 0.9    3                     2.4
    1.7B, float32   1.7 x 16 = 27.5                    28 x 0.07 = 1.9    5                     6.9
    8B, LoRA        8.2 x 2 + 0.04 x 16 = 17.1         36 x 0.07 = 2.4    4                     (not measured)

(8B at 1024 tokens. The LM head is TRL's fused one, which makes no logits.) All of it leaves half of the GPU free.

A round measures every variant once: a new trainer, two rollout batches that warm up, and the same lengths again. The
first rounds of all cases come first; then come as many others as there is time for.
"""

import time
from dataclasses import asdict, replace

import transformers
from transformers.utils import is_flash_attn_2_available

from ...benchmarks.overhead import VARIANTS, Setup, summarize, table, visit
from .stage import Stage


REAL = Setup("0.6b", completions=64, micro_batch=8, tokens=2048, lengths="lognormal")  # TRL loads models in float32
TINY = Setup("tiny", completions=16, micro_batch=4, tokens=16, lengths="lognormal", rollouts=1)
# 8 completions of at most 256 tokens after a prompt of about 500: the setting of Unsloth's figures
UNSLOTH = Setup(
    "4b", completions=8, micro_batch=4, tokens=256, lengths="lognormal", prompt=500, dtype="bfloat16", lora=True
)
BFLOAT16 = replace(REAL, dtype="bfloat16")
FEW = ("grpo", "delta")
OTHERS = tuple(name for name in VARIANTS if name not in ("none", "delta", "every row"))
HALF = replace(BFLOAT16, without_contrast=0.5)
QUARTERS = replace(BFLOAT16, without_contrast=0.75)
FLASH = replace(BFLOAT16, attention="flash_attention_2")
LORA_8B = replace(BFLOAT16, model="8b", tokens=1024, completions=32, lora=True)
CASES = {  # by whether it is a dry run: setup, mode and variants
    False: {
        "0.6B in bfloat16": (BFLOAT16, "misaligned", (*FEW, "none")),  # by turns: which of the last two is faster?
        "8B, LoRA": (LORA_8B, "misaligned", (*FEW, "none")),
        "0.6B in bfloat16, half without contrast": (HALF, "misaligned", FEW),
        "0.6B in bfloat16, three quarters without contrast": (QUARTERS, "misaligned", FEW),
        "4B, LoRA, a prompt of 500": (UNSLOTH, "misaligned", FEW),
        "0.6B": (REAL, "misaligned", (*FEW, "none")),
        "1.7B": (replace(REAL, model="1.7b", completions=32), "misaligned", FEW),
        "0.6B, one optimiser step": (REAL, "aligned", FEW),
        "0.6B in bfloat16, flash attention": (FLASH, "misaligned", FEW),
        "0.6B, other rules": (REAL, "misaligned", OTHERS),
    },
    True: {
        "tiny": (TINY, "misaligned", ("grpo", "none", "padded", "delta", "cpu cache", "lm_head", "full", "fipo")),
        "tiny, LoRA": (replace(TINY, lora=True), "aligned", ("grpo", "delta")),
        "tiny, half without contrast": (replace(TINY, without_contrast=0.5), "misaligned", ("delta",)),
        "tiny, flash": (replace(TINY, attention="flash_attention_2"), "misaligned", ("grpo",)),
    },
}
ROUNDS = {False: 4, True: 1}
GUESS = {False: 20.0, True: 0.0}  # seconds of a visit, until one is measured


def run(stage: Stage) -> None:
    transformers.logging.set_verbosity_error()
    cases = {}
    settings = {}
    for name, (setup, mode, variants) in CASES[stage.dry].items():
        if setup.attention != "flash_attention_2" or is_flash_attn_2_available():
            cases[name] = (setup, mode, variants)
            settings[name] = [asdict(setup), mode, variants]
    rounds = ROUNDS[stage.dry]
    stage.settings = {"cases": settings, "rounds": rounds}
    stage.go_on()
    done = stage.results.setdefault("cases", {})
    for number in range(rounds):
        for name, (setup, mode, variants) in cases.items():
            of_case = done.setdefault(name, {})
            in_turn = variants[::-1] if number % 2 else variants  # what is measured last may look faster
            for variant in in_turn:
                entry = of_case.setdefault(variant, {"runs": []})
                if len(entry["runs"]) <= number:
                    measure(stage, f"{name}, {variant}", setup, mode, variant, entry)


def measure(stage: Stage, name: str, setup: Setup, mode: str, variant: str, entry: dict) -> None:
    """One visit, if there is time for it."""
    longest = max((run["visit"] for run in entry["runs"]), default=GUESS[stage.dry])
    if 1.1 * longest > stage.left():
        stage.leave_out(f"{name}: not as often as planned, no time was left")
        return
    start = time.perf_counter()
    try:
        found = visit(setup, variant, mode)
    except Exception as error:  # out of memory, say: the others go on
        stage.leave_out(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        return
    entry["runs"].append({**found, "visit": time.perf_counter() - start})
    entry |= summarize(entry["runs"])
    measured = {}
    for case, variants in stage.results["cases"].items():
        measured[case] = {variant: found for variant, found in variants.items() if found["runs"]}
    stage.text = table(measured)
    stage.save()
