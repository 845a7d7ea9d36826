"""Hit a training, or an evaluation, at random moments and go on with it until it ends: its numbers must be the same.

    python scripts/chaos.py --what train --moments 50 --seed 0 --seconds 5400 --output docs/results/chaos_train.json
    python scripts/chaos.py --what eval --moments 15     # or audit, or study

`train` runs two processes (accelerate_configs/cpu_ddp.yaml) with evaluations, credit log, both rewards' workers and a
checkpoint every second step. Each launch is hit once, by one of `HITS`, at a moment that the seed draws: while it
starts, at any time of an undisturbed run, or as a file appears or changes that such a run has written. A launch must
end with words that say why, or go on to the end, and leave no process. After the last one, metrics, weights and
records are compared with those of the undisturbed run. A launch that ends before its moment is no moment. Ends with 1
if anything differs, hangs or is silent, or if moments are missing.
"""

import argparse
import collections
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from chaos_machine import HITS, ROOT, Launch, Machine, hit
from chaos_runs import COMMANDS, make_run, outcome


HANG_SECONDS = 180
# Their rewards are `math_reward` alone.
WITHOUT_SANDBOX = ("audit", "study")


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of what is in a folder, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if not path.is_dir():
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns)
    return found


def watch(launch: Launch, folder: Path) -> dict[str, int]:
    """How often each file is written, as far as one sees, until the launch ends."""
    versions: dict[str, set] = {}
    while launch.running and launch.seconds < HANG_SECONDS:
        for name, status in files(folder).items():
            versions.setdefault(name, set()).add(status)
        time.sleep(0.005)
    return {name: len(seen) for name, seen in versions.items()}


def wait_for_moment(launch: Launch, folder: Path, rng: random.Random, written: dict[str, int], seconds: float) -> str:
    """Until the moment of a hit, or the end of the launch; which moment it was."""
    kind = rng.choice(("start", "any", "any", "write", "write", "write"))
    # what is there already and is not written again would never come
    names = sorted(name for name, times in written.items() if times > 1 or not (folder / name).exists())
    if kind != "write" or not names:
        moment = rng.uniform(0.5, seconds / 3) if kind == "start" else rng.uniform(0, 0.9 * seconds)
        while launch.running and launch.seconds < moment:
            time.sleep(0.01)
        return kind
    alike = rng.choice(sorted(set(map(without_number, names))))  # of which some are in every checkpoint
    path = folder / rng.choice([name for name in names if without_number(name) == alike])
    before = state(path)
    while launch.running and state(path) == before and launch.seconds < HANG_SECONDS:
        time.sleep(0.0005)
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


def differences(ours: dict, expected: dict) -> list[str]:
    keys = dict.fromkeys([*expected, *ours])
    return [f"{key} differs from the undisturbed run's" for key in keys if ours.get(key) != expected.get(key)]


def judge(how: str | None, status: int | None, said: str) -> str | None:
    """What is wrong with how a launch has ended that said this. `how` is what has hit it, if anything has."""
    if status is None:
        return "hangs"
    if status == 0:
        return None
    if how is None:
        return "has failed by itself"
    if not HITS[how]:
        return "has ended, and should have gone on"
    if status > 0 and not re.search(HITS[how], said):
        return "does not say what has ended it"
    return None


class Chaos:
    """Launches of one command, hit one by one; what has come of it so far is in `report()`."""

    def __init__(self, what: str, seed: int, folder: Path, hits: tuple[str, ...]):
        self.what, self.seed, self.logs, self.rng = what, seed, folder, random.Random(seed)
        self.hits = [one for one in hits if one != "sandbox supervisor" or what not in WITHOUT_SANDBOX]
        self.problems: list[str] = []
        self.moments: list[dict] = []
        self.launches = self.compared = 0
        self.launch: Launch | None = None

    def report(self) -> dict:
        return {
            "what": self.what,
            "seed": self.seed,
            "moments": len(self.moments),
            "hits": dict(collections.Counter(one["hit"] for one in self.moments)),
            "at": dict(collections.Counter(one["at"].partition(" ")[0] for one in self.moments)),
            "launches": self.launches,
            "runs_compared": self.compared,
            "problems": self.problems,
            "seconds": round(time.monotonic() - self.started, 1),
            "each": self.moments,
        }

    def problem(self, text: str) -> None:
        print(text, flush=True)
        self.problems.append(text)

    def start(self, name: str) -> Launch:
        self.launches += 1
        self.launch = Launch(
            COMMANDS[self.what](self.machine.disk, name), self.logs / f"{name}_{self.launches}.log", self.machine
        )
        return self.launch

    def run(self, moments: int, seconds: float) -> dict:
        """Until as many moments are through; a finished run is compared, and another one begun."""
        self.started, self.machine = time.monotonic(), Machine(self.logs)
        self.wanted, self.deadline = moments, self.started + seconds
        try:
            make_run(self.machine.disk)
            whole = self.start("whole")
            self.written = watch(whole, self.machine.disk / "whole")
            self.usual_seconds = whole.seconds
            if whole.end(1) != 0:
                self.problem(f"The undisturbed run failed: {whole.said()[-3000:]}")
                return self.report()
            self.expected = outcome(self.what, self.machine.disk / "whole")
            number = 0
            while self.wants_more():
                number += 1
                self.one_run(f"run_{number}")
            if len(self.moments) < moments:
                self.problem(f"Stopped after {len(self.moments)} of {moments} moments.")
            return self.report()
        finally:
            if self.launch:
                self.launch.kill()
            self.machine.mend()
            self.machine.close()

    def wants_more(self) -> bool:
        return len(self.moments) < self.wanted and time.monotonic() < self.deadline

    def one_run(self, name: str) -> None:
        """Launch after launch, until one is at the end of the run."""
        output, order = self.machine.disk / name, []
        while True:
            launch, how, moment = self.start(name), None, "no moment"
            if self.wants_more():
                order = order or self.rng.sample(self.hits, len(self.hits))
                moment = wait_for_moment(launch, output, self.rng, self.written, self.usual_seconds)
                how = order.pop()
                if hit(launch, how, self.rng):
                    self.moments.append({"run": name, "hit": how, "at": moment})
                else:
                    order.insert(0, how)
                    how = None
            status = launch.end(HANG_SECONDS)
            self.machine.mend()
            told = f"{name}, {how or 'not hit'} at {moment}, status {status}"
            print(told, flush=True)
            if how:
                self.moments[-1]["status"] = status
            if wrong := judge(how, status, launch.said()):
                self.problem(f"{told}: {wrong}: {launch.said()[-3000:]}")
                launch.kill()
            if left_behind := launch.left_behind():
                self.problem(f"{told}: processes are left: {left_behind}")
            if status == 0:
                self.compare(name, output)
            if status == 0 or (wrong and how is None):
                break

    def compare(self, name: str, output: Path) -> None:
        self.compared += 1
        try:
            found = outcome(self.what, output)
        except Exception as error:  # whatever a run left that says it is whole
            self.problem(f"{name}: its results cannot be read: {error!r}")
            return
        for one in differences(found, self.expected):
            self.problem(f"{name}: {one}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=COMMANDS, default="train")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5400, help="after which no new moment begins")
    parser.add_argument("--hits", nargs="+", choices=HITS, default=list(HITS))
    parser.add_argument("--folder", type=Path, help="to keep what the runs have written")
    parser.add_argument("--output", type=Path, help="where to put the report, as JSON")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        chaos = Chaos(options.what, options.seed, folder, tuple(options.hits))
        try:
            chaos.run(options.moments, options.seconds)
        finally:
            report = chaos.report()
            if options.output:
                options.output.write_text(json.dumps(report, indent=1) + "\n")
            print(json.dumps({key: value for key, value in report.items() if key != "each"}, indent=1))
    return int(bool(report["problems"]))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main())
