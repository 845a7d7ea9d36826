"""Times work on a processor or a GPU."""

import platform
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch


def clock(device: torch.device) -> Callable[[], float]:
    """Wall time with a GPU, which does nothing else; otherwise processor time, which ignores other work."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(values: list[float]) -> dict:
    """Median, quartiles and all of some values, at least one."""
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": median, "quartiles": [low, high], "all": values}


def processor() -> str:
    """The model of the processor, as Linux has it. On another one, sums round differently."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.processor()
