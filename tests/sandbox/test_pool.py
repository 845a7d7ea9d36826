import os
import signal
import time

import pytest

from delta_trl.sandbox.pool import map_in_threads


@pytest.fixture
def ctrl_c():
    """A shell's background process ignores Ctrl-C, and so do those that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("where", ["here", "in a thread"])
def test_after_an_exception_no_item_is_started(where, ctrl_c):
    started = []

    def work(item):
        started.append(item)
        if item == 3:
            if where == "in a thread":
                raise ValueError
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C
        time.sleep(0.02)

    with pytest.raises(ValueError if where == "in a thread" else KeyboardInterrupt):
        map_in_threads(work, range(200), 2)
    already = len(started)
    time.sleep(0.1)
    assert len(started) <= already + 2 < 100
