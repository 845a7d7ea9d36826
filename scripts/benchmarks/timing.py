"""Times work on a processor or a GPU, and measures the rates of the machine to compare with."""

import statistics
import time
from collections.abc import Callable

import torch


def clock(device: torch.device) -> Callable[[], float]:
    """Wall time with a GPU, which does nothing else; otherwise processor time, which ignores other work."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call of `work`, until the device has finished it."""
    now = clock(device)
    wait(device)
    start = now()
    work()
    wait(device)
    return now() - start


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def repeated(work: Callable[[], object], repetitions: int, device: torch.device) -> list[float]:
    """Seconds of each repetition after one that warms up."""
    return [seconds(work, device) for _ in range(repetitions + 1)][1:]


def alternating(
    works: dict[str, Callable[[], object]],
    repetitions: int,
    device: torch.device,
    left: Callable[[], float] = lambda: float("inf"),
) -> dict[str, list[float]]:
    """
    Seconds of each repetition of several works, taking turns, after a round that warms up. A repetition that would
    take longer than `left` seconds is left out.
    """
    warm = {name: seconds(work, device) for name, work in works.items() if left() > 0}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repetitions):
        for name in warm:
            if 1.5 * warm[name] < left():
                times[name].append(seconds(works[name], device))
    return times


def spread(values: list[float]) -> dict:
    """Median, quartiles and all of some values, at least one."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": median, "quartiles": [low, high], "all": values}


def rates(device: torch.device, size: int, n: int, repetitions: int) -> dict[str, dict]:
    """
    The machine's best rates: bytes a second of copies of `size` bytes (those within the device count twice, read
    and written), and operations a second of products of two n x n matrices. On random numbers, which take longer than
    zeros.
    """
    source = torch.randint(-128, 128, (size,), dtype=torch.int8, device=device)
    target, pinned = torch.empty_like(source), torch.empty(size, dtype=torch.int8, pin_memory=device.type == "cuda")
    wide, narrow = torch.randn(2, n, n, device=device), torch.randn(2, n, n, device=device).bfloat16()
    works = {
        "copy": (2 * size, lambda: target.copy_(source)),
        "to_device": (size, lambda: target.copy_(pinned, non_blocking=True)),
        "to_main_memory": (size, lambda: pinned.copy_(source, non_blocking=True)),
        "bfloat16": (2 * n**3, lambda: narrow[0] @ narrow[1]),
        "float32": (2 * n**3, lambda: wide[0] @ wide[1]),
    }
    times = alternating({name: work for name, (_, work) in works.items()}, repetitions, device)
    return {name: spread([works[name][0] / t for t in times[name]]) for name in works}
