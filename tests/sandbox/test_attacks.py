"""Every attack earns 0, never None, in time, and nothing on the host has changed afterwards."""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_trl.rewards.code import CodeReward

from ..corpus.host import CANARY, Host
from ..corpus.programs import ATTACKS, KINDS, LASTING


TIMEOUT = 1.0
SLACK = 5.0  # for starting, and for a machine that is busy with other tests
GOOD = ["print(1)"], [{"inputs": [""], "outputs": ["1"]}]
SAMPLE = [case for case in LASTING if "sleep(" in case[1]][:3]  # those that last, but take no processor time
for kind in KINDS:
    SAMPLE += random.Random(0).sample([case for case in ATTACKS if case[0].startswith(kind)], 4)


@pytest.fixture
def host(tmp_path):
    os.environ["DELTA_TRL_CANARY"] = CANARY  # workers that start from now on could inherit it
    host = Host(tmp_path)
    yield host
    host.close()
    del os.environ["DELTA_TRL_CANARY"]


@pytest.mark.parametrize(
    ("each_tier", "attacks", "at_once"),
    [
        ("A", SAMPLE, 2),
        ("B", SAMPLE, 2),
        pytest.param("A", LASTING + ATTACKS, 8, marks=pytest.mark.processes),
    ],
    ids=["A, of each kind", "B, of each kind", "A"],
    indirect=["each_tier"],
)
def test_attacks_fail(each_tier, attacks, at_once, host):
    """Many at once, as in a trainer's batch: those that last wait for the end of their time."""
    reward = CodeReward(timeout=TIMEOUT, memory_mb=256, workers=at_once, tier=each_tier)
    reward.sandbox.close()  # so that workers start with the canary

    def attack(case) -> str | None:
        """What went wrong."""
        name, program, tests = json.loads(host.fill_in(json.dumps(case)))
        logged = {}
        started = time.monotonic()
        (score,) = reward([f"```python\n{program}\n```"], [tests], log_extra=logged.__setitem__)
        seconds = time.monotonic() - started
        if score != 0.0 or seconds > TIMEOUT + SLACK:
            return f"{name}: {score}, {logged['code_verdict'][0]}, after {seconds:.1f} s"
        return None

    with ThreadPoolExecutor(at_once) as threads:

        def works() -> bool:
            return list(threads.map(lambda _: reward(*GOOD), range(at_once))) == [[1.0]] * at_once

        assert works()  # the workers are running
        problems = list(filter(None, threads.map(attack, attacks)))
        assert works()
    reward.sandbox.close()
    assert not problems, "\n".join(problems)
    assert host.state() == host.before
