"""
Measures what token credit costs: DeltaGRPOTrainer and GRPOTrainer take turns in one process, on the same rollouts.

Generation is replaced by fixed random completions. The rest of a step is scoring, rewards, coefficients and
optimisation. Models have random weights. The lengths of all rollout batches come twice, and the second time counts: a
GPU prepares kernels for each new shape. Reports medians over all timed rollout batches, with quartiles, and the median
of the first time, when the trainer also warms up. On a machine without a GPU, seconds are processor time. Memory
is the peak during training: the resident set, with a GPU the allocated memory. Ratios are those of the policy to the
one that was scored, before any update: of all tokens, the share outside .9 to 1.1 and the largest absolute log-ratio.

    python -m scripts.benchmarks.overhead --model 5m --repetitions 5 --output outputs/overhead_5m.json
    python -m scripts.benchmarks.overhead --lengths lognormal --tokens 512 --micro-batch 2 --variants grpo none delta
"""

import argparse
import gc
import json
import platform
import statistics
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import torch
import transformers
import trl
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models
from tqdm import tqdm
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback, Qwen3Config, TrainerCallback
from trl import GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import RULES
from delta_trl.trainer import trainer as trainer_module

from .timing import clock, processor, spread, wait


GENERATIONS = 8  # completions of a prompt
SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
)
MODELS = {
    "tiny": (32, 2, 64, 4, 2, 8, 256, False),  # to see that it runs
    "5m": (256, 6, 768, 8, 4, 32, 2048, False),
    "5m-32k": (256, 6, 768, 8, 4, 32, 32768, False),
    "135m": (576, 30, 1536, 9, 3, 64, 49152, True),  # as SmolLM2's
    # the shapes of Qwen3's models
    "0.6b": (1024, 28, 3072, 16, 8, 128, 151936, True),
    "1.7b": (2048, 28, 6144, 16, 8, 128, 151936, True),
    "4b": (2560, 36, 9728, 32, 8, 128, 151936, True),
    "8b": (4096, 36, 12288, 32, 8, 128, 151936, False),
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
    "every row": {},  # as `delta`, rows without advantage, too
    "cpu cache": {"hidden_state_cache": "cpu"},
    "topk_hidden": {"token_credit_kwargs": {"token_gradient": "topk_hidden"}},
    "lm_head": {"token_credit_kwargs": {"token_gradient": "lm_head"}},
    "full": {"token_credit_kwargs": {"token_gradient": "full"}},
}
for name in RULES:  # with their defaults; what `given` costs is up to its source
    if name != "given":
        VARIANTS.setdefault(name, {"token_credit": name})


@dataclass(frozen=True)
class Setup:
    """What is trained: a key of [`MODELS`], and a rollout batch of `completions` with at most `tokens` each."""

    model: str = "5m"
    completions: int = 32
    tokens: int = 256
    lengths: str = "equal"  # or lognormal, with a median of 0.15 `tokens`
    without_contrast: float = 0.0  # share of the groups whose rewards are equal
    prompt: int = 3  # mean tokens of the prompts; they have from half to three halves of it
    micro_batch: int = 0  # completions; by default half of the rollout batch
    rollouts: int = 2  # timed rollout batches; as many warm up
    dtype: str = "float32"
    autocast: str = "no"  # or bf16, as always on a GPU
    attention: str = "sdpa"
    lora: bool = False  # adapters of rank 16 on all linear layers

    def draw_lengths(self, seed: int) -> list[int]:
        """Tokens of the completions of a rollout batch."""
        if self.lengths == "equal":
            return [self.tokens] * self.completions
        # as those of reasoning models: a median of 3k where 20k are allowed
        drawn = torch.randn(self.completions, generator=generator(seed)).exp()
        return (0.15 * self.tokens * drawn).int().clamp(1, self.tokens).tolist()

    def draw_prompts(self, seed: int) -> list[int]:
        """Tokens of the prompt of each completion; those of a group are equal."""
        drawn = torch.rand(self.completions // GENERATIONS, generator=generator(seed))
        lengths = (self.prompt * (0.5 + drawn)).int().clamp(min=1)
        return lengths.repeat_interleave(GENERATIONS).tolist()


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class EveryRow(DeltaGRPOTrainer):
    """A loss of its own might read any row: none is left out."""

    def _compute_loss(self, model, inputs):
        return super()._compute_loss(model, inputs)


TRAINERS = {"grpo": GRPOTrainer, "every row": EveryRow}


@cache
def make_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocabulary)}, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="t0", eos_token="t1")


def make_trainer(setup: Setup, variant: str, mode: str, folder: str) -> GRPOTrainer:
    config = Qwen3Config(**dict(zip(SHAPE, MODELS[setup.model], strict=True)))
    on_gpu = torch.cuda.is_available()

    def fixed_rollouts(prompts, trainer):
        seed = trainer.state.global_step // MODES[mode] % setup.rollouts
        size = (len(prompts), setup.tokens)
        drawn = torch.randint(2, config.vocab_size, size, generator=generator(seed)).tolist()
        # not strict: micro-batches that do not divide the rollout batch make it smaller
        ids = [row[:length] for row, length in zip(drawn, setup.draw_lengths(seed), strict=False)]
        prompt_ids = []
        for i, length in enumerate(setup.draw_prompts(seed)[: len(prompts)]):
            group = i // GENERATIONS
            prompt_ids.append([2 + group] * length)
        logprobs = [[-1.0] * len(row) for row in ids]
        return {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": logprobs}

    def reward(completion_ids, trainer_state, **kwargs):
        n_groups = len(completion_ids) // GENERATIONS
        places = torch.randperm(n_groups, generator=generator(trainer_state.global_step))
        equal = places[: round(setup.without_contrast * n_groups)].tolist()  # groups of equal rewards
        return [0.0 if i // GENERATIONS in equal else float(ids[0] % 2) for i, ids in enumerate(completion_ids)]

    torch.manual_seed(0)
    with torch.device("cuda" if on_gpu else "cpu"):  # 8 B numbers take minutes to draw on a processor
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, setup.dtype), attn_implementation=setup.attention
        )
    micro_batch = setup.micro_batch or setup.completions // 2
    micro_batches = setup.completions // micro_batch
    training_args = DeltaGRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=micro_batch,
        steps_per_generation=micro_batches,
        gradient_accumulation_steps=micro_batches // MODES[mode],
        num_generations=GENERATIONS,
        max_completion_length=setup.tokens,
        max_steps=2 * setup.rollouts * MODES[mode],
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        activation_checkpointing=on_gpu,
        use_cpu=not on_gpu,
        bf16=on_gpu or setup.autocast == "bf16",
        **VARIANTS[variant],
    )
    return TRAINERS.get(variant, DeltaGRPOTrainer)(
        model,
        reward,
        training_args,
        Dataset.from_dict({"prompt": ["t2 t3 t4"] * 64}),
        processing_class=make_tokenizer(config.vocab_size),
        rollout_func=fixed_rollouts,
        peft_config=LoraConfig(r=16, target_modules="all-linear") if setup.lora else None,
    )


class StepClock(TrainerCallback):
    """Seconds of every optimiser step without generation."""

    def __init__(self, trainer: GRPOTrainer):
        self.device = trainer.accelerator.device
        self.now = clock(self.device)
        self.steps = []
        self.generation = 0.0
        generate = trainer._generate

        def timed_generate(*args, **kwargs):
            start = self.now()
            output = generate(*args, **kwargs)
            self.generation += self.now() - start
            return output

        trainer._generate = timed_generate

    def on_step_begin(self, args, state, control, **kwargs):
        self.generation = 0.0
        self.start = self.now()

    def on_step_end(self, args, state, control, **kwargs):
        wait(self.device)
        self.steps.append(self.now() - self.start - self.generation)


@contextmanager
def recorded_log_ratios(trainer: GRPOTrainer, steps: int):
    """
    Log-ratios of the policy to the one that was scored, (N,) for each micro-batch, in those optimiser steps of every
    `steps` before which none was made. A `DeltaGRPOTrainer` runs all rows if its own methods are wrapped; hence what
    they call is.
    """
    log_ratios = []

    def record(micro_batch: dict, log_probs: torch.Tensor) -> None:
        old = micro_batch.get("old_per_token_logps")
        if old is not None and trainer.state.global_step % steps == 0:
            valid = micro_batch["completion_mask"].bool()
            differences = log_probs.detach() - old
            log_ratios.append(differences[valid].float())

    if isinstance(trainer, DeltaGRPOTrainer):
        run = trainer_module.run_scoring_call

        def recorded_call(trainer, layouts, score, call, *args, **kwargs):
            outputs = run(trainer, layouts, score, call, *args, **kwargs)
            record(call.micro_batch or {}, outputs[0])
            return outputs

        with patch.object(trainer_module, "run_scoring_call", recorded_call):
            yield log_ratios
        return
    compute_loss = trainer._compute_loss
    score = trainer._get_per_token_logps_and_entropies

    def recorded_loss(model, inputs):
        def recorded_score(*args, **kwargs):
            outputs = score(*args, **kwargs)
            record(inputs, outputs[0])
            return outputs

        with patch.object(trainer, "_get_per_token_logps_and_entropies", recorded_score):
            return compute_loss(model, inputs)

    with patch.object(trainer, "_compute_loss", recorded_loss):
        yield log_ratios


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
        kilobytes = status.split("VmHWM:")[1].split()[0]
        result["memory"] = int(kilobytes) / 2**10


def visit(setup: Setup, variant: str, mode: str) -> dict:
    """Measure one trainer, each rollout batch at its second time; free the trainer's memory."""
    result = {}
    n = MODES[mode]
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(setup, variant, mode, folder)
        try:
            steps = StepClock(trainer)
            trainer.add_callback(steps)
            trainer.remove_callback(PrinterCallback)
            with recorded_log_ratios(trainer, n) as log_ratios, peak_memory(result):
                trainer.train()
            seconds = [sum(steps.steps[i : i + n]) for i in range(0, len(steps.steps), n)]
            result["first"] = seconds[: setup.rollouts]
            result["seconds"] = seconds[setup.rollouts :]
            result["tokens"] = [sum(setup.draw_lengths(seed)) for seed in range(setup.rollouts)]
            if log_ratios:
                result["ratios"] = spread_of_ratios(torch.cat(log_ratios))
            for name in ("credit/seconds", "credit/extra_forward_passes"):
                logged = [entry[name] for entry in trainer.state.log_history if name in entry]
                result[name] = logged[setup.rollouts :]
            return result
        finally:
            del trainer, steps  # before the next one is made
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def spread_of_ratios(log_ratios: torch.Tensor) -> dict[str, float]:
    """Of the log-ratios (N,) of all tokens."""
    outside = (log_ratios.exp() - 1).abs() > 0.1
    share = outside.float().mean()
    return {"outside": share.item(), "largest_log": log_ratios.abs().max().item()}


def summarize(runs: list[dict]) -> dict:
    def all_of(name: str) -> list:
        return list(chain(*(run[name] for run in runs)))

    seconds = all_of("seconds")
    ratios = [run["ratios"] for run in runs if "ratios" in run]
    return {
        "seconds": spread(seconds),
        "first_seconds": statistics.median(all_of("first")),
        "tokens_per_second": sum(all_of("tokens")) / sum(seconds),
        "credit_seconds": statistics.median(all_of("credit/seconds") or [0.0]),
        "extra_forward_passes": max(all_of("credit/extra_forward_passes"), default=0),
        "peak_memory_mb": statistics.median(run["memory"] for run in runs),
        "ratios": {name: max(one[name] for one in ratios) for name in ratios[0]} if ratios else None,
    }


COLUMNS = (
    "",
    "variant",
    "s per rollout batch",
    "quartiles",
    "× GRPO",
    "the first time",
    "tokens/s",
    "coefficients, s",
    "extra passes",
    "peak MB",
    "ratios outside .9 to 1.1",
    "largest log-ratio",
)


def table(results: dict) -> str:
    """Of results by mode or case, then by variant."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for case, variants in results.items():
        base = variants["grpo"]["seconds"]["median"] if "grpo" in variants else float("nan")
        for name, of_variant in variants.items():
            median = of_variant["seconds"]["median"]
            low, high = of_variant["seconds"]["quartiles"]
            ratios = of_variant["ratios"]
            cells = [
                case,
                name,
                f"{median:.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{median / base:.2f}",
                f"{of_variant['first_seconds']:.3f}",
                f"{of_variant['tokens_per_second']:.0f}",
                f"{of_variant['credit_seconds']:.3f}",
                f"{of_variant['extra_forward_passes']:.0f}",
                f"{of_variant['peak_memory_mb']:.0f}",
                f"{ratios['outside']:.4f}" if ratios else "",
                f"{ratios['largest_log']:.2g}" if ratios else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = [option for option in fields(Setup) if option.name != "lora"]
    for option in options:
        parser.add_argument(f"--{option.name.replace('_', '-')}", type=option.type, default=option.default)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["grpo", "none", "delta"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the result as JSON, too")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    setup = Setup(**{option.name: getattr(args, option.name) for option in options})
    results = {}
    for mode in args.modes:
        runs = {name: [] for name in args.variants}
        for _ in tqdm(range(args.repetitions), desc=mode, unit="repetition"):
            for name in runs:
                runs[name].append(visit(setup, name, mode))
        results[mode] = {name: summarize(of_name) for name, of_name in runs.items()}
    print(table(results))
    if args.output:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        machine = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "trl": trl.__version__,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
            "commit": commit,
            "threads": torch.get_num_threads(),
            "options": asdict(setup),
        }
        args.output.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
