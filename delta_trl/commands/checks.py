"""Checks of a call of `delta-trl train` that need no heavy import, and so cost no time."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..arguments.errors import UsageError
from ..arguments.options import Options, is_given, is_true
from .folder import refuse_another_run


REQUIRED = ("model_name_or_path", "dataset_name", "reward_funcs", "output_dir")
# For each option, the prefixes of options that have no effect unless it is given, be it as `false`
SWITCHES = {
    "use_peft": ("lora_", "use_rslora", "use_dora"),
    "load_in_4bit": ("bnb_4bit_", "use_bnb_nested_quant"),
    "use_vllm": ("vllm_",),
    "eval_strategy": ("eval_", "num_generations_eval", "dataset_test_split"),
    "sync_ref_model": ("ref_model_",),
    "use_adaptive_entropy": ("entropy_coef_", "entropy_target"),
}
FILES = (".json", ".jsonl", ".parquet", ".csv", ".txt", ".gz", ".zip", ".arrow")  # suffixes of no hub id
TRACKERS = ("wandb", "trackio", "mlflow", "comet_ml", "swanlab")  # in report_to, and as packages


def check_call(options: Options, dry_run: bool = False) -> None:
    """Raise `UsageError` for a missing recipe, key, file, folder or package, or an output folder that is taken."""
    if not (options.flags or options.recipe):
        raise UsageError("train needs a recipe: delta-trl train --config RECIPE.yaml (`--help` lists its options).")
    if {"help", "help_all"} & options.flags.keys():
        return
    given = options.values
    for name in REQUIRED:
        if not given.get(name) or given[name] is True:
            raise UsageError(f"`{name}` is missing: set it in the recipe or as --{name}.")
    check_model_path(given["model_name_or_path"], adapters=False)
    for name in ("dataset_name", "eval_dataset_name"):
        if given.get(name):
            check_dataset_path(given[name], name)
    refuse_options_without_effect(given)
    if dry_run:
        return
    inputs = [given.get(name) for name in ("model_name_or_path", "dataset_name", "eval_dataset_name")]
    how = [given.get(name) for name in ("resume_from_checkpoint", "overwrite_output_dir")]
    refuse_another_run(given["output_dir"], *how, *inputs)
    report_to = given.get("report_to") or []
    for tracker in [report_to] if isinstance(report_to, str) else report_to:
        if tracker in TRACKERS and find_spec(tracker) is None:
            raise UsageError(f"report_to={tracker!r}: the package is not installed: pip install {tracker}")


def take_dry_run(options: Options) -> int | None:
    """Remove the options of a dry run. Returns the number of processes to plan for, `None` without a dry run."""
    given = options.values.get("dry_run", False)
    if isinstance(given, list) or not (is_true(given) or not is_given(given)):
        raise UsageError(f"--dry-run {given}: expected true or false. --num-processes N plans for N processes.")
    dry_run = is_true(given)
    asked = options.values.get("num_processes")
    for name in ("dry_run", "num_processes"):
        options.flags.pop(name, None)
    if not dry_run:
        if asked is not None:
            raise UsageError("--num-processes goes with --dry-run; `accelerate launch` starts processes to train on.")
        return None
    asked = os.environ.get("WORLD_SIZE", 1) if asked is None else asked
    if not str(asked).isdecimal() or int(asked) < 1:
        raise UsageError(f"--num-processes {asked}: expected a positive number.")
    return int(asked)


def refuse_options_without_effect(given: dict[str, Any]) -> None:
    """Raise `UsageError` for options that have no effect because the option that they depend on is not given."""
    for switch, beginnings in SWITCHES.items():
        unused = [name for name in given if name.startswith(beginnings) and given[name] is not None]
        if unused and given.get(switch) is None:
            are = "is" if len(unused) == 1 else "are"
            raise UsageError(f"{', '.join(unused)} {are} without effect unless {switch} is set.")


def _is_missing(name: str) -> bool:
    """Whether a name is no hub id, and no such file exists."""
    path = Path(name)
    local = name.startswith((".", "/")) or len(path.parts) > 2 or path.suffix in FILES
    return local and not path.exists()


def check_model_path(name: str, adapters: bool = True) -> None:
    """Raise `UsageError` for a local path that holds no saved model; without `adapters`, also for a PEFT adapter."""
    path = Path(str(name))
    if _is_missing(str(name)):
        raise UsageError(f"model_name_or_path={name!r}: no such folder (from {Path.cwd()}).")
    if path.is_file():
        raise UsageError(f"model_name_or_path={name!r} is a file: name the folder of a saved model, or a hub id.")
    found = [file for file in ("config.json", "adapter_config.json") if (path / file).is_file()]
    if path.is_dir() and not found:
        raise UsageError(f"model_name_or_path={name!r}: no config.json in that folder: not a saved model.")
    if found == ["adapter_config.json"] and not adapters:
        raise UsageError(
            f"model_name_or_path={name!r} is a PEFT adapter: train from its base model, or from the two merged "
            "(PeftModel.merge_and_unload)."
        )


def check_dataset_path(name: str, option: str = "dataset_name") -> None:
    """Raise `UsageError` for a local data file that is missing or empty."""
    path = Path(str(name))
    if _is_missing(str(name)):
        raise UsageError(f"{option}={name!r}: no such file (from {Path.cwd()}).")
    if path.is_file() and not path.stat().st_size:
        raise UsageError(f"{option}={name!r}: the file is empty.")
