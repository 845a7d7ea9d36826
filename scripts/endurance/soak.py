"""Soak test of the rewards: many checks, some of them hostile; nothing may grow.

    python -m scripts.endurance.soak --math 100000 --code 20000 --seconds 7200 --output scripts/endurance/results/soak
    accelerate launch --config_file accelerate_configs/cpu_ddp.yaml -m scripts.endurance.soak ...  # in two processes

After every hundredth of the checks, the resident memory of the process and of its workers is noted, with the memory in
use, descriptors, processes, temporary files and the time of a check. The exit status is 1 if one of them grows, if a
check was wrong, or if too many could not be made. Allocators keep the memory of the most demanding checks, on every
thread: so all hostile programs run before the count starts. Under a launcher, processes are like those of a training:
torch is loaded, and there is a process group. If a signal or `--seconds` stops the run, it writes what it has.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
from tqdm import tqdm

from delta_trl.rewards import MathReward
from delta_trl.rewards.code import CodeReward
from delta_trl.rewards.grader.checks import get_pool
from tests.corpus.attacks import ATTACKS, LASTING
from tests.corpus.benign import BENIGN
from tests.corpus.host import Host
from tests.corpus.hostile import CASES as HOSTILE

from .fuzz_answers import draw


SAMPLES = 100  # along the way
WORKERS = 2
# Growth from the second quarter to the last that still counts as flat: a share, and an amount beside it.
FLAT = {
    "memory_mb": (0.05, 8),
    "in_use_mb": (0.0, 1),
    "blocks": (0.01, 1000),
    "workers_mb": (0.10, 8),
    "descriptors": (0, 0),
    "processes": (0, 0),
    "files": (0, 0),
}
# The most demanding program takes 34 MB while it is compared. Its pages may stay with the process, but are not in use.
FLAT_OF = {"code": {"memory_mb": (0.05, 8 + 34)}}
FEW = 10  # fewer samples in a quarter say nothing about time
SLOWER = 1.75  # times the median time of a check: machines have stretches of other work
# Shares of ordinary checks. On a machine that has other work, some get no time within their short deadline.
NOT_CHECKED, TIMED_OUT = 0.001, 0.005
HOSTILE_SCORES = (0.0, None)  # no other is right


class MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def in_use_mb() -> float | None:
    """What this process has allocated and not freed, apart from Python's small objects; `None` without glibc 2.33."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    ask.restype = MallocInfo
    info = ask()
    return (info.uordblks + info.hblkhd) / 2**20


class Soak:
    """The checks of one process, and the resources that it uses."""

    def __init__(self, options: argparse.Namespace, directory: str):
        self.options = options
        self.rng = random.Random(options.seed)
        self.math = MathReward(timeout=options.timeout, num_workers=WORKERS)
        self.code = CodeReward(timeout=options.timeout, memory_mb=512, workers=WORKERS)
        self.directory = directory
        host_directory = Path(directory, "host")
        host_directory.mkdir()
        self.host = Host(host_directory)
        self.unexpected: list[str] = []
        self.ordinary = self.not_checked = self.timed_out = 0

    def math_batch(self, size: int) -> None:
        cases = []
        for _ in range(size):
            if self.rng.random() < self.options.hostile:
                case = self.rng.choice(HOSTILE)
                cases.append(("hostile", case[1], case[2], None))
            else:
                cases.append(draw(self.rng))
        columns: dict[str, list] = {}
        scores = self.math([case[2] for case in cases], [case[1] for case in cases], log_extra=columns.__setitem__)
        for (kind, gold, completion, wanted), score, verdict in zip(cases, scores, columns["verdict"], strict=True):
            told = f"{kind}: {gold!r}, {completion[-300:]!r}: {score} ({verdict})"
            if wanted is None:
                self.unexpected += [told] * (score not in HOSTILE_SCORES)
            else:
                self.count(told, score == wanted, verdict)

    def count(self, told: str, right: bool, verdict: str) -> None:
        """Count an ordinary check. One that the machine was too slow for is counted apart, not as wrong."""
        self.ordinary += 1
        if verdict == "not checked":
            self.not_checked += 1
        elif "timeout" in verdict and not right:
            self.timed_out += 1
        elif not right:
            self.unexpected.append(told)

    def attack(self, name: str, program: str, tests: dict) -> tuple[str, str, dict, float]:
        return f"attack {name}", self.host.fill_in(program), json.loads(self.host.fill_in(json.dumps(tests))), 0.0

    def code_batch(self, size: int) -> None:
        hostile = [self.rng.random() < self.options.hostile for _ in range(size)]
        self.check_programs(
            [
                self.attack(*self.rng.choice(ATTACKS + LASTING)) if one else (*self.rng.choice(BENIGN), 1.0)
                for one in hostile
            ]
        )

    def check_programs(self, cases: list[tuple[str, str, dict, float]]) -> None:
        columns: dict[str, list] = {}
        programs = [f"```python\n{case[1]}\n```" for case in cases]
        scores = self.code(programs, [case[2] for case in cases], log_extra=columns.__setitem__)
        for (name, _, _, wanted), score, verdict in zip(cases, scores, columns["code_verdict"], strict=True):
            told = f"{name}: {score} ({verdict})"
            if wanted:
                self.count(told, score == wanted, verdict)
            elif score != wanted:
                self.unexpected.append(told)

    def sample(self, name: str, done: int, seconds: list[float]) -> dict:
        process = psutil.Process()
        children = process.children(recursive=True)
        memory = [_rss(child) for child in children]
        return {
            "checks": name,
            "done": done,
            "memory_mb": process.memory_info().rss / 2**20,
            **({"in_use_mb": used} if (used := in_use_mb()) is not None else {}),
            "blocks": sys.getallocatedblocks(),
            "workers_mb": max(memory, default=0) / 2**20,
            "descriptors": process.num_fds(),
            "processes": len(children),
            "files": sum(len(files) + len(folders) for _, folders, files in os.walk(self.directory)),
            "seconds_per_1000": 1000 * statistics.mean(seconds),
            "median_seconds_per_1000": 1000 * statistics.median(seconds),
        }

    def run(self) -> dict:
        started, samples, done = time.monotonic(), [], {}
        with contextlib.suppress(KeyboardInterrupt):  # what was measured is kept
            for name, count, batch in (
                ("math", self.options.math, self.math_batch),
                ("code", self.options.code, self.code_batch),
            ):
                for so_far, sample in self.checks(name, count, batch) if count else ():
                    done[name] = so_far
                    samples += [sample] if sample else []
                get_pool(WORKERS).close()  # its workers would hide the sandbox's
        return {
            "options": {**vars(self.options), "output": None},
            "seconds": round(time.monotonic() - started, 1),
            "done": done,
            "unexpected": self.unexpected,
            "ordinary": self.ordinary,
            "not_checked": self.not_checked,
            "timed_out": self.timed_out,
            "host_unchanged": self.host.state() == self.host.before,
            "samples": samples,
        }

    def checks(self, name: str, count: int, batch: Callable[[int], None]) -> Iterator[tuple[int, dict | None]]:
        """Run batch after batch; yields how many checks were made, and a sample after each hundredth of them."""
        batch(self.options.batch)  # starts all workers
        if name == "code":
            # on all threads at once: the process keeps pages of each
            self.check_programs([(*one, 1.0) for one in BENIGN if one[0] == "calls: megabyte"] * 2 * WORKERS)
            for _ in range(self.options.warm_ups):
                self.check_programs([self.attack(*one) for one in ATTACKS + LASTING])
        done, taken, seconds, deadline = 0, 0, [], time.monotonic() + self.options.seconds / 2
        bar = tqdm(total=count, desc=name, unit="check", mininterval=1)
        while done < count and time.monotonic() < deadline:
            size = min(self.options.batch, count - done)
            began = time.monotonic()
            batch(size)
            seconds.append((time.monotonic() - began) / size)
            done += size
            bar.update(size)
            due = done * SAMPLES // count > taken
            yield done, self.sample(name, done, seconds) if due else None
            if due:
                taken, seconds = taken + 1, []
        bar.close()

    def close(self) -> None:
        self.host.close()
        self.code.sandbox.close()
        get_pool(WORKERS).close()


def _rss(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def growth(samples: list[dict]) -> list[str]:
    """What has grown: its median over the last quarter against that over the second (the first warms up)."""
    grown = []
    for name in dict.fromkeys(one["checks"] for one in samples):
        own = [one for one in samples if one["checks"] == name]
        quarter = len(own) // 4
        if not quarter:
            continue
        slower = {"median_seconds_per_1000": (SLOWER - 1, 1.0)} if quarter >= FEW else {}
        for key, (share, amount) in (FLAT | FLAT_OF.get(name, {}) | slower).items():
            if key not in own[0]:
                continue
            before, after = (
                statistics.median(one[key] for one in part) for part in (own[quarter : 2 * quarter], own[-quarter:])
            )
            if after > before * (1 + share) + amount:
                grown.append(f"{name}: {key} from {before:.1f} to {after:.1f}")
    return grown


def problems_of(run: dict) -> list[str]:
    """Everything that went wrong in one process."""
    found = growth(run["samples"]) + run["unexpected"]
    for name, count in (("math", run["options"]["math"]), ("code", run["options"]["code"])):
        if run["done"].get(name, 0) < count:
            found.append(f"{name}: stopped after {run['done'].get(name, 0)} of {count} checks")
    for name, most in (("not_checked", NOT_CHECKED), ("timed_out", TIMED_OUT)):
        if run[name] > most * run["ordinary"]:
            found.append(f"{name}: {run[name]} of {run['ordinary']} ordinary checks, expected {most:.1%} at most")
    return found + ["the host was changed"] * (not run["host_unchanged"])


def gather(run: dict) -> list[dict]:
    """The runs of all processes of a launcher."""
    from accelerate.utils import gather_object

    return gather_object([run])


def draw_picture(runs: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = {
        "memory_mb": "process, MiB",
        "in_use_mb": "of it in use, MiB",
        "blocks": "Python's blocks",
        "workers_mb": "largest worker, MiB",
        "descriptors": "descriptors",
        "processes": "processes",
        "files": "temporary files",
        "seconds_per_1000": "s per 1,000 checks",
    }
    rows = {key: label for key, label in rows.items() if key in runs[0]["samples"][0]}
    names = list(dict.fromkeys(one["checks"] for one in runs[0]["samples"]))
    figure, axes = plt.subplots(len(rows), len(names), figsize=(5 * len(names), 10), squeeze=False, sharex="col")
    for row, (key, label) in enumerate(rows.items()):
        for column, name in enumerate(names):
            axis = axes[row][column]
            for rank, run in enumerate(runs):
                own = [one for one in run["samples"] if one["checks"] == name]
                axis.plot([one["done"] for one in own], [one[key] for one in own], lw=1, label=f"process {rank}")
            highest = max(one[key] for run in runs for one in run["samples"] if one["checks"] == name)
            axis.set_ylim(0, 1.15 * highest + 0.1)
            if column == 0:
                axis.set_ylabel(label, fontsize=8)
            if row == 0:
                axis.set_title(f"{name}_reward", fontsize=9)
            if row == len(rows) - 1:
                axis.set_xlabel("checks")
    if len(runs) > 1:
        axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--math", type=int, default=100_000)
    parser.add_argument("--code", type=int, default=20_000)
    parser.add_argument("--hostile", type=float, default=0.05, help="share of checks")
    parser.add_argument("--warm_ups", type=int, default=2, help="with all hostile programs, before the programs")
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first process")
    parser.add_argument(
        "--seconds", type=float, default=7200, help="at most, half of it for each kind, without warm-ups"
    )
    parser.add_argument("--output", help="where to put the numbers (.json) and the picture (.png)")
    options = parser.parse_args(arguments)
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1
    rank = 0
    if launched:
        from accelerate import PartialState

        rank = PartialState(cpu=True, timeout=timedelta(seconds=2 * options.seconds)).process_index
        options.seed += rank
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as directory:
        before = tempfile.tempdir, os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = tempfile.tempdir = directory  # so that files left behind can be counted
        soak = Soak(options, directory)
        try:
            run = soak.run()
        finally:
            soak.close()
            tempfile.tempdir = before[0]
            os.environ.pop("TMPDIR") if before[1] is None else os.environ.update(TMPDIR=before[1])
    runs = gather(run) if launched else [run]
    problems = [problem for one in runs for problem in problems_of(one)]
    if rank == 0:
        print("\n".join(problems) or "flat to the end", f"({', '.join(str(one['seconds']) for one in runs)} s)")
        if options.output:
            write(runs, problems, options.output)
    if launched:  # a launcher ends all when one fails: so only the first returns 1, and last
        PartialState().wait_for_everyone()
        PartialState().destroy_process_group()
    return int(bool(problems) and rank == 0)


def write(runs: list[dict], problems: list[str], stem: str) -> None:
    for run in runs:
        for sample in run["samples"]:
            sample |= {key: round(value, 2) for key, value in sample.items() if isinstance(value, float)}
    Path(f"{stem}.json").write_text(json.dumps({"problems": problems, "runs": runs}, indent=1) + "\n")
    if all(run["samples"] for run in runs):
        draw_picture(runs, Path(f"{stem}.png"))


if __name__ == "__main__":
    raise SystemExit(main())
