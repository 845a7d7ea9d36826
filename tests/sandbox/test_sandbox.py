"""The sandbox by itself: results, limits, workers."""

import pytest

from delta_trl.sandbox import Limits, Outcome, Sandbox


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
        ("import os; os.kill(os.getpid(), 9)", Outcome.KILLED, b""),
        ("def broken(:", Outcome.EXCEPTION, b""),
    ],
)
def test_outcomes(sandbox, code, outcome, stdout):
    result = sandbox.run(code, "abc\n", Limits(wall_seconds=1))
    assert result.outcome is outcome
    assert stdout is None or result.stdout == stdout


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
