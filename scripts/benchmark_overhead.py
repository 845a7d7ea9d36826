"""
What token credit costs: step time of DeltaGRPOTrainer over GRPOTrainer, in one process, alternating, equal rollouts.

Generation is replaced by fixed random completions, so a step is scoring, rewards, coefficients and optimisation.
A random Qwen3 of about 5 M parameters by default; medians over the repetitions, with their quartiles. Seconds are the
processor's on a machine without a GPU.

    python scripts/benchmark_overhead.py --repetitions 5
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models
from tqdm import tqdm
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer


VOCABULARY = 2048
MODES = {
    # optimiser steps per rollout batch: with one, TRL needs no old log-probs and DelTA makes a pass of its own
    "aligned": {"gradient_accumulation_steps": 2, "steps_per_generation": 2},
    "misaligned": {"gradient_accumulation_steps": 1, "steps_per_generation": 2},
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--completions", type=int, default=32, help="per rollout batch")
    parser.add_argument("--tokens", type=int, default=256, help="per completion")
    parser.add_argument("--rollouts", type=int, default=3, help="timed rollout batches per repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--token-gradient", default="output_row", help="of DeltaGRPOTrainer")
    parser.add_argument("--output", type=Path, help="write the result as JSON, too")
    return parser.parse_args()


def make_trainer(options, trainer_class, config_class, mode, folder):
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=options.hidden_size,
        intermediate_size=3 * options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden_size // 32,
        num_key_value_heads=options.hidden_size // 64,
        head_dim=32,
    )
    backend = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="t0", eos_token="t1")

    def fixed_rollouts(prompts, trainer):
        generator = torch.Generator().manual_seed(trainer.state.global_step)
        ids = torch.randint(2, VOCABULARY, (len(prompts), options.tokens), generator=generator).tolist()
        logprobs = [[-1.0] * options.tokens] * len(prompts)
        return {"prompt_ids": [[2, 3, 4]] * len(prompts), "completion_ids": ids, "logprobs": logprobs}

    def reward(completion_ids, **kwargs):
        return [float(ids[0] % 2) for ids in completion_ids]

    credit = {"token_gradient": options.token_gradient} if config_class is DeltaGRPOConfig else {}
    args = config_class(
        output_dir=folder,
        per_device_train_batch_size=options.completions // 2,
        num_generations=8,
        max_completion_length=options.tokens,
        max_steps=(options.rollouts + 1)
        * MODES[mode]["steps_per_generation"]
        // MODES[mode]["gradient_accumulation_steps"],
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        gradient_checkpointing=False,
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        **MODES[mode],
        **credit,
    )
    dataset = Dataset.from_dict({"prompt": ["t2"] * 64})
    model = AutoModelForCausalLM.from_config(config)
    return trainer_class(
        model, reward, args, dataset, processing_class=tokenizer, rollout_func=fixed_rollouts, callbacks=[]
    )


class StepClock(TrainerCallback):
    """Time of every optimiser step; without a GPU the processor's, so that other work on the machine is left out."""

    def __init__(self):
        self.now = time.perf_counter if torch.cuda.is_available() else time.process_time
        self.steps = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.start = self.now()

    def on_step_end(self, args, state, control, **kwargs):
        self.steps.append(self.now() - self.start)


def seconds_per_rollout(trainer) -> list[float]:
    """Seconds of all steps of each rollout batch. The first one warms up and is left out."""
    clock = StepClock()
    trainer.add_callback(clock)
    trainer.train()
    per_rollout = trainer.args.steps_per_generation // trainer.args.gradient_accumulation_steps
    return [sum(clock.steps[i : i + per_rollout]) for i in range(0, len(clock.steps), per_rollout)][1:]


def main():
    options = parse_args()
    transformers.logging.set_verbosity_error()
    results = {"python": platform.python_version(), "torch": torch.__version__, "trl": trl.__version__}
    results |= {"threads": torch.get_num_threads(), "options": vars(options) | {"output": str(options.output)}}
    for mode in MODES:
        times = {"grpo": [], "delta": []}
        for _ in tqdm(range(options.repetitions), desc=mode, file=sys.stderr):
            for name, classes in (("grpo", (GRPOTrainer, GRPOConfig)), ("delta", (DeltaGRPOTrainer, DeltaGRPOConfig))):
                with tempfile.TemporaryDirectory() as folder:
                    times[name] += seconds_per_rollout(make_trainer(options, *classes, mode, folder))
        median = {name: statistics.median(values) for name, values in times.items()}
        quartiles = {name: statistics.quantiles(values, n=4) for name, values in times.items()}
        ratio = median["delta"] / median["grpo"]
        results[mode] = {"median": median, "quartiles": quartiles, "ratio": ratio}
        for name in times:
            low, _, high = quartiles[name]
            print(f"{mode:>10} {name:>6}: {median[name]:.3f} s per rollout batch ({low:.3f} to {high:.3f})")
        print(f"{mode:>10}  ratio: {ratio:.3f}")
    if options.output:
        options.output.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
