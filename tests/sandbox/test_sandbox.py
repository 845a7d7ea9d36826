"""The sandbox by itself: results, limits, workers."""

import pytest

from delta_trl.rewards.code import get_sandbox
from delta_trl.sandbox import Limits, Outcome, Sandbox
from delta_trl.sandbox.remote import RemoteSandbox

from ..documented import defaults


@pytest.mark.parametrize("called", [Limits, Sandbox, RemoteSandbox])
def test_defaults_are_those_of_the_docstring(called):
    said, real = defaults(called)
    assert said == real != {}


@pytest.mark.parametrize(
    ("code", "outcome", "stdout"),
    [
        ("print(input()[::-1])", Outcome.OK, b"cba\n"),
        ("print('partial'); 1 / 0", Outcome.EXCEPTION, b"partial\n"),
        ("exit(3)", Outcome.EXCEPTION, b""),
        ("exit()", Outcome.OK, b""),
        ("while True: pass", Outcome.TIMEOUT, b""),
        ("x = [0] * 10**9", Outcome.MEMORY, b""),
        ("import sys\nwhile True: sys.stdout.write('x' * 10**6)", Outcome.OUTPUT_LIMIT, None),
        ("import os; os.kill(os.getpid(), 9)", Outcome.EXCEPTION, b""),
        ("import os; os.kill(os.getpid(), 11)", Outcome.KILLED, b""),
        ("def broken(:", Outcome.EXCEPTION, b""),
    ],
)
def test_outcomes(sandbox, code, outcome, stdout):
    result = sandbox.run(code, "abc\n", Limits(wall_seconds=1))
    assert result.outcome is outcome
    assert stdout is None or result.stdout == stdout


DESCRIPTORS = """
import os, stat
for descriptor in range(64):
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            print(descriptor)
    except OSError:
        pass
"""


def test_a_program_has_no_descriptors_but_its_own(each_tier):
    """Standard input, output and error, and where its results go; besides, the library's directories."""
    result = get_sandbox(2, each_tier, False).run(DESCRIPTORS)
    assert result.stdout.split() == [b"0", b"1", b"2", b"3"]


def test_a_program_has_its_limits_and_cannot_raise_them(sandbox):
    names = "AS FSIZE NPROC NOFILE CPU CORE MEMLOCK MSGQUEUE".split()
    code = f"import resource\nfor name in {names}: print(*resource.getrlimit(getattr(resource, 'RLIMIT_' + name)))"
    limits = Limits(cpu_seconds=3, memory_mb=300, output_bytes=10_000, threads=7, open_files=20)
    pairs = [tuple(map(int, line.split())) for line in sandbox.run(code, "", limits).stdout.splitlines()]
    soft, hard = (dict(zip(names, values, strict=True)) for values in zip(*pairs, strict=True))
    wanted = {
        "AS": 300 << 20,
        "FSIZE": 10_000,
        "NPROC": 7,
        "NOFILE": 20,
        "CPU": 3,
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
    }
    for found in (soft, hard):  # what is preloaded takes address space, too
        assert 0 <= found.pop("AS") - wanted["AS"] < 200 << 20
    del wanted["AS"]
    assert soft == wanted
    assert hard == {**wanted, "CPU": 4}  # a second for an orderly end


def test_run_many_keeps_the_order(sandbox):
    results = sandbox.run_many([("print(input())", str(number)) for number in range(8)])
    assert [int(result.stdout) for result in results] == list(range(8))


def test_survives_a_killed_worker(sandbox):
    sandbox.run("print(1)")
    for worker in sandbox._pool.idle:
        worker.process.kill()
    assert sandbox.run("print(2)").stdout == b"2\n"


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="'A' or 'B', got 'C'"):
        Sandbox(tier="C")
    with pytest.raises(ValueError, match="allow_unsafe"):
        Sandbox(tier="unsafe")
    with pytest.raises(ValueError, match="wall_seconds=0"):
        Limits(wall_seconds=0)
