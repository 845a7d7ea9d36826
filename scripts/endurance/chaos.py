"""Disturb a training or an evaluation at random moments and restart it until it ends: its numbers must be the same.

    python -m scripts.endurance.chaos --what train --moments 50 --seconds 5400 \\
        --output scripts/endurance/results/chaos_train.json
    python -m scripts.endurance.chaos --what eval --moments 15     # or audit, or study

`train` runs two processes (accelerate_configs/cpu_ddp.yaml) with evaluations, credit log, workers of both rewards and
a checkpoint every second step. Each launch is hit once, by one of `HITS`, at a moment that the seed draws: while it
starts, at any time within the length of an undisturbed run, or when a file that such a run writes appears or changes.
A launch must end with an error that names the cause, or run to the end, and leave no process. After the last one,
metrics, weights and records are compared with those of the undisturbed run. A launch that ends before its moment does
not count. The exit status is 1 if anything differs, hangs or ends without naming the cause, or if moments are missing.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .chaos_machine import HITS, ROOT, Launch, Machine, hit
from .chaos_runs import COMMANDS, make_run, outcome


HANG_SECONDS = 180
DIED = {"rank": -signal.SIGKILL, "all": -signal.SIGKILL, "term": -signal.SIGTERM}  # where the launch itself was hit
# They use `math_reward` only.
WITHOUT_SANDBOX = ("audit", "study")


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of the files in a folder, by path."""
    paths = (Path(directory, name) for directory, _, names in os.walk(folder) for name in names)
    found = {str(path.relative_to(folder)): state(path) for path in paths}
    return {name: status for name, status in found.items() if status}


def watch(launch: Launch, folder: Path) -> dict[str, int]:
    """How many versions of each file are seen until the launch ends."""
    versions: dict[str, set] = {}
    while launch.running and launch.seconds < HANG_SECONDS:
        for name, status in files(folder).items():
            versions.setdefault(name, set()).add(status)
        launch.wait(0.005)
    return {name: len(seen) for name, seen in versions.items()}


def wait_for_moment(launch: Launch, folder: Path, rng: random.Random, written: dict[str, int], seconds: float) -> str:
    """Wait for the moment of a hit, or for the end of the launch; returns which moment it was."""
    kind = rng.choice(("start", "any", "any", "write", "write", "write"))
    # waiting for a file that is there already and is not written again would never end
    names = sorted(
        name
        for name, times in written.items()
        if not (folder / name).exists() or (times > 1 and not name.startswith("checkpoint-"))
    )
    if kind != "write" or not names:
        moment = rng.uniform(0.5, seconds / 3) if kind == "start" else rng.uniform(0, 0.9 * seconds)
        while launch.running and launch.seconds < moment:
            launch.wait(0.01)
        return kind
    alike = rng.choice(sorted(set(map(without_number, names))))  # by kind first: some are in every checkpoint
    path = folder / rng.choice([name for name in names if without_number(name) == alike])
    before = state(path)
    while launch.running and state(path) == before and launch.seconds < HANG_SECONDS:
        launch.wait(0.0005)
    time.sleep(rng.choice((0, 0, 0.002, 0.01, 0.05)))
    return f"write of {path.relative_to(folder)}"


def without_number(name: str) -> str:
    return re.sub(r"\d+", "", Path(name).name)


def state(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def differences(ours, expected, place: str = "") -> list[str]:
    """Where two results differ; of a list, the first difference only."""
    if isinstance(ours, dict) and isinstance(expected, dict):
        keys = dict.fromkeys([*expected, *ours])
        return [one for key in keys for one in differences(ours.get(key), expected.get(key), f"{place}/{key}")]
    if isinstance(ours, list) and isinstance(expected, list) and len(ours) == len(expected):
        pairs = enumerate(zip(ours, expected, strict=True))
        return next((found for i, both in pairs if (found := differences(*both, f"{place}/{i}"))), [])
    if ours == expected:
        return []
    return [f"{place}: {str(ours)[:200]}, and {str(expected)[:200]} undisturbed"]


def judge(how: str | None, status: int | None, said: str) -> str | None:
    """What is wrong with the end of a launch that printed `said`, if anything. `how` is its hit, if it had one."""
    if status is None:
        return "hangs"
    if status == 0:
        return None
    if how is None:
        return "has failed by itself"
    if not HITS[how]:
        return "has ended, and should have gone on"
    if status < 0:
        return None if status == DIED.get(how) else f"has died of signal {-status}"
    return None if re.search(HITS[how], said) else "does not say what has ended it"


class Chaos:
    """
    Launches of one command, each hit once. `report()` has the results so far; the files of a run with a problem are
    copied to `kept`.
    """

    def __init__(self, what: str, seed: int, moments: int, folder: Path, kept: Path, hits: tuple[str, ...]):
        self.what, self.seed, self.wanted, self.logs, self.kept = what, seed, moments, folder, kept
        self.rng = random.Random(seed)
        self.hits = [one for one in hits if one != "sandbox supervisor" or what not in WITHOUT_SANDBOX]
        self.order: list[str] = []
        self.problems: list[str] = []
        self.moments: list[dict] = []
        self.launches = self.compared = 0
        self.launch: Launch | None = None
        self.started = time.monotonic()

    def report(self) -> dict:
        hits = collections.Counter(one["hit"] for one in self.moments)
        missing = [one for one in self.hits if not hits[one]] if self.wanted >= len(self.hits) else []
        problems = self.problems + [f"{one}: never hit" for one in missing]
        if len(self.moments) < self.wanted:
            problems.append(f"stopped after {len(self.moments)} of {self.wanted} moments")
        return {
            "what": self.what,
            "seed": self.seed,
            "moments": len(self.moments),
            "hits": dict(hits),
            "at": dict(collections.Counter(one["at"].partition(" ")[0] for one in self.moments)),
            "launches": self.launches,
            "runs_compared": self.compared,
            "problems": problems,
            "seconds": round(time.monotonic() - self.started, 1),
            "each": self.moments,
        }

    def problem(self, name: str, text: str) -> None:
        print(f"{name}: {text}", flush=True)
        self.problems.append(f"{name}: {text}")
        self.kept.mkdir(parents=True, exist_ok=True)
        for log in self.logs.glob(f"{name}_*.log"):
            shutil.copy(log, self.kept)
        with contextlib.suppress(OSError):  # processes that are left may still write
            shutil.copytree(self.machine.disk / name, self.kept / name, dirs_exist_ok=True)

    def start(self, name: str) -> Launch:
        self.launches += 1
        log = self.logs / f"{name}_{self.launches}.log"
        self.launch = Launch(COMMANDS[self.what](self.machine.disk, name), log, self.machine)
        return self.launch

    def run(self, seconds: float, note: Callable[[dict], None] = lambda report: None) -> dict:
        """Run until all moments are done. `note` gets the report after each run and at the end, whatever ends it."""
        self.machine, self.deadline = Machine(self.logs), time.monotonic() + seconds
        try:
            if self.undisturbed():
                number = 0
                while self.wants_more():
                    number += 1
                    self.one_run(f"run_{number}")
                    note(self.report())
        finally:
            if self.launch:
                self.launch.kill()
            self.machine.mend()
            self.machine.close()
            note(self.report())
        return self.report()

    def undisturbed(self) -> bool:
        """Make the run that others are compared with; returns whether it succeeded."""
        make_run(self.machine.disk)
        whole = self.start("whole")
        self.written = watch(whole, self.machine.disk / "whole")
        self.usual_seconds = whole.seconds
        if whole.end(1) != 0 or whole.left_behind():
            self.problem("whole", f"failed, or left processes: {whole.said()[-3000:]}")
            return False
        self.expected = outcome(self.what, self.machine.disk / "whole")
        return True

    def wants_more(self) -> bool:
        return len(self.moments) < self.wanted and time.monotonic() < self.deadline

    def one_run(self, name: str) -> None:
        """Launch the command again and again, until the run is finished."""
        output = self.machine.disk / name
        while True:
            launch, how, moment = self.start(name), None, "no moment"
            if self.wants_more():
                self.order = self.order or self.rng.sample(self.hits, len(self.hits))
                moment = wait_for_moment(launch, output, self.rng, self.written, self.usual_seconds)
                how = self.order.pop()
                if hit(launch, how, self.rng):
                    self.moments.append({"run": name, "hit": how, "at": moment})
                else:
                    self.order.insert(0, how)
                    how = None
            status = launch.end(HANG_SECONDS)
            self.machine.mend()
            told = f"{how or 'not hit'} at {moment}, status {status}"
            print(f"{name}: {told}", flush=True)
            if how:
                self.moments[-1]["status"] = status
            if wrong := judge(how, status, launch.said()):
                self.problem(name, f"{told}: {wrong}: {launch.said()[-3000:]}")
                launch.kill()
            if left_behind := launch.left_behind():
                self.problem(name, f"{told}: processes are left: {left_behind}")
            if status == 0:
                self.compare(name, output)
            if status == 0 or (wrong and how is None):
                break

    def compare(self, name: str, output: Path) -> None:
        self.compared += 1
        try:
            found = outcome(self.what, output)
        except Exception as error:  # a run that claims to be finished may have left anything
            self.problem(name, f"its results cannot be read: {error!r}")
            return
        for one in differences(found, self.expected):
            self.problem(name, f"another result at {one}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=COMMANDS, default="train")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5400, help="after which no new moment begins")
    parser.add_argument("--hits", nargs="+", choices=HITS, default=list(HITS))
    parser.add_argument("--kept", type=Path, default=ROOT / "outputs" / "chaos", help="for runs with a problem")
    parser.add_argument("--output", type=Path, help="where to put the report, as JSON")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def note(report: dict) -> None:
        if options.output:
            options.output.write_text(json.dumps(report, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(options.what, options.seed, options.moments, Path(folder), options.kept, tuple(options.hits))
        report = chaos.run(options.seconds, note)
    print(json.dumps({key: value for key, value in report.items() if key != "each"}, indent=1))
    return int(bool(report["problems"]))


if __name__ == "__main__":
    raise SystemExit(main())
