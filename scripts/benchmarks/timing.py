"""Times work on a processor or a GPU."""

import statistics
import time
from collections.abc import Callable

import torch


def clock(device: torch.device) -> Callable[[], float]:
    """Wall time with a GPU, which does nothing else; otherwise processor time, which ignores other work."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(values: list[float]) -> dict:
    """Median, quartiles and all of some values, at least one."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": median, "quartiles": [low, high], "all": values}
