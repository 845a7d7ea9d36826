"""For commands that work chunk by chunk: the processes of a launcher, and which chunks each of them does."""

from collections.abc import Callable
from datetime import timedelta

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, parse_flag_from_env
from tqdm.auto import tqdm

from ..arguments.errors import UsageError
from .store import ChunkKey, Store


Do = Callable[[ChunkKey], list[dict]]


def start_processes(use_cpu: bool) -> PartialState:
    """Join the processes that a launcher has started; without a launcher there is one."""
    # by itself, `PartialState` ignores the launcher's choice and a missing GPU, and would start no process group
    cpu = use_cpu or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    return PartialState(cpu=cpu, timeout=timedelta(days=7))  # one may work for hours longer than another


def do_chunks(store: Store, settings: dict, state: PartialState, begin: Callable[[], Do], title: str) -> None:
    """
    Do the chunks that are missing, each of n processes every n-th of them, and merge the files of all processes.

    Args:
        store ([`Store`]), state (`PartialState`): Where the chunks are written, and by which process.
        settings (`dict`): All that the chunks depend on.
        begin (`Callable`):
            Returns the function from a chunk to its lines. Called once on every process, unless nothing is missing.
        title (`str`): Of the progress bar.

    Raises:
        UsageError: If the folder holds results of other settings, or chunks are missing in the end.
    """
    with state.main_process_first():
        store.check_settings(settings)
    merged = [store.merge() if state.is_main_process else None]
    broadcast_object_list(merged)
    (done,) = merged
    assert done is not None
    todo = [key for key in store.chunks if key not in done]
    if not todo:
        return
    do = begin()
    size, finished = sum(store.chunks.values()), sum(store.chunks[key] for key in done)
    hidden = not state.is_main_process
    with tqdm(total=size, initial=finished, unit="completion", desc=title, disable=hidden) as progress:
        for start in range(0, len(todo), state.num_processes):
            round_ = todo[start : start + state.num_processes]  # progress assumes that the others are as far
            if state.process_index < len(round_):
                key = round_[state.process_index]
                store.write(state.process_index, do(key))
            progress.update(sum(store.chunks[other] for other in round_))
    state.wait_for_everyone()
    if state.is_main_process and (missing := len(store.chunks) - len(store.merge())):
        raise UsageError(
            f"{missing} of {len(store.chunks)} chunks in {str(store.folder)!r} are missing or damaged: run the same "
            "command again, which does them anew."
        )
