"""
Measures what token credit costs: DeltaGRPOTrainer and GRPOTrainer take turns in one process, on the same rollouts.

Generation is replaced by fixed random completions, and timed separately. The rest of a step is scoring, rewards,
coefficients and optimisation. Models have random weights. Reports medians over all timed rollout batches, with
quartiles. On a machine without a GPU, seconds are processor time, and all variants compute log-probs of completions
alone, which GRPOTrainer does by itself on a GPU only. Memory is the peak during training: the resident set, with a GPU
the allocated memory.

    python -m scripts.benchmarks.overhead --model 5m --repetitions 5 --output outputs/overhead_5m.json
    python -m scripts.benchmarks.overhead --model 50m --repetitions 2 --rollouts 1 \\
        --output outputs/overhead_50m.json
    python -m scripts.benchmarks.overhead --model 8b --completions 16 --tokens 8192        # on a GPU
    python -m scripts.benchmarks.overhead --recipe recipes/quickstart/addition.yaml --variants grpo full
    python -m scripts.benchmarks.overhead --lengths lognormal --tokens 512 --micro-batch 2 --variants grpo none delta

With `--recipe`, the model, data and options are the recipe's, and generation is real.
"""

import argparse
import gc
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen3Config,
    TrainerCallback,
)
from trl import GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.commands.recipe import parse_recipe
from delta_trl.commands.train import build
from delta_trl.credit import RULES
from delta_trl.trainer.scoring import only_labels_in_lm_head

from .timing import spread


def shape(hidden, layers, intermediate, heads, key_value_heads, head_dim, vocabulary, tied=False) -> dict:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "head_dim": head_dim,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
    }


MODELS = {
    "tiny": shape(32, 2, 64, 4, 2, 8, 256),  # to see that it runs
    "5m": shape(256, 6, 768, 8, 4, 32, 2048),
    "50m": shape(640, 8, 1920, 10, 5, 64, 8192),
    "135m": shape(576, 30, 1536, 9, 3, 64, 49152, tied=True),  # as SmolLM2's
    # the shapes of Qwen3's models
    "0.6b": shape(1024, 28, 3072, 16, 8, 128, 151936, tied=True),
    "1.7b": shape(2048, 28, 6144, 16, 8, 128, 151936, tied=True),
    "8b": shape(4096, 36, 12288, 32, 8, 128, 151936),
}
MODES = {
    # Two optimiser steps for a rollout batch: TRL scores old log-probabilities, and hidden states come with them.
    "misaligned": 2,
    # One optimiser step: TRL needs no old log-probabilities.
    "aligned": 1,
}
VARIANTS = {
    "grpo": {"token_credit": "none"},  # GRPOTrainer itself
    "none": {"token_credit": "none"},
    "padded": {"trim_padding": False},
    "delta": {"hidden_state_cache": "device"},
    "cpu cache": {"hidden_state_cache": "cpu"},
    "topk_hidden": {"token_credit_kwargs": {"token_gradient": "topk_hidden"}},
    "lm_head": {"token_credit_kwargs": {"token_gradient": "lm_head"}},
    "full": {"token_credit_kwargs": {"token_gradient": "full"}},
}
# all other rules, with their defaults
RULE_VARIANTS = {name: {"token_credit": name} for name in RULES if name not in VARIANTS}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="5m")
    parser.add_argument("--recipe", type=Path, help="measure this recipe instead of a random model")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS | RULE_VARIANTS, default=list(VARIANTS))
    parser.add_argument("--completions", type=int, default=32, help="per rollout batch")
    parser.add_argument("--tokens", type=int, default=256, help="per completion, at most")
    parser.add_argument("--lengths", choices=("equal", "lognormal"), default="equal", help="median 0.15 --tokens")
    parser.add_argument("--micro-batch", type=int, help="completions; half of the rollout batch if not given")
    parser.add_argument("--rollouts", type=int, default=2, help="timed rollout batches per repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--attention", help="transformers' attn_implementation")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of parameters; bfloat16 on a GPU")
    parser.add_argument("--lora", action="store_true", help="train adapters of rank 16 on all linear layers")
    parser.add_argument("--output", type=Path, help="write the result as JSON, too")
    args = parser.parse_args()
    if "grpo" not in args.variants:
        parser.error("--variants must include grpo, which all others are compared with")
    args.micro_batch = args.micro_batch or args.completions // 2
    if args.completions % 16 or args.completions % (2 * args.micro_batch):
        parser.error(f"--completions {args.completions}: expected a multiple of 16 and of two micro-batches")
    if args.rollouts * args.repetitions < 2:
        parser.error("--rollouts times --repetitions must be at least 2, or there is no spread to report")
    return args


@cache
def make_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocabulary)}, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="t0", eos_token="t1")


def make_model(args) -> PreTrainedModel:
    """A model with random weights, made on its device: 8 B numbers take minutes to draw on a processor."""
    # on a GPU in bfloat16, or 8 B parameters would not fit beside their optimiser's state
    dtype = getattr(torch, args.dtype or ("bfloat16" if torch.cuda.is_available() else "float32"))
    more = {"attn_implementation": args.attention} if args.attention else {}
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return AutoModelForCausalLM.from_config(Qwen3Config(**MODELS[args.model]), dtype=dtype, **more)


def draw_lengths(args, seed: int) -> list[int]:
    """Tokens of the completions of a rollout batch."""
    if args.lengths == "equal":
        return [args.tokens] * args.completions
    # as those of reasoning models: a median of 3k where 20k are allowed
    spread = torch.randn(args.completions, generator=torch.Generator().manual_seed(seed)).exp()
    return [min(args.tokens, max(1, int(0.15 * args.tokens * x))) for x in spread.tolist()]


def make_trainer(args, variant: str, mode: str, folder: str) -> GRPOTrainer:
    vocabulary = MODELS[args.model]["vocab_size"]
    on_gpu = torch.cuda.is_available()

    def fixed_rollouts(prompts, trainer):
        seed = trainer.state.global_step
        lengths = draw_lengths(args, seed)[: len(prompts)]
        ids = torch.randint(
            2, vocabulary, (len(prompts), args.tokens), generator=torch.Generator().manual_seed(seed)
        ).tolist()
        ids = [row[:length] for row, length in zip(ids, lengths, strict=True)]
        return {
            "prompt_ids": [[2, 3, 4]] * len(prompts),
            "completion_ids": ids,
            "logprobs": [[-1.0] * len(row) for row in ids],
        }

    def reward(completion_ids, **kwargs):
        return [float(ids[0] % 2) for ids in completion_ids]

    micro_batches = args.completions // args.micro_batch
    training_args = DeltaGRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=args.micro_batch,
        steps_per_generation=micro_batches,
        gradient_accumulation_steps=micro_batches // MODES[mode],
        num_generations=8,
        max_completion_length=args.tokens,
        max_steps=(args.rollouts + 1) * MODES[mode],
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        gradient_checkpointing=on_gpu,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        **(VARIANTS | RULE_VARIANTS)[variant],
    )
    return (GRPOTrainer if variant == "grpo" else DeltaGRPOTrainer)(
        make_model(args),
        reward,
        training_args,
        Dataset.from_dict({"prompt": ["t2 t3 t4"] * 64}),
        processing_class=make_tokenizer(vocabulary),
        rollout_func=fixed_rollouts,
        peft_config=adapters() if args.lora else None,
    )


def adapters():
    from peft import LoraConfig  # only needed here

    return LoraConfig(r=16, target_modules="all-linear")


def make_recipe_trainer(args, variant: str, folder: str) -> GRPOTrainer:
    words = ["--config", str(args.recipe), "--output_dir", folder, "--save_strategy", "no", "--log_token_credit", "0"]
    words += [word for key, value in (VARIANTS | RULE_VARIANTS)[variant].items() for word in (f"--{key}", str(value))]
    run_args, training_args, model_args = parse_recipe(words)
    training_args.max_steps = (args.rollouts + 1) * steps_per_rollout(vars(training_args))
    training_args.disable_tqdm, training_args.log_completions = True, False
    return build(run_args, training_args, model_args)


def steps_per_rollout(options: dict) -> int:
    steps, accumulated = options["steps_per_generation"], options["gradient_accumulation_steps"]
    if steps % accumulated:
        raise SystemExit(f"steps_per_generation={steps} is no multiple of gradient_accumulation_steps={accumulated}")
    return steps // accumulated * options.get("num_iterations", 1)


class StepClock(TrainerCallback):
    """Seconds of every optimiser step without generation; without a GPU processor time, which ignores other work."""

    def __init__(self, trainer: GRPOTrainer):
        self.now = time.perf_counter if torch.cuda.is_available() else time.process_time
        self.steps, self.generations, self.generation = [], [], 0.0
        generate = trainer._generate

        def timed_generate(*args, **kwargs):
            start = self.now()
            try:
                return generate(*args, **kwargs)
            finally:
                self.generation += self.now() - start
                self.generations.append(self.now() - start)

        trainer._generate = timed_generate

    def on_step_begin(self, args, state, control, **kwargs):
        self.start, self.generation = self.now(), 0.0

    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.steps.append(self.now() - self.start - self.generation)


@contextmanager
def peak_memory(result: dict):
    """Highest memory in MB while the context lasts, into `result`."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        yield
        result["memory"] = torch.cuda.max_memory_allocated() / 2**20
    else:
        Path("/proc/self/clear_refs").write_text("5")  # start the high-water mark of the resident set anew
        yield
        status = Path("/proc/self/status").read_text()
        result["memory"] = int(status.split("VmHWM:")[1].split()[0]) / 2**10


def measure(trainer: GRPOTrainer) -> dict:
    """Seconds of the steps and of the coefficients of each rollout batch but the first, which warms up."""
    clock, result = StepClock(trainer), {}
    trainer.add_callback(clock)
    trainer.remove_callback(PrinterCallback)
    with peak_memory(result), only_labels_in_lm_head(trainer.accelerator.device):
        trainer.train()
    n = steps_per_rollout(vars(trainer.args))
    result["seconds"] = [sum(clock.steps[i : i + n]) for i in range(0, len(clock.steps), n)][1:]
    result["generation"] = clock.generations[1:]
    for name in ("seconds", "extra_forward_passes"):
        logged = [entry[f"credit/{name}"] for entry in trainer.state.log_history if f"credit/{name}" in entry]
        result[f"credit/{name}"] = logged[1:]
    return result


def summarize(runs: list[dict]) -> dict:
    credit = [value for run in runs for value in run["credit/seconds"]]
    passes = [value for run in runs for value in run["credit/extra_forward_passes"]]
    return {
        "seconds": spread([value for run in runs for value in run["seconds"]]),
        "credit_seconds": statistics.median(credit) if credit else 0.0,
        "extra_forward_passes": max(passes, default=0),
        "generation_seconds": statistics.median(value for run in runs for value in run["generation"]),
        "peak_memory_mb": statistics.median(run["memory"] for run in runs),
    }


def table(results: dict) -> str:
    lines = [
        "| mode | variant | s per rollout batch | quartiles | × GRPO | coefficients, s | extra passes | peak MB | "
        "generation, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for mode, variants in results.items():
        base = variants["grpo"]["seconds"]["median"]
        for name, r in variants.items():
            median, (low, high) = r["seconds"]["median"], r["seconds"]["quartiles"]
            lines.append(
                f"| {mode} | {name} | {median:.3f} | {low:.3f} to {high:.3f} | {median / base:.2f} | "
                f"{r['credit_seconds']:.3f} | {r['extra_forward_passes']:.0f} | {r['peak_memory_mb']:.0f} | "
                f"{r['generation_seconds']:.1f} |"
            )
    return "\n".join(lines)


def visit(make: Callable[[str], GRPOTrainer]) -> dict:
    """Measure one trainer, made in a folder of its own, and free its memory."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(folder)
        try:
            return measure(trainer)
        finally:
            del trainer  # before the next one is made
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def main():
    args = parse_args()
    transformers.logging.set_verbosity_error()
    results = {}
    for mode in ["recipe"] if args.recipe else args.modes:
        runs = {name: [] for name in args.variants}
        for _ in tqdm(range(args.repetitions), desc=mode, unit="repetition", file=sys.stderr):
            for name in runs:
                if args.recipe:
                    runs[name].append(visit(partial(make_recipe_trainer, args, name)))
                else:
                    runs[name].append(visit(partial(make_trainer, args, name, mode)))
        results[mode] = {name: summarize(of_name) for name, of_name in runs.items()}
    print(table(results))
    if args.output:
        machine = {"python": platform.python_version(), "torch": torch.__version__, "trl": trl.__version__}
        machine["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
        options = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
        del options["output"]
        machine |= {"threads": torch.get_num_threads(), "options": options}
        args.output.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
