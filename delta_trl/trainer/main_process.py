"""What the main process decides or reads, for all processes. Nodes may have no common file system."""

from collections.abc import Callable
from typing import TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from ..arguments.errors import UsageError


T = TypeVar("T")


def from_main_process(decide: Callable[[], T]) -> T:
    """What the main process decides, in all processes. A `UsageError` is raised in all of them, too."""
    decided: list = [None]
    if PartialState().is_main_process:
        try:
            decided = [decide()]
        except UsageError as error:
            decided = [error]
    [decision] = broadcast_object_list(decided)
    if isinstance(decision, UsageError):
        raise decision
    return decision
