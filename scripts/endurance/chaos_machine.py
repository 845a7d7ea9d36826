"""What scripts/endurance/chaos.py does to a launch: kill, stop, fill its disk, turn its clock."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import psutil


ROOT = Path(__file__).resolve().parents[2]
DISK_MB = 256
PAGE = 4096
# By hit, what the output of a launch that it ends must match.
ENDED_BY_KILL = r"SIGKILL|Signal 9|exitcode *: -9"
NO_FILE = r"No space left|Errno 28|os error 28|File too large|Errno 27|os error 27|Read-only file|Errno 30|os error 30"
NO_FILE += r"|database or disk is full|disk I/O error|readonly database|left on its disk"  # SQLite's words, and ours
HITS = {
    "rank": ENDED_BY_KILL,
    "all": ENDED_BY_KILL,
    "term": r"SIGTERM|[Ss]ignal:? 15|Terminated|exitcode *: -15",
    "disk": NO_FILE,
    "full": NO_FILE,
    "read-only": NO_FILE,
    # these must not end the launch
    "math worker": "",
    "sandbox supervisor": "",
    "stop": "",
    "clock": "",
}


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
    What launches share and hits change: a disk of their own, if this process may mount one, and a wall clock, if there
    is a C compiler.
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
        """Fill all but some bytes of the disk; returns False if there is no disk of its own."""
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

    def protect_disk(self, seconds: float = 0.3) -> bool:
        """Make the disk read-only; returns whether it could, which takes a moment when no file is written."""
        deadline = time.monotonic() + seconds
        while self.mounted and time.monotonic() < deadline:
            if self.remount("ro"):
                return True
            time.sleep(0.005)
        return False

    def remount(self, how: str) -> bool:
        command = ["mount", "-o", f"remount,{how},size={DISK_MB}m", str(self.disk)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def turn_clock(self, seconds: int) -> bool:
        self.clock.write_text(str(seconds))
        return bool(self.environment)

    def mend(self) -> None:
        """Undo the hits."""
        if self.mounted:
            self.remount("rw")
        self.clock.unlink(missing_ok=True)
        (self.disk / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)


class Launch:
    """One start of the command: its output so far, and all processes that were ever seen below it."""

    def __init__(self, command: list[str], log: Path, machine: Machine):
        self.log, self.machine, self.began = log, machine, time.monotonic()
        self.seen: set[psutil.Process] = set()
        self.looked = 0.0
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

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def wait(self, seconds: float) -> None:
        """Sleep, and note processes now and then."""
        if time.monotonic() > self.looked + 0.2:
            self.below()
            self.looked = time.monotonic()
        time.sleep(seconds)

    def said(self) -> str:
        if not self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):  # until its last process has closed the pipe
                self.writer.wait(10)
        return self.log.read_text(errors="replace")

    def below(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.seen.update(self.process.children(recursive=True))
        return [one for one in self.seen if lives(one)]

    def family(self, *words: str) -> list[psutil.Process]:
        """The processes below this one whose command line has all of the words."""
        return [one for one in self.below() if all(word in command_line(one) for word in words)]

    def ranks(self) -> list[psutil.Process]:
        """The processes that train, or evaluate."""
        found = [
            one for one in self.family("scripts/train.py") if "accelerate.commands.launch" not in command_line(one)
        ]
        return found or [self.process]

    def end(self, seconds: float) -> int | None:
        """Wait for the end. Returns the exit status; None if it hangs."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            self.wait(0.05)
        return self.process.poll()

    def left_behind(self, seconds: float = 20.0) -> list[str]:
        """Processes of an ended launch that do not end."""
        deadline = time.monotonic() + seconds
        while (left := self.below()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [f"{one.pid} {command_line(one)}" for one in left]

    def kill(self) -> None:
        """Kill all of its processes at once."""
        for one in [*self.below(), self.process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def hit(launch: Launch, how: str, rng: random.Random) -> bool:
    """Do one of `HITS`; returns whether there was anything to hit."""
    if not launch.running:
        return False
    launch.below()
    try:
        if how == "all":
            launch.kill()
        elif how == "term":
            launch.process.terminate()
        elif how == "stop":
            rank = rng.choice(launch.ranks())
            rank.suspend()
            time.sleep(rng.choice((1, 5, 30)))
            rank.resume()
        elif how == "clock":
            return launch.machine.turn_clock(rng.choice((-1, 1)) * rng.choice((60, 3600, 86400)))
        elif how == "disk":
            return launch.machine.fill_disk(rng.choice((0, 2_000, 20_000, 200_000)))
        elif how == "read-only" and launch.machine.protect_disk():
            return launch.running
        elif how in ("full", "read-only"):
            # Stands for a quota, or for a read-only disk where open files prevent that: no file may grow.
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
