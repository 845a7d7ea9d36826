"""The host's end of one worker process."""

import fcntl
import json
import os
import platform
import select
import socket
import subprocess
import sys
import sysconfig

from .pool import WorkerError


START_SECONDS = 30.0
# The whole environment of a worker and its programs; nothing comes from the trainer's.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of sets is the same in every run
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    # one arena and one thread: more would count against the limit of the address space
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
LIBRARY_PATH = "LD_LIBRARY_PATH"  # the interpreter may not start without it; programs do not see it
TEMPORARY_BYTES = 16 << 20
SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
# Defines the packages without running `delta_trl/__init__.py` or the host's side of the sandbox in the jail.
BOOTSTRAP = """\
import json, sys, types
for name, path in json.loads(sys.argv[1]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from delta_trl.sandbox.jail.supervisor import main
sys.path[:] = json.loads(sys.argv[2])
settings = json.loads(sys.argv[3])
sys.argv[:] = [""]
main(settings)
"""


class TierError(WorkerError):
    """The tier cannot be set up here."""


def library_paths(packages: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """For what programs may import: (entries of `sys.path`, paths that must be readable)."""
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
    stdlib = [sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")]
    entries = list(dict.fromkeys([*stdlib, os.path.join(stdlib[1], "lib-dynload")]))
    readable = [*filter(None, os.environ.get(LIBRARY_PATH, "").split(":"))]
    readable += [*SYSTEM_LIBRARIES, os.path.join(sys.base_prefix, "lib"), *stdlib]
    for site in dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")):
        found = [os.path.join(site, name + suffix) for name in packages for suffix in ("", ".py", ".libs")]
        found = [path for path in found if os.path.exists(path)]
        if found:
            entries.append(site)
            readable += found
    return entries, list(dict.fromkeys(os.path.abspath(path) for path in readable))


class Worker:
    """
    A jailed interpreter that runs one request at a time.

    Args:
        tier (`str`): "A", "B" or "unsafe".
        packages (`tuple[str, ...]`): Importable packages besides the standard library, where they are installed.

    Raises:
        TierError: If the tier cannot be set up; the message says which part failed.
        WorkerError: If the process did not start.
    """

    def __init__(self, tier: str, packages: tuple[str, ...]):
        entries, readable = library_paths(packages)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptor = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 64)  # below 3, a standard stream would take its place
        theirs.close()
        here = os.path.dirname(os.path.abspath(__file__))
        # The private directory must not hide a Python environment below /tmp.
        temporary = "/tmp" if not any(f"{path}/".startswith("/tmp/") for path in readable) else "/temporary"
        settings = {
            "parent": os.getpid(),
            "socket": descriptor,
            "tier": tier,
            "packages": packages,
            "readable": readable,
            "temporary": temporary,
            "temporary_bytes": TEMPORARY_BYTES,
        }
        names = [("delta_trl", os.path.dirname(here)), ("delta_trl.sandbox", here)]
        self.channel = ours
        self.reusable = True
        errors = os.memfd_create("delta_trl")
        found = {LIBRARY_PATH: os.environ[LIBRARY_PATH]} if LIBRARY_PATH in os.environ else {}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-B", "-c", BOOTSTRAP, *map(json.dumps, (names, entries, settings))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[descriptor],
                env=ENVIRONMENT | found | {"HOME": temporary, "TMPDIR": temporary},
                cwd="/",
                start_new_session=True,  # the trainer alone handles Ctrl-C in the terminal
            )
        finally:
            os.close(descriptor)
        try:
            reply = self._receive(START_SECONDS)
            if "fatal" in reply:
                raise TierError(reply["fatal"])
        except BaseException as error:
            self.kill()
            if isinstance(error, WorkerError) and (reason := os.pread(errors, 65536, 0).decode(errors="replace")):
                raise type(error)(f"{error} It wrote: {reason[-500:].strip()}") from error
            raise
        finally:
            os.close(errors)

    def _receive(self, seconds: float) -> dict:
        poll = select.poll()  # `select` cannot have descriptors above 1,023
        poll.register(self.channel, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise WorkerError(f"A sandbox worker did not answer within {seconds:.1f} s.")
        try:
            message = self.channel.recv(65536)
        except ConnectionError:
            message = b""
        if not message:
            raise WorkerError("A sandbox worker ended unexpectedly.")
        return json.loads(message)

    def execute(self, request: dict, descriptors: list[int], seconds: float) -> dict:
        """
        Have a request executed (see `jail.zygote.execute`).

        Args:
            request (`dict`): Limits and numbers, for the zygote.
            descriptors (`list[int]`): The processes' files.
            seconds (`float`): Time after which the worker counts as lost.

        Raises:
            WorkerError: If the worker is lost, and must be killed.
        """
        try:
            socket.send_fds(self.channel, [json.dumps(request).encode()], descriptors)
            reply = self._receive(seconds)
        except OSError as error:
            raise WorkerError(f"A sandbox worker is gone: {error}") from error
        if "fatal" in reply:
            raise WorkerError(reply["fatal"])
        self.reusable = reply["reusable"]
        return reply

    def kill(self) -> None:
        """End the worker and whatever it runs; reap it."""
        self.channel.close()
        self.process.kill()
        self.process.wait()


def supported_platform() -> str | None:
    """`None`, or why this platform cannot run workers."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "aarch64"):
        return f"the sandbox needs Linux on x86-64 or aarch64, this is {system} on {machine}"
    return None
