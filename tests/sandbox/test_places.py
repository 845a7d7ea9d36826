"""Restricted places: which tier of the sandbox works there, and the messages. See `places.py`."""

import os
import subprocess
import sys

import pytest

from .places import PLACES


PROBE = r"""
import logging, os
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
from delta_trl.rewards import MathReward
from delta_trl.rewards.code import CodeReward
from tests.corpus.programs import ATTACKS
once = {"inputs": [""], "outputs": ["1"]}
kinds = ("files", "network", "processes")
attacks = [one[1:] for one in ATTACKS if one[0].startswith(kinds) and "SECRET-" not in one[1]][::3]
good = [("print(1)", once), ("def f(x): return x + 1", {"test": "assert f(1) == 2"})]
reward = CodeReward(timeout=2, workers=1)
scores = reward([program for program, _ in good + attacks], [tests for _, tests in good + attacks])
assert scores == [1.0] * len(good) + [0.0] * len(attacks), scores
print("TIER", reward.sandbox.tier)
(zygote,) = [worker.process.pid for worker in reward.sandbox._pool.idle]
print("OWNER", os.stat(f"/proc/{zygote}/mem").st_uid)
hard = r"10^{10^{10}}"  # nobody gets anywhere with it
assert MathReward(num_workers=1, timeout=0.5)([r"\boxed{1}", r"\boxed{1}"], ["1", hard]) == [1.0, None]
"""
EXPECTED = {
    "unprivileged": ("TIER A",),
    "container": ("TIER B", "WARNING Sandbox: tier B", "not tier A", "unshare: Operation not permitted"),
    # root owns the memory of a process that its user must not look into
    "unprivileged container": ("OWNER 0", "TIER B", "WARNING Sandbox: tier B", "not tier A"),
    "read-only root": ("TIER A",),
    "rootless": ("TIER A",),
    "rootless container": ("TIER B", "WARNING Sandbox: tier B", "not tier A"),
    "few descriptors": ("TIER A",),
}


@pytest.mark.processes
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs root, on Linux")
def test_a_place_that_says_no(place):
    command = [sys.executable, "-m", "tests.sandbox.places", place, "--", sys.executable, "-c", PROBE]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    for words in EXPECTED[place]:
        assert words in said
