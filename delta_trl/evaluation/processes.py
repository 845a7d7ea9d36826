"""For commands that work chunk by chunk: the processes of a launcher, and which chunks each of them does."""

from datetime import timedelta

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, parse_flag_from_env

from .store import ChunkKey, Store


def start_processes(use_cpu: bool) -> PartialState:
    """Join the processes that a launcher has started; without a launcher there is one."""
    # by itself, `PartialState` ignores the launcher's choice and a missing GPU, and would start no process group
    cpu = use_cpu or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    return PartialState(cpu=cpu, timeout=timedelta(days=7))  # one may work for hours longer than another


def share_work(store: Store, settings: dict, state: PartialState) -> tuple[set[ChunkKey], list[ChunkKey]]:
    """
    The chunks that are done and those that are left, the same on all processes; each of n does every n-th of these.

    Raises:
        UsageError: If the folder holds results of other settings.
    """
    with state.main_process_first():
        store.check_settings(settings)
    merged = [store.merge() if state.is_main_process else None]
    broadcast_object_list(merged)
    (done,) = merged
    assert done is not None
    return done, [key for key in store.chunks if key not in done]
