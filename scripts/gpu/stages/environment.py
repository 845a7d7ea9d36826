"""Describes the machine and what is installed, and measures its best rates: the rooflines of the other stages."""

import shutil
import subprocess
from importlib.util import find_spec

import torch

from ...benchmarks.timing import rates
from .stage import RATE_SIZES, Stage, version


PACKAGES = ("datasets", "deepspeed", "flash_attn", "kernels", "liger_kernel", "math_verify", "peft", "trl", "vllm")


def run(stage: Stage) -> None:
    cuda = torch.cuda.is_available()
    size, n, repetitions = RATE_SIZES[stage.dry]
    stage.settings = {"copied_bytes": size, "matrix": n, "repetitions": repetitions}
    stage.results["packages"] = {name: version(name) if find_spec(name) else None for name in PACKAGES}
    if cuda:
        properties = torch.cuda.get_device_properties(0)
        stage.results["gpu"] = {
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "gpus": torch.cuda.device_count(),
        }
    if shutil.which("nvidia-smi"):
        asked = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem,power.limit"
        command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv"]
        stage.results["nvidia_smi"] = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    stage.save()
    stage.results["rates"] = rates(torch.device("cuda" if cuda else "cpu"), size, n, repetitions)
