"""Every attack earns 0, never None, in time, and nothing on the host has changed afterwards."""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_trl.rewards.code import CodeReward

from ..corpus.attacks import ATTACKS, LASTING
from ..corpus.host import CANARY, Host


TIMEOUT = 1.0
SLACK = 5.0  # for starting, and for a machine that is busy with other tests
AT_ONCE = 8
GOOD = ["print(1)"], [{"inputs": [""], "outputs": ["1"]}]
EVERY = LASTING + ATTACKS
SAMPLE = random.Random(0).sample(LASTING, 8) + random.Random(0).sample(ATTACKS, 40)


@pytest.fixture
def host(tmp_path):
    os.environ["DELTA_TRL_CANARY"] = CANARY  # workers that start from now on could inherit it
    host = Host(tmp_path)
    yield host
    host.close()
    del os.environ["DELTA_TRL_CANARY"]


@pytest.mark.parametrize(
    ("each_tier", "attacks"),
    [("A", EVERY), ("B", SAMPLE), pytest.param("B", EVERY, marks=pytest.mark.slow)],
    ids=["A", "B, a sample", "B"],
    indirect=["each_tier"],
)
def test_attacks_fail(each_tier, attacks, host):
    """Many at once, as in a trainer's batch: those that last wait for the end of their time."""
    reward = CodeReward(timeout=TIMEOUT, memory_mb=256, workers=AT_ONCE, tier=each_tier)

    def attack(case) -> str | None:
        """What went wrong."""
        name, program, tests = case
        logged = {}
        completion = f"```python\n{host.fill_in(program)}\n```"
        tests = json.loads(host.fill_in(json.dumps(tests)))
        started = time.monotonic()
        (score,) = reward([completion], [tests], log_extra=logged.__setitem__)
        seconds = time.monotonic() - started
        if score != 0.0 or seconds > TIMEOUT + SLACK:
            return f"{name}: {score}, {logged['code_verdict'][0]}, after {seconds:.1f} s"
        return None

    with ThreadPoolExecutor(AT_ONCE) as threads:

        def works() -> bool:
            return list(threads.map(lambda _: reward(*GOOD), range(AT_ONCE))) == [[1.0]] * AT_ONCE

        assert works()  # the workers are running
        problems = list(filter(None, threads.map(attack, attacks)))
        assert works()
    reward.sandbox.close()
    assert not problems, "\n".join(problems)
    assert host.state() == host.before
