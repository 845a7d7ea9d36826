"""The sandbox by itself: outcomes, limits, tiers, options."""

import json
import math
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from delta_trl.rewards.code import get_sandbox
from delta_trl.sandbox import Limits, Outcome, Result, Sandbox, SandboxUnavailableError, grade, local, parse_tests
from delta_trl.sandbox.limits import OUTPUT_BYTES
from delta_trl.sandbox.worker import TierError

from ..corpus.verdicts import rows


@pytest.mark.parametrize("row", rows("outcomes"))
def test_outcomes(sandbox, row):
    result = sandbox.run(row["code"], "abc", Limits(wall_seconds=1))
    assert result.outcome is Outcome[row["outcome"]]
    assert row["stdout"] in (result.stdout.decode(), None)


def test_the_host_reads_the_end_of_errors_and_one_report_for_each_case(sandbox):
    result = sandbox.run("import os, sys\nos.write(3, b'0\\n' * 1000)\nsys.stderr.write('a' * 5000 + 'end')")
    assert result.stderr == b"a" * 4093 + b"end"
    assert result.reports == (b"0",)
    deep = sandbox.run("def f(n):\n    if n: f(n - 1)\n    1 / 0\nf(50)")
    assert b"line 3" in deep.stderr


def test_a_sandbox_has_limits_of_its_own(tier):
    """For what brings none."""
    tests = parse_tests({"inputs": ["1", "2"], "outputs": ["1", "2"]})
    program = "x = bytearray(200 << 20); print(input())"
    with Sandbox(Limits(memory_mb=100), workers=1, tier=tier) as sandbox:
        assert sandbox.run(program, "1").outcome is Outcome.MEMORY
        assert sandbox.run("x = bytearray(97 << 20)").outcome is Outcome.OK  # MiB, without what Python itself takes
        assert str(grade(sandbox, program, tests)) == "memory on test 1 of 2"
        assert str(grade(sandbox, program, tests, Limits())) == "passed 2 of 2"


@pytest.mark.parametrize(
    ("processes", "workers"),
    [
        ("", 6),
        ("2", 3),
        ("4", 1),
        ("100", 1),
    ],
)
def test_the_processes_of_a_launcher_share_the_processors(monkeypatch, processes, workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert Sandbox().workers == workers
    assert Sandbox(workers=5).workers == 5


def test_sets_have_the_same_order_and_random_numbers_the_same_values_in_every_run(sandbox):
    code = "import random; print(hash('a'), random.random())"
    seeded = code.replace(";", "; random.seed(0);")
    python = subprocess.run([sys.executable, "-c", seeded], env={"PYTHONHASHSEED": "0"}, capture_output=True)
    assert sandbox.run(code).stdout == python.stdout


def test_an_input_may_be_longer_than_any_output(sandbox):
    length = OUTPUT_BYTES + 1
    result = sandbox.run("print(len(input()))", "x" * length)
    assert result.stdout == b"%d\n" % length


def test_the_library_is_mounted_read_only_and_the_temporary_directory_is_small():
    """Besides what Landlock says."""
    code = "import os; d = os.statvfs('.'); print(os.statvfs(os.__file__).f_flag & 7, d.f_blocks * d.f_frsize)"
    flags, size = map(int, get_sandbox(2, "A").run(code).stdout.split())
    assert flags == os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
    assert size == 16 << 20


def test_a_program_has_its_limits_and_cannot_raise_them(sandbox):
    limits = Limits(wall_seconds=2, memory_mb=300)
    wanted = {name: [value, value] for name, value in limits.of_kernel().items()}
    del wanted["RLIMIT_CPU"]  # which a program can neither change nor ask for
    code = (
        "import json, resource as r\nprint(json.dumps({one: r.getrlimit(getattr(r, one)) for one in input().split()}))"
    )
    found = json.loads(sandbox.run(code, " ".join(wanted), limits).stdout)
    soft, hard = found.pop("RLIMIT_AS")
    assert soft == hard
    preloaded = soft - wanted.pop("RLIMIT_AS")[0]  # which does not count against the promise
    assert 20 << 20 < preloaded < 200 << 20
    _, wanted["RLIMIT_STACK"][1] = resource.getrlimit(resource.RLIMIT_STACK)  # which a program may want for recursion
    assert found == wanted


DESCRIPTORS = """
import os, stat
for descriptor in range(64):
    try: stat.S_ISDIR(os.fstat(descriptor).st_mode) or print(descriptor)
    except OSError: pass
"""


def test_a_program_has_no_descriptors_but_its_own(each_tier):
    """Standard input, output and error, and where its results go; besides, the library's directories."""
    result = get_sandbox(2, each_tier).run(DESCRIPTORS)
    assert result.stdout.split() == [b"0", b"1", b"2", b"3"]


def test_a_program_does_not_see_where_the_trainer_is(each_tier):
    """Nor the package that runs it."""
    code = "import sys; print(sys.orig_argv, [name for name in sys.modules if 'sandbox' in name])"
    assert get_sandbox(2, each_tier).run(code).stdout == b"[] []\n"


def test_what_is_not_offered_is_an_import_error(each_tier):
    code = "import numpy.fft, xml.dom\ntry:\n    import torch\nexcept ImportError as error:\n    print(error.name)"
    result = get_sandbox(2, each_tier).run(code)
    assert result.outcome is Outcome.OK
    assert result.stdout == b"torch\n"


def test_refuses_where_nothing_can_be_isolated(monkeypatch):
    def refuse(tier):
        raise TierError("Landlock is turned off")

    monkeypatch.setattr(local, "Worker", refuse)
    with pytest.raises(SandboxUnavailableError, match=r"Landlock is turned off.*remote_url"):
        Sandbox().run("print(1)")


def test_a_weaker_tier_is_reported_and_does_not_replace_one_that_is_required(monkeypatch, caplog):
    start = local.Worker

    def only_b(tier):
        if tier == "A":
            raise TierError("no namespaces")
        return start(tier)

    monkeypatch.setattr(local, "Worker", only_b)
    with pytest.raises(SandboxUnavailableError, match="no namespaces"):
        Sandbox(tier="A").run("")
    with Sandbox(workers=2) as sandbox, ThreadPoolExecutor(2) as threads:
        executions = threads.map(sandbox.run, ["import time; time.sleep(0.2); print(1)"] * 2)
        assert [execution.stdout for execution in executions] == [b"1\n"] * 2
        assert sandbox.tier == "B"
    [warning] = caplog.messages  # of two workers
    assert "no namespaces" in warning


def test_a_tier_that_does_not_hold_is_refused(monkeypatch):
    def run_as_it_is(jobs, limits):
        done = subprocess.run([sys.executable, "-c", jobs[0]["code"]], cwd="/tmp", capture_output=True)
        return Result(Outcome.OK, done.stdout)

    unconfined = SimpleNamespace(execute=run_as_it_is, kill=lambda: None)
    monkeypatch.setattr(local, "Worker", lambda tier: unconfined)
    with pytest.raises(SandboxUnavailableError, match="not confined"):
        Sandbox(tier="B").run("print(1)")


def test_refuses_other_platforms(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(SandboxUnavailableError, match="Darwin"):
        Sandbox().run("print(1)")


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="'C'"):
        Sandbox(tier="C")
    for name, value in (("wall_seconds", 0), ("wall_seconds", math.nan), ("memory_mb", 0), ("memory_mb", -1)):
        with pytest.raises(ValueError, match=f"{name}={value}"):
            Limits(**{name: value})
