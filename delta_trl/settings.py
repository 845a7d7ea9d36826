"""What a run was started with, in a file of its folder that the report reads."""

import dataclasses
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import has_length
from trl.trainer.utils import get_config_model_id

from . import __version__
from .credit import TokenCredit
from .files import write_atomically
from .runs.folder import SETTINGS


VERSIONS = ("trl", "transformers", "torch", "datasets", "tokenizers")
PLAIN = (bool, int, float, str, type(None))
SECRET = re.compile(r"(?:^|_)(?:tokens?|keys?|secrets?|passwords?)$")  # names of options that hold one


class SettingsRecord(TrainerCallback):
    """Writes `output_dir/training_settings.json` when training starts or goes on, on the main process."""

    def __init__(self, trainer):
        self._trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            text = json.dumps(settings_of(self._trainer), indent=2, default=str)
            write_atomically(text.encode(), Path(args.output_dir, SETTINGS))


def settings_of(trainer) -> dict[str, Any]:
    """Model, data, rewards, rule, all arguments, the recipe's where there is one, and versions; secrets left out."""
    args, data = trainer.args, trainer.train_dataset
    return {
        "model": get_config_model_id(trainer.model.config),
        "dataset": trainer.dataset_name,
        "rows": len(data) if has_length(data) else None,
        "rewards": dict(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)),
        "token_credit": _rule(trainer.token_credit),
        "processes": args.world_size,
        "device": str(args.device.type),
        "arguments": _open({f.name: getattr(args, f.name) for f in dataclasses.fields(args) if f.init}),
        "recipe": _open(trainer.recipe),
        "versions": {"delta_trl": __version__, **{package: version(package) for package in VERSIONS}},
    }


def _rule(rule: TokenCredit) -> dict[str, Any]:
    """Name, options, and which of them are not the defaults; a rule that is no dataclass has its `repr` only."""
    if type(rule) is TokenCredit:
        return {"rule": "none", "options": {}, "changed": []}
    if not dataclasses.is_dataclass(rule):
        return {"rule": repr(rule), "options": {}, "changed": []}
    options = [option for option in dataclasses.fields(rule) if option.repr]
    values = {option.name: getattr(rule, option.name) for option in options}
    return {
        "rule": type(rule).__name__,
        "options": {name: value if isinstance(value, PLAIN) else repr(value) for name, value in values.items()},
        "changed": [option.name for option in options if values[option.name] != _default(option)],
    }


def _default(option: dataclasses.Field) -> Any:
    return option.default if option.default_factory is dataclasses.MISSING else option.default_factory()


def _open(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """Options without those that are secret by their name."""
    if options is None:
        return None
    return {
        str(name): _open(value) if isinstance(value, dict) else value
        for name, value in options.items()
        if not SECRET.search(str(name))
    }
