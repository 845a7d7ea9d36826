"""Whose code runs: that of TRL and of this package, or anybody else's."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers
import trl
from torch import nn
from trl import GRPOTrainer


def folder_of(file: str) -> str:
    return f"{Path(file).parent}{os.sep}"


TRANSFORMERS = folder_of(transformers.__file__)
OURS = (folder_of(trl.__file__), f"{Path(__file__).parents[1]}{os.sep}")


def code_of(function: Callable) -> list[Any]:
    """
    What a callable runs: its code, then that of each function that it wraps (by `functools.wraps` or
    `functools.partial`). A callable without code has its type instead.
    """
    links = []
    link: Any = function
    while link is not None:
        links.append(getattr(link, "__code__", type(link)))
        link = getattr(link, "__wrapped__", None) or getattr(link, "func", None)
    return links


def is_foreign(function: Callable) -> bool:
    """Whether a callable, or one that it wraps, is of neither TRL nor this package."""
    return any(not file_of(link).startswith(OURS) for link in code_of(function))


def file_of(code: Any) -> str:
    return getattr(code, "co_filename", "")


def code_of_modules(model: nn.Module) -> list[list]:
    """
    What each module of a model runs: its `forward`, wherever that was put, and its hooks. Without those of
    transformers, which come and go with gradient checkpointing.
    """
    of_modules = []
    for module in model.modules():
        links = code_of(module.forward)
        hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
        for of_kind in hooks:
            for hook in of_kind.values():
                links += code_of(hook)
        of_modules.append([link for link in links if not file_of(link).startswith(TRANSFORMERS)])
    return of_modules


def runs_foreign_code(trainer: GRPOTrainer, names: set[str]) -> bool:
    """Whether one of these methods is overridden in a subclass, wrapped on the instance, or patched on a class."""
    classes = type(trainer).__mro__
    of_trl = classes.index(GRPOTrainer)
    for owner in (trainer, *classes[: of_trl + 1]):
        methods = vars(owner)
        if any(is_foreign(methods[name]) for name in names & methods.keys()):
            return True
    return False
