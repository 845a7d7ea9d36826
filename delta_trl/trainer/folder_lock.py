"""One run in a folder: two would write over each other's checkpoints and model."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from accelerate.logging import get_logger

from ..arguments.errors import UsageError
from .main_process import from_main_process


logger = get_logger(__name__)

LOCK = "_train.lock"  # transformers leaves out of a push what begins with "_"


@contextmanager
def only_run_in(output_dir: str) -> Iterator[None]:
    """
    Let the main process hold a lock on a run's folder. The kernel releases it when that process ends, however it ends.

    Raises:
        UsageError: In all processes, if another run holds the lock.
    """
    with ExitStack() as held:
        from_main_process(lambda: held.enter_context(_locked(Path(output_dir, LOCK))))
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise UsageError(
                f"output_dir={str(path.parent)!r}: another run trains there, {file.read()}. End it, or choose another "
                "folder."
            ) from error
        except OSError as error:  # a file system without locks
            logger.warning(f"output_dir={str(path.parent)!r} cannot be locked ({error}): keep other runs out of it.")
            yield
            return
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open, too
