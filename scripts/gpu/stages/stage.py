"""What every stage has: sizes for a GPU or for a dry run, a deadline, and a JSON file that is always up to date."""

import json
import os
import platform
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any


ROOT = Path(__file__).resolve().parents[3]
# Minutes, 12 in all, what is worth most first; README.md says what each settles
STAGES = {"ratios": 1.0, "language": 5.0, "overhead": 4.0, "tests": 2.0}
PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "math-verify",
    "peft",
    "deepspeed",
    "flash-attn",
    "kernels",
    "liger-kernel",
    "vllm",
)


class Interrupted(BaseException):
    """Asked to end. Not an `Exception`, which libraries catch."""


@dataclass
class Stage:
    """
    A stage that runs, with its settings and results.

    Args:
        name (`str`): A key of `STAGES`.
        folder (`Path`): Where its JSON goes, with those of the other stages; files that are large go into `work`.
        deadline (`float`): When to be done, in seconds of `time.time()`.
        dry (`bool`): Tiny sizes on a processor, to see that all of it runs.
    """

    name: str
    folder: Path
    deadline: float
    dry: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    text: str = ""  # what it tells, in Markdown
    left_out: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.time)
    earlier: float = 0.0  # seconds of runs before this one

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.time()

    def leave_out(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)

    def go_on(self) -> bool:
        """Take over the results of an earlier run with the same settings; returns whether there is one."""
        before = read(self.path)
        if not before or before["settings"] != json.loads(json.dumps(self.settings)):
            return False
        self.results = before["results"]
        self.earlier = before["seconds"]
        return True

    def save(self, status: str = "partial", error: str | None = None) -> None:
        """Write the JSON file, whenever there is something new: a killed run leaves what was saved last."""
        if status == "finished" and self.left_out:
            status = "partial"
        row = {
            "stage": self.name,
            "status": status,
            "dry": self.dry,
            "date": time.strftime("%Y-%m-%d", time.gmtime(self.started)),
            "seconds": round(self.earlier + time.time() - self.started, 1),
            "machine": machine(),
            "settings": self.settings,
            "left_out": self.left_out,
            "error": error,
            "results": self.results,
            "text": self.text,
        }
        self.folder.mkdir(parents=True, exist_ok=True)  # delta_trl may not be importable here yet
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text(json.dumps(row, indent=1) + "\n")
        scratch.replace(self.path)


def read(path: Path) -> dict | None:
    """What a stage has written; None if nothing."""
    return json.loads(path.read_text()) if path.is_file() else None


def machine() -> dict:
    import torch

    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else platform.machine(),
        "cuda": torch.version.cuda,
        "memory_gb": round(torch.cuda.mem_get_info()[1] / 1e9, 1) if cuda else None,
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
