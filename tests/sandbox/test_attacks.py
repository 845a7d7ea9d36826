"""Every attack earns 0, never None, in time, and nothing on the host has changed afterwards."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_trl.rewards.code import CodeReward

from ..corpus.attacks import ATTACKS, LASTING
from ..corpus.host import CANARY, Host


TIMEOUT = 1.0
SLACK = 2.0  # for starting, and for a machine that is busy with other tests


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    os.environ["DELTA_TRL_CANARY"] = CANARY  # workers that start from now on could inherit it
    host = Host(tmp_path_factory.mktemp("host"))
    yield host
    host.close()
    del os.environ["DELTA_TRL_CANARY"]


GOOD = ["print(1)"], [{"inputs": [""], "outputs": ["1"]}]
AT_ONCE = 5  # of the attacks that last


@pytest.fixture(scope="module")
def reward(host, tier):
    reward = CodeReward(timeout=TIMEOUT, memory_mb=256, workers=1, tier=tier)
    yield reward
    reward.sandbox.close()


@pytest.fixture(scope="module")
def reward_at_once(host, tier):
    reward = CodeReward(timeout=TIMEOUT, memory_mb=256, workers=AT_ONCE, tier=tier)
    yield reward
    reward.sandbox.close()


def attack(reward, host, program, tests):
    """The score, the verdict, and how many seconds it took."""
    logged = {}
    completion = f"```python\n{host.fill_in(program)}\n```"
    filled = json.loads(host.fill_in(json.dumps(tests)))
    started = time.monotonic()
    (score,) = reward([completion], [filled], log_extra=logged.__setitem__)
    return score, logged["code_verdict"], time.monotonic() - started


@pytest.mark.parametrize(("program", "tests"), [case[1:] for case in ATTACKS], ids=[case[0] for case in ATTACKS])
def test_attack_fails(reward, host, program, tests):
    reward(*GOOD)  # a worker is running
    score, verdict, seconds = attack(reward, host, program, tests)
    assert score == 0.0, verdict
    assert seconds < TIMEOUT + SLACK
    assert host.state() == host.before
    assert reward(*GOOD) == [1.0]


def test_attacks_that_last_fail(reward_at_once, host):
    """As above, several at once on as many workers: they spend their time in waiting for the end of it."""

    def fails(case):
        name, program, tests = case
        score, verdict, seconds = attack(reward_at_once, host, program, tests)
        assert score == 0.0, (name, verdict)
        assert seconds < TIMEOUT + SLACK, name
        assert reward_at_once(*GOOD) == [1.0], name

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda _: reward_at_once(*GOOD), range(AT_ONCE)))  # the workers are running
        list(threads.map(fails, LASTING))
        assert list(threads.map(lambda _: reward_at_once(*GOOD), range(AT_ONCE))) == [[1.0]] * AT_ONCE
    assert host.state() == host.before
