"""Every attack earns 0, never None, in time, and nothing on the host has changed afterwards."""

import json
import os
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_trl.rewards.code import CodeReward

from .attacks import ATTACKS, LASTING


TIMEOUT = 1.0
SLACK = 2.0  # for starting, and for a machine that is busy with other tests
CANARY = "SECRET-ENVIRONMENT"


class Host:
    """Things on the host that attacks go for, and whether they are still as they were."""

    def __init__(self, directory):
        self.directory = directory
        directory.chmod(0o777)
        self.secret = directory / "secret"
        self.secret.write_text("SECRET-CONTENT")
        self.secret.chmod(0o666)
        self.sentinel = subprocess.Popen(["sleep", "600"])
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(directory / "socket"))
        self.unix.listen()
        name = f"delta_trl-{os.getpid()}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0{name}")
        self.abstract.listen()
        self.datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagram.bind(f"\0{name}-datagram")
        self.sockets = [self.tcp, self.udp, self.unix, self.abstract, self.datagram]
        for one in self.sockets:
            one.setblocking(False)
        self.words = {
            "SECRET-PATH": str(self.secret),
            "SECRET-DIRECTORY": str(directory),
            "TRAINER-PID": str(os.getpid()),
            "SENTINEL-PID": str(self.sentinel.pid),
            "TCP-PORT": str(self.tcp.getsockname()[1]),
            "UDP-PORT": str(self.udp.getsockname()[1]),
            "UNIX-PATH": str(directory / "socket"),
            "ABSTRACT-DATAGRAM": f"{name}-datagram",
            "ABSTRACT-NAME": name,
        }
        self.before = self.state()

    def state(self) -> dict:
        return {
            "secret": (self.secret.read_text(), self.secret.stat().st_mode),
            "directory": sorted(os.listdir(self.directory)),
            "marks": [path for path in ("/mark", "/tmp/mark", "/tmp/d", "/dev/shm/mark") if os.path.exists(path)],
            "sentinel": self.sentinel.poll(),
            "environment": os.environ.get("DELTA_TRL_CANARY"),
            "connections": [self.contacted(one) for one in self.sockets],
        }

    @staticmethod
    def contacted(one: socket.socket) -> bool:
        try:
            one.recv(1) if one.type == socket.SOCK_DGRAM else one.accept()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self.sentinel.kill()
        self.sentinel.wait()
        for one in self.sockets:
            one.close()

    def fill_in(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(word, value)
        return text


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
