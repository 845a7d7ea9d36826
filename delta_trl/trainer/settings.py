"""The record of a run's settings in its folder. A run resumes only if no setting that affects learning has changed."""

import dataclasses
import json
import re
from collections.abc import Set
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from datasets import Dataset
from transformers.trainer_pt_utils import get_model_param_count
from transformers.trainer_utils import has_length
from trl.trainer.utils import get_config_model_id

from ..arguments.errors import UsageError
from ..files import SETTINGS, differences, in_words
from ..version import __version__
from .rollouts import optimiser_steps_per_rollout


logger = get_logger(__name__)

VERSIONS = ("trl", "transformers", "torch", "datasets", "tokenizers")
SECRET = re.compile(r"(?:^|_)(?:tokens?|keys?|secrets?|passwords?)$")  # options whose names end so hold a secret
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the default `repr` of an object: differs each time
GROUPS = ("arguments", "recipe", "adapter", "versions")  # of options, in a record
# Options that do not change training: where a run writes, what it prints, what it records
BESIDE = {"output_dir", "run_name", "hub_model_id", "project", "trackio_space_id", "report_to", "terminal"}
BESIDE |= {"overwrite_output_dir", "resume_from_checkpoint", "log_completions", "num_completions_to_print"}
BESIDE |= {"log_token_credit", "log_token_credit_completions", "log_token_credit_max_mb"}
# Recorded elsewhere, in fuller form
REPEATED = {"model_name_or_path", "dataset_name"}
# What may change when a run goes on: how long it is, what is measured and kept, where and how the same is computed,
# and into how many parts a batch is split. Everything else changes what is learned.
MAY_CHANGE = re.compile(
    r"max_steps|num_train_epochs|"
    r"(eval|save|log|logging|hub|trackio)_\w+|num_generations_eval|dataset_test_split|disable_tqdm|push_to_hub|"
    r"do_train|do_eval|do_predict|(bf16|fp16)_full_eval|batch_eval_metrics|prediction_loss_only|include_\w+|debug|"
    r"local_rank|load_best_model_at_end|metric_for_best_model|greater_is_better|enable_jit_checkpoint|skip_memory_metrics|"
    r"processes|device|use_cpu|delta_trl|trl|transformers|torch|datasets|tokenizers|peft_version|attn_implementation|"
    r"(per_device|dataloader|ddp|ds3|torch)_\w+|gradient_accumulation_steps|steps_per_generation|"
    r"(gradient|activation)_checkpointing\w*|fsdp|fsdp_\w+|deepspeed|accelerator_config|parallelism_config|"
    r"vllm_(?!importance_sampling|structured_outputs)\w+|cache_implementation"
)


def check_settings(trainer, checkpoint: Path, now: dict[str, Any]) -> None:
    """
    A run that goes on from a checkpoint must have the settings that this holds: otherwise the record and the model
    card would be those of a part of it only.

    Raises:
        UsageError: If a setting that affects learning has changed. Other changes cause a warning.
    """
    record = checkpoint / SETTINGS
    if not record.is_file():
        logger.warning(
            f"{checkpoint} has no record of its settings (those of GRPOTrainer have none), so that they may be others "
            "than these. Its optimizer and learning rate go on."
        )
        return
    before = json.loads(ADDRESS.sub("", record.read_text()))
    changed = trainer.changed_settings(before, now)
    refused = {name: values for name, values in changed.items() if not may_change(name, trainer.harmless_options)}
    if refused:
        raise UsageError(
            f"resume_from_checkpoint={str(checkpoint)!r}: its run has other settings: {in_words(refused)}. Go on "
            "with the same ones, or start a new run from its weights, with the checkpoint as model_name_or_path "
            "and another output_dir."
        )
    if changed:
        logger.warning(f"The run goes on with other settings than before: {in_words(changed)}.")


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(settings, default=lambda value: sorted(value) if isinstance(value, set) else str(value))
    return json.loads(ADDRESS.sub("", text))


def may_change(name: str, harmless: Set[str] = frozenset()) -> bool:
    """Whether a setting may change when a run goes on. Judged by the option's name, not by names that users give."""
    group, *parts = name.split(".")
    option = parts.pop(0) if group in GROUPS and parts else group
    if option == "model_init_kwargs":
        return parts in (["attn_implementation"], ["device_map"])
    return option in harmless or MAY_CHANGE.fullmatch(option) is not None


def changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that differ between two records and matter to a run, as in [`~files.differences`]."""

    def counts(name: str) -> bool:
        group, *option = name.split(".")[:2]
        if group not in GROUPS:
            return group in before and group in now
        # leaves out options that only one of two versions has, or that only a recipe sets
        known = all(option[0] in (record.get(group) or {}) for record in (before, now)) if option else False
        return known and option[0] not in BESIDE | REPEATED

    return {name: values for name, values in differences(before, now).items() if counts(name)}


def settings_of(trainer) -> dict[str, Any]:
    """Model, data, rewards, all arguments, the options of a recipe, and versions. Leaves out secrets."""
    args, data = trainer.args, trainer.train_dataset
    adapters = getattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config", {}).values()
    return {
        "model": get_config_model_id(trainer.model.config),
        "dataset": trainer.dataset_name,
        "rows": len(data) if has_length(data) else None,
        "first_prompt": _first_prompt(data),
        "adapter": next((config.to_dict() for config in adapters), None),
        "rewards": dict(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)),
        "trainable_parameters": get_model_param_count(trainer.model, trainable_only=True),
        "optimiser_steps_per_rollout": str(optimiser_steps_per_rollout(args)),
        "processes": args.world_size,
        "device": str(args.device.type),
        "arguments": _open({f.name: getattr(args, f.name) for f in dataclasses.fields(args) if f.init}),
        "recipe": _open(trainer.recipe),
        "versions": {"delta_trl": __version__, **{package: version(package) for package in VERSIONS}},
    }


def _first_prompt(data: Any) -> str | None:
    """It tells another dataset, or another order, with as many rows."""
    known = isinstance(data, Dataset) and "prompt" in data.column_names and data.format["type"] != "custom"
    return str(data.with_format(None)[0]["prompt"])[:200] if known else None


def _open(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """The options without those whose names say that they hold secrets."""
    if options is None:
        return None
    return {
        str(name): _open(value) if isinstance(value, dict) else value
        for name, value in options.items()
        if not SECRET.search(str(name))
    }
