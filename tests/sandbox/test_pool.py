"""Which workers a pool lends."""

import subprocess

import pytest

from delta_trl.sandbox.pool import WorkerPool


class Sleeper:
    """A worker without work."""

    def __init__(self):
        self.process = subprocess.Popen(["sleep", "60"])
        self.reusable = True

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def pool():
    pool = WorkerPool(1, Sleeper)
    yield pool
    pool.close()
    assert not pool.workers


def borrowed(pool):
    with pool.borrow() as worker:
        return worker


def test_a_worker_is_lent_again_while_it_lives(pool):
    first = borrowed(pool)
    assert borrowed(pool) is first
    first.kill()
    assert borrowed(pool).process.poll() is None


def test_a_worker_that_cannot_be_used_again_is_ended(pool):
    with pool.borrow() as spoilt:
        spoilt.reusable = False
    with pytest.raises(KeyError), pool.borrow() as interrupted:
        raise KeyError
    assert interrupted is not spoilt
    for worker in (spoilt, interrupted):
        assert worker.process.returncode is not None
