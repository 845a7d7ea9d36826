"""What chaos.py launches: commands that continue a stopped run, and the results of a finished one."""

import json
import sys
from pathlib import Path

from ..studies.runs import read_rows
from .chaos_machine import ROOT


STEPS = 8
METRICS = ("step", "loss", "reward", "grad_norm", "credit/coefficient_std", "eval_reward", "eval_avg_at_k")
NUMBERS = ("reward", "grad_norm", "accuracy_before", "accuracy_after")  # of a row of the study


def make_run(folder: Path) -> None:
    """A tiny model, data to train and to evaluate on."""
    import torch

    from tests.corpus import tiny

    torch.manual_seed(0)
    tiny.model(attention_dropout=0.1).save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    tiny.dataset(16).to_json(folder / "train.jsonl")
    tiny.dataset(4).to_json(folder / "eval.jsonl")


def train_command(folder: Path, name: str) -> list[str]:
    import yaml

    recipe = {
        "model_name_or_path": str(folder / "model"),
        "dataset_name": str(folder / "train.jsonl"),
        "eval_dataset_name": str(folder / "eval.jsonl"),
        "eval_strategy": "steps",
        "eval_steps": 4,
        "reward_funcs": ["scripts.endurance.chaos_reward.reward"],
        "output_dir": str(folder / name),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": STEPS,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 3,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "log_token_credit": 2,
        "report_to": "none",
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    launcher = ["-m", "accelerate.commands.launch", "--config_file", "accelerate_configs/cpu_ddp.yaml"]
    arguments = [
        "--main_process_port",
        "0",
        "scripts/train.py",
        "--config",
        str(path),
        "--resume_from_checkpoint",
        "true",
    ]
    return [sys.executable, *launcher, *arguments]


def eval_command(folder: Path, name: str) -> list[str]:
    options = {
        "model_name_or_path": folder / "model",
        "benchmarks": folder / "train.jsonl",
        "output_dir": folder / name,
        "reward": "scripts.endurance.chaos_reward.reward",
        "num_generations": 4,
        "max_completion_length": 24,
        "top_p": 1.0,
        "batch_size": 2,
        "use_cpu": True,
    }
    return [
        sys.executable,
        "-m",
        "delta_trl.cli",
        "eval",
        *(str(x) for key, value in options.items() for x in (f"--{key}", value)),
    ]


def audit_command(folder: Path, name: str) -> list[str]:
    options = {
        "model_name_or_path": ROOT / "scripts" / "studies" / "models" / "arithmetic",
        "benchmarks": "scripts.studies.audit_benchmarks.study_arithmetic",
        "output_dir": folder / name,
        "num_prompts": 16,
        "prompts_per_batch": 4,
        "num_generations": 4,
        "reference_batches": 4,
        "batch_size": 8,
        "use_cpu": True,
    }
    flags = [str(x) for key, value in options.items() for x in (f"--{key}", value)]
    return [sys.executable, "-m", "delta_trl.cli", "audit", *flags, "--rules", "delta", "surprisal"]


STUDY = """
from pathlib import Path
from scripts.studies import plans, runs, study
folder = Path({folder!r})
folder.mkdir(exist_ok=True)
cells = [(variant, seed) for seed in range(2) for variant in ("dapo", "delta")]
chosen = [runs.Run("study", "arithmetic", variant, 2.5e-4, seed) for variant, seed in cells]
runner = study.Runner(plans.CREDIT, {{"tune": 1, "study": 2}}, test_problems=8, folder=folder)
runs.work(chosen, folder / "rows.jsonl", runner, folder / "locks", wait_seconds=0.1)
"""


def study_command(folder: Path, name: str) -> list[str]:
    """Four short runs of the study, by its own runner."""
    return [sys.executable, "-c", STUDY.format(folder=str(folder / name))]


COMMANDS = {"train": train_command, "eval": eval_command, "audit": audit_command, "study": study_command}


def outcome(what: str, output: Path) -> dict:
    """All results of a finished run, which must not depend on hits."""
    if what == "eval":
        return {name: json.loads((output / name).read_text()) for name in ("settings.json", "results.json")} | {
            "samples": (output / "samples.jsonl").read_text()
        }
    if what == "audit":
        return {name: (output / name).read_text() for name in ("samples.jsonl", "results.json", "audit.html")}
    if what == "study":
        rows = [
            [row["variant"], row["seed"], *(row[key] for key in NUMBERS)] for row in read_rows(output / "rows.jsonl")
        ]
        return {"rows": sorted(rows)}
    import pyarrow.parquet as pq
    from safetensors.torch import load_file

    state = json.loads((output / "trainer_state.json").read_text())
    history = [{key: entry[key] for key in METRICS if key in entry} for entry in state["log_history"]]
    records = {
        path.name: pq.read_table(path).to_pylist() for path in sorted((output / "token_credit").glob("*.parquet"))
    }
    if lost := {*METRICS} - {key for entry in history for key in entry} or not records:
        raise ValueError(f"{output}: nothing to compare in {lost or 'token_credit'}")
    weights = {name: value.tolist() for name, value in load_file(output / "model.safetensors").items()}
    return {"history": [one for one in history if len(one) > 1], "records": records, "weights": weights}
