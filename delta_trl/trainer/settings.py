"""The record of a run's settings in its folder and its checkpoints."""

import datetime
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate import Accelerator, DistributedType
from accelerate.logging import get_logger
from transformers.trainer_utils import has_length
from trl.trainer.utils import get_config_model_id

from ..arguments.differences import differences, in_words
from ..data.columns import prompts_of
from ..files import SETTINGS, read_json
from ..version import __version__


logger = get_logger(__name__)

VERSIONS = ("trl", "transformers", "torch", "datasets", "tokenizers")
# Options that hold a secret, at any depth: those of transformers, of the hub, and what services call theirs
SECRETS = {
    "hub_token",
    "push_to_hub_token",
    "token",
    "use_auth_token",
    "auth_token",
    "access_token",
    "api_key",
    "api_token",
    "password",
    "secret",
}
OF_ONE_CALL = ("date", "call", "goes_on_from", "arguments.resume_from_checkpoint")  # they say nothing about the run
# In the optimizer's parameter groups, and in trainer_state.json. The shape of a schedule does not come back:
# `lr_scheduler_type`, `warmup_steps` and `max_steps` are those of the run that goes on
RESTORED = tuple(
    f"arguments.{name}"
    for name in (
        *("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
        *("logging_steps", "eval_steps", "save_steps"),
    )
)
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the `repr` of an object, with capitals in PIL's: differs each time


def warn_of_changes(checkpoint: Path, now: dict[str, Any]) -> None:
    """Warn about every setting that differs from the checkpoint's, and say which of the changes have no effect."""
    changed = differences(read_json(checkpoint / SETTINGS) or now, now)
    for name in OF_ONE_CALL:
        changed.pop(name, None)
    restored = RESTORED
    if now["arguments"]["use_adaptive_entropy"]:
        restored += ("arguments.entropy_coef",)  # which TRL has adapted
    without_effect = []
    for name in restored:
        if name in changed:
            before, asked = changed.pop(name)
            without_effect.append(f"{name} stays {before!r}, not {asked!r}")
    if changed:
        logger.warning(f"The run goes on from {checkpoint} with other settings: {in_words(changed)}.")
    if without_effect:
        logger.warning(
            f"The checkpoint brings back these settings: {'; '.join(without_effect)}. For the changes to take effect, "
            "start a new run from the checkpoint's model."
        )


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as a JSON file gives them back; objects as their `repr`, without addresses."""
    text = json.dumps(settings, default=lambda value: sorted(value) if isinstance(value, set) else str(value))
    return json.loads(ADDRESS.sub("", text))


def settings_of(trainer: Any) -> dict[str, Any]:
    """Model, data, rewards, all arguments, the options of a recipe, and versions. Leaves out `SECRETS`."""
    args = trainer.args
    data = trainer.train_dataset
    adapters = getattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config", {}).values()
    return {
        "date": datetime.date.today().isoformat(),
        "model": get_config_model_id(trainer.model.config),
        "dataset": trainer.dataset_name,
        "rows": len(data) if has_length(data) else None,
        "prompts_sha256": _hash_of_prompts(prompts_of(data)),
        "adapter": next((config.to_dict() for config in adapters), None),
        "rewards": list(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)),
        "processes": args.world_size,
        "sharding": sharding_of(trainer.accelerator),
        "arguments": without_secrets(args.to_dict()),
        "recipe": without_secrets(trainer.recipe),
        "versions": {"delta_trl": __version__, **{package: version(package) for package in VERSIONS}},
    }


def sharding_of(accelerator: Accelerator) -> str | None:
    """How a run's state is split over processes. Only a run with the same sharding reads its checkpoints."""
    state = accelerator.state
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        return f"ZeRO-{state.deepspeed_plugin.zero_stage}"
    if accelerator.distributed_type == DistributedType.FSDP:
        return f"FSDP{state.fsdp_plugin.fsdp_version}, {state.fsdp_plugin.state_dict_type.name}"
    return None


def _hash_of_prompts(prompts: Sequence | None) -> str | None:
    if prompts is None:
        return None
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(ADDRESS.sub("", repr(prompt)).encode())
    return digest.hexdigest()


def without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): without_secrets(item) for name, item in value.items() if name not in SECRETS}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item) for item in value]
    return value
