"""Checks of the options that rules take as dataclass fields."""

import dataclasses
from typing import Any


def check_choices(rule: Any, **choices: tuple[str, ...]) -> None:
    """Raise `ValueError` for an option that is none of its choices."""
    for name, known in choices.items():
        if getattr(rule, name) not in known:
            raise ValueError(f"{name}={getattr(rule, name)!r}: expected one of {', '.join(map(repr, known))}.")


def refuse_idle(options: Any, beside: str, **used: bool) -> None:
    """Raise `ValueError` for dataclass fields that are set, but not used `beside` others."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    idle = [name for name, is_used in used.items() if not is_used and getattr(options, name) != defaults[name]]
    if idle:
        raise ValueError(
            f"{', '.join(f'{name}={getattr(options, name)!r}' for name in idle)}: without effect beside {beside}. "
            "Remove what is not meant."
        )


def check_whole_parameters(trainer: Any, what: str, instead: str) -> None:
    """Raise `ValueError` where a trainer's parameters are sharded such that the LM head cannot be read."""
    if trainer.args.deepspeed_plugin is not None and trainer.args.deepspeed_plugin.zero_stage == 3:
        raise ValueError(
            f"{what} does not work with DeepSpeed ZeRO-3, which holds no whole parameter. Use ZeRO-2, or {instead}."
        )
    if trainer.is_fsdp_enabled and not trainer.accelerator.is_fsdp2:
        raise ValueError(
            f"{what} does not work with FSDP1, which hides the parameters. Set fsdp_version: 2 in the accelerate "
            f"config, or {instead}."
        )
