"""Hit a training, or an evaluation, at random moments and go on with it until it ends: its numbers must be the same.

    python scripts/chaos.py --what train --moments 50 --seed 0 --seconds 3600
    python scripts/chaos.py --what eval --moments 20     # or audit, or study

`train` runs two processes (accelerate_configs/cpu_ddp.yaml) with evaluations, credit log, both rewards' workers and a
checkpoint every second step. Each launch is hit once, by one of `HITS` at a moment that the seed draws; a launch must
end with an error that says why, or go on to the end. After the last one, metrics, weights and records are compared
with those of a run that nothing has happened to. Ends with 1 if anything differs, hangs or is silent.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil


ROOT = Path(__file__).resolve().parents[1]
STEPS = 8
HANG_SECONDS = 180
DISK_MB = 256
PAGE = 4096
METRICS = ("step", "loss", "reward", "grad_norm", "credit/coefficient_std", "eval_reward", "eval_avg_at_k")
NUMBERS = ("reward", "grad_norm", "accuracy_before", "accuracy_after")  # of a row of the study
# What a launch says that was hit so. The rest has to go on as if nothing had happened.
SAYS = r"Error|Signal|SIGKILL|SIGTERM|exitcode|Interrupted|Terminated"


def make_run(folder: Path) -> None:
    """A tiny model, data to train and to evaluate on."""
    import torch

    from tests import tiny

    torch.manual_seed(0)
    tiny.model(attention_dropout=0.1).save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    tiny.dataset(16).to_json(folder / "train.jsonl")
    tiny.dataset(4).to_json(folder / "eval.jsonl")


def train_command(folder: Path, name: str) -> list[str]:
    import yaml

    recipe = {
        "model_name_or_path": str(folder / "model"),
        "dataset_name": str(folder / "train.jsonl"),
        "eval_dataset_name": str(folder / "eval.jsonl"),
        "eval_strategy": "steps",
        "eval_steps": 4,
        "reward_funcs": ["tests.chaos_reward.reward"],
        "output_dir": str(folder / name),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": STEPS,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 3,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "log_token_credit": 2,
        "report_to": "none",
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    launcher = ["-m", "accelerate.commands.launch", "--config_file", "accelerate_configs/cpu_ddp.yaml"]
    arguments = [
        "--main_process_port",
        "0",
        "scripts/train.py",
        "--config",
        str(path),
        "--resume_from_checkpoint",
        "true",
    ]
    return [sys.executable, *launcher, *arguments]


def eval_command(folder: Path, name: str) -> list[str]:
    options = {
        "model_name_or_path": folder / "model",
        "benchmarks": folder / "train.jsonl",
        "output_dir": folder / name,
        "reward": "tests.chaos_reward.reward",
        "num_generations": 4,
        "max_completion_length": 24,
        "top_p": 1.0,
        "batch_size": 2,
        "use_cpu": True,
    }
    return [
        sys.executable,
        "-m",
        "delta_trl.cli",
        "eval",
        *(str(x) for key, value in options.items() for x in (f"--{key}", value)),
    ]


def audit_command(folder: Path, name: str) -> list[str]:
    options = {
        "model_name_or_path": ROOT / "recipes" / "study" / "arithmetic",
        "benchmarks": "study_arithmetic",
        "output_dir": folder / name,
        "num_prompts": 16,
        "prompts_per_batch": 4,
        "num_generations": 4,
        "reference_batches": 4,
        "batch_size": 8,
        "use_cpu": True,
    }
    flags = [str(x) for key, value in options.items() for x in (f"--{key}", value)]
    return [sys.executable, "-m", "delta_trl.cli", "audit", *flags, "--rules", "delta", "surprisal"]


STUDY = """
import sys
from pathlib import Path
sys.path.insert(0, {scripts!r})
import study, study_plans, study_runs
folder = Path({folder!r})
folder.mkdir(exist_ok=True)
cells = [(variant, seed) for seed in range(2) for variant in ("dapo", "delta")]
runs = [study_runs.Run("study", "arithmetic", variant, 2.5e-4, seed) for variant, seed in cells]
runner = study.Runner(study_plans.CREDIT, {{"tune": 1, "study": 2}}, test_problems=8)
study_runs.work(runs, folder / "rows.jsonl", runner, folder / "locks", wait_seconds=0.1)
"""


def study_command(folder: Path, name: str) -> list[str]:
    """Four short runs of the study, by its own runner."""
    return [sys.executable, "-c", STUDY.format(scripts=str(ROOT / "scripts"), folder=str(folder / name))]


COMMANDS = {"train": train_command, "eval": eval_command, "audit": audit_command, "study": study_command}


CLOCK = r"""
// The wall clock of one process family, ahead by as many seconds as the file CHAOS_CLOCK says. Loaded before libc.
// The kernel's own stays: a wait until some time of this clock, as of a multiprocessing semaphore, ends at another.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    char text[32] = {0};
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    now->tv_sec += ahead();
    return result;
}

time_t time(time_t *now) {
    struct timespec current;
    clock_gettime(CLOCK_REALTIME, &current);
    if (now) *now = current.tv_sec;
    return current.tv_sec;
}
"""


class Machine:
    """
    What launches share and hits change: a disk of its own, where this process may mount one, and a wall clock, where
    there is a C compiler.
    """

    def __init__(self, folder: Path):
        self.disk = folder / "disk"
        self.disk.mkdir(exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "chaos", str(self.disk)]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        self.clock, library = folder / "clock", folder / "clock.so"
        compiler = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
        self.environment: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError):
            if not subprocess.run(compiler, input=CLOCK.encode(), capture_output=True, check=False).returncode:
                self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self.clock)}

    def fill_disk(self, left: int) -> bool:
        """All but some bytes of it; whether it is a disk of its own."""
        if not self.mounted:
            return False
        with (self.disk / "filler").open("wb") as file:
            while (free := self.free_bytes()) > left + PAGE:
                with contextlib.suppress(OSError):  # a launch has written in the meantime
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free - left)
        return True

    def free_bytes(self) -> int:
        disk = os.statvfs(self.disk)
        return disk.f_bavail * disk.f_frsize

    def turn_clock(self, seconds: int) -> bool:
        self.clock.write_text(str(seconds))
        return bool(self.environment)

    def mend(self) -> None:
        """As before any hit."""
        self.clock.unlink(missing_ok=True)
        (self.disk / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        """What launches wrote stays in the folder."""
        if self.mounted:
            kept = shutil.copytree(self.disk, self.disk.with_name("kept"))
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)
            shutil.copytree(kept, self.disk, dirs_exist_ok=True)
            shutil.rmtree(kept)


class Launch:
    """One start of the command, and what it has said so far."""

    def __init__(self, command: list[str], log: Path, machine: Machine):
        self.log, self.machine = log, machine
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        environment |= machine.environment
        with log.open("wb") as file:
            # Through a pipe: a limit on the size of files must not silence it.
            self.writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file, start_new_session=True)
            self.process = psutil.Popen(
                command, cwd=ROOT, env=environment, start_new_session=True,
                stdout=self.writer.stdin, stderr=subprocess.STDOUT,
                # the caller's own background jobs may ignore signals, which children inherit
                preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGTERM)],
            )  # fmt: skip
        self.writer.stdin.close()

    def said(self) -> str:
        if self.process.poll() is not None:
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # until the last of its processes has let go of the pipe
                self.writer.wait(10)
        return self.log.read_text(errors="replace")

    def family(self, *words: str) -> list[psutil.Process]:
        """The processes below this one whose command line has all of the words."""
        found = []
        for process in self.process.children(recursive=True):
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words):
                found.append(process)
        return found

    def ranks(self) -> list[psutil.Process]:
        """The processes that train, or evaluate."""
        found = [
            one
            for one in self.family("scripts/train.py")
            if "accelerate.commands.launch" not in " ".join(one.cmdline())
        ]
        return found or [self.process]

    def kill(self) -> None:
        for one in [*self.process.children(recursive=True), self.process]:
            one.kill()
        self.process.wait()


def hit(launch: Launch, how: str, rng: random.Random) -> bool:
    """Do one of `HITS`; whether there was anything to hit."""
    try:
        if how == "all":
            launch.kill()
        elif how == "term":
            launch.process.terminate()
        elif how == "stop":
            for rank in rng.sample(launch.ranks(), 1):
                rank.suspend()
                time.sleep(rng.choice((1, 5, 30)))
                rank.resume()
        elif how == "clock":
            return launch.machine.turn_clock(rng.choice((-1, 1)) * rng.choice((60, 3600, 86400)))
        elif how == "disk":
            return launch.machine.fill_disk(rng.choice((0, 2_000, 20_000, 200_000)))
        elif how in ("full", "read-only"):
            # Stands for a quota, and for a disk that cannot be written to: no file may grow beyond this.
            size = 0 if how == "read-only" else rng.choice((100, 2_000, 20_000, 100_000))
            for rank in launch.ranks():
                resource.prlimit(rank.pid, resource.RLIMIT_FSIZE, (size, size))
        else:
            word = {"rank": None, "math worker": "grader.process", "sandbox supervisor": "jail.supervisor"}[how]
            targets = launch.ranks() if word is None else launch.family(word)
            if not targets:
                return False
            rng.choice(targets).kill()
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    return True


HITS = ("rank", "all", "math worker", "sandbox supervisor", "term", "stop", "clock", "disk", "full", "read-only")
HARMLESS = ("math worker", "sandbox supervisor", "stop", "clock")  # the launch goes on to its end


def wait_for_moment(launch: Launch, output: Path, rng: random.Random) -> str:
    """Until the moment of a hit: while it starts, at some step, or while files are written; which it was."""
    kind = rng.choice(("start", "step", "step", "write", "write"))
    deadline = time.monotonic() + (rng.uniform(0.5, 12) if kind == "start" else HANG_SECONDS)
    changes, more = rng.randrange(1, 6), rng.uniform(0, 2) if kind == "step" else rng.choice((0, 0.002, 0.01, 0.05))
    size = written(output)
    while launch.process.poll() is None and time.monotonic() < deadline and changes:
        time.sleep(0.001)
        size, before = written(output), size
        changes -= kind != "start" and size != before
    if kind != "start":
        time.sleep(more)
    return kind


def written(folder: Path) -> int:
    """Bytes in a folder."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(directory, name)).st_size
    return total


def end(launch: Launch, deadline: float) -> int | None:
    """Its exit status; None if it hangs."""
    while time.monotonic() < deadline:
        if launch.process.poll() is not None:
            return launch.process.poll()
        time.sleep(0.05)
    return None


def outcome(what: str, output: Path) -> dict:
    """All numbers of a finished run that must not depend on what has happened to it."""
    if what == "eval":
        return {name: json.loads((output / name).read_text()) for name in ("settings.json", "results.json")} | {
            "samples": (output / "samples.jsonl").read_text()
        }
    if what == "audit":
        return {name: (output / name).read_text() for name in ("samples.jsonl", "results.json", "audit.html")}
    if what == "study":
        rows = map(json.loads, (output / "rows.jsonl").read_text().splitlines())
        return {f"{row['variant']}, seed {row['seed']}": {key: row[key] for key in NUMBERS} for row in rows}
    import pyarrow.parquet as pq
    from safetensors.torch import load_file

    state = json.loads((output / "trainer_state.json").read_text())
    history = [{key: entry[key] for key in METRICS if key in entry} for entry in state["log_history"]]
    records = {
        path.name: pq.read_table(path).to_pylist() for path in sorted((output / "token_credit").glob("*.parquet"))
    }
    weights = {name: value.tolist() for name, value in load_file(output / "model.safetensors").items()}
    return {"history": [one for one in history if len(one) > 1], "records": records, "weights": weights}


def differences(ours: dict, expected: dict) -> list[str]:
    return [f"{key} differs from the undisturbed run's" for key in expected if ours.get(key) != expected[key]]


def run(what: str, moments: int, seed: int, seconds: float, folder: Path, hits: tuple[str, ...] = HITS) -> dict:
    """Hit launches until `moments` are through; a finished run is compared, and another one begun."""
    machine = Machine(folder)
    try:
        return hit_launches(what, moments, random.Random(seed), seconds, folder, hits, machine) | {"seed": seed}
    finally:
        machine.close()


def hit_launches(
    what: str, moments: int, rng: random.Random, seconds: float, logs: Path, hits: tuple[str, ...], machine: Machine
) -> dict:
    folder = machine.disk
    make_run(folder)
    started, problems, done = time.monotonic(), [], []
    whole = Launch(COMMANDS[what](folder, "whole"), logs / "whole.log", machine)
    if end(whole, time.monotonic() + HANG_SECONDS) != 0:
        return {"problems": [f"the undisturbed run failed: {whole.said()[-3000:]}"], "moments": []}
    expected = outcome(what, folder / "whole")
    number = compared = 0
    order: list[str] = []
    while len(done) < moments and time.monotonic() - started < seconds:
        number += 1
        name = f"run_{number}"
        while True:  # until this run is at its end
            wants_more = len(done) < moments and time.monotonic() - started < seconds
            launch = Launch(COMMANDS[what](folder, name), logs / f"{name}_{len(done)}.log", machine)
            how = kind = "nothing"
            if wants_more:
                order = order or rng.sample(hits, len(hits))
                how = order.pop()
                kind = wait_for_moment(launch, folder / name, rng)
                if not hit(launch, how, rng):
                    how = f"{how} (nothing there)"
            status = end(launch, time.monotonic() + HANG_SECONDS)
            machine.mend()
            entry = {"run": number, "hit": how, "at": kind, "status": status}
            if wants_more:
                done.append(entry)
            if status is None:
                problems.append(f"{name}: hangs after {how} at {kind}: {launch.said()[-1500:]}")
                launch.kill()
            elif status and how in HARMLESS:
                problems.append(f"{name}: {how} at {kind} has ended it: {launch.said()[-3000:]}")
            elif status and how == "nothing":
                problems.append(f"{name}: cannot go on: {launch.said()[-3000:]}")
            elif status > 0 and kind != "start" and not re.search(SAYS, launch.said()):
                problems.append(f"{name}: says nothing of {how} at {kind}: {launch.said()[-1500:]}")
            if left := left_behind(folder / f"{name}.yaml" if what == "train" else folder / name):
                problems.append(f"{name}: processes are left after {how} at {kind}: {left}")
            print(json.dumps(entry), flush=True)
            if status == 0:
                compared += 1
                problems += [f"{name}: {one}" for one in differences(outcome(what, folder / name), expected)]
                break
            if how == "nothing":
                break
    return {"what": what, "moments": done, "runs_compared": compared, "problems": problems,
            "seconds": round(time.monotonic() - started, 1)}  # fmt: skip


def left_behind(path: Path, seconds: float = 20.0) -> list[str]:
    """Processes of an ended launch that do not end."""
    deadline = time.monotonic() + seconds
    while left := [
        " ".join(line) for line in map(_cmdline, psutil.process_iter()) if any(str(path) in word for word in line)
    ]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=COMMANDS, default="train")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="after which no new moment begins")
    parser.add_argument("--hits", nargs="+", choices=HITS, default=HITS)
    parser.add_argument("--folder", type=Path, help="to keep what the runs have written")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = run(options.what, options.moments, options.seed, options.seconds, folder, tuple(options.hits))
    print(json.dumps({**report, "moments": len(report["moments"])}, indent=1))
    return int(bool(report["problems"]))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main())
