"""How fast tests run in the sandbox, compared with a fresh Python for each test.

    python -m scripts.benchmarks.sandbox [--seconds 3] [--tier A]

Every way runs the same program (two integers in, their sum out) on the same inputs and checks the outputs. Processor
time is that of this process and everything it started, the host's own part included. On a machine that does other
work as well, compare ratios within one run.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil

from delta_trl.sandbox import Sandbox, grade, parse_tests


PROGRAM = "a, b = map(int, input().split())\nprint(a + b)"


def fresh_python(tests: dict) -> None:
    for given, expected in zip(tests["inputs"], tests["outputs"], strict=True):
        command = [sys.executable, "-I", "-S", "-c", PROGRAM]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=6)
        if done.stdout.strip() != expected:
            raise RuntimeError(done.stdout)


def sandboxed(sandbox: Sandbox, parsed) -> None:
    result = grade(sandbox, PROGRAM, parsed)
    if result.passed != result.total:
        raise RuntimeError(str(result))


def measure(run: Callable[[], None], seconds: float, workers: int) -> tuple[float, float]:
    """(programs per second, processor seconds per program) of `run()`, called by `workers` threads."""
    run()
    count = 0
    before = busy()
    started = time.monotonic()
    with ThreadPoolExecutor(workers) as threads:
        while time.monotonic() - started < seconds:
            count += len(list(threads.map(lambda _: run(), range(4 * workers))))
    elapsed = time.monotonic() - started
    return count / elapsed, (busy() - before) / count


def busy() -> float:
    """Processor seconds of this process and of all that it started, ended ones included."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def compare(sandboxes: dict[str, Sandbox], workers: int, count: int, seconds: float) -> None:
    """Print the speed of each way with `count` tests for a program."""
    tests = {"inputs": [], "outputs": []}
    for number in range(count):
        tests["inputs"].append(f"{number} {number}")
        tests["outputs"].append(f"{2 * number}")
    ways: dict[str, Callable[[], None]] = {"fresh Python": partial(fresh_python, tests)}
    for tier, sandbox in sandboxes.items():
        ways[f"sandbox, tier {tier}"] = partial(sandboxed, sandbox, parse_tests(tests))
    found = {name: measure(run, seconds, workers) for name, run in ways.items()}
    reference_rate, reference_cpu = found["fresh Python"]
    for name, (rate, cpu) in found.items():
        tests_per_second = rate * count
        milliseconds = 1000 * cpu / count
        speed = rate / reference_rate
        share = cpu / reference_cpu
        line = f"{name:18} {workers:7} {count:5} {tests_per_second:9.0f} {milliseconds:12.2f}"
        print(f"{line} {speed:6.1f}x {share:6.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--tier", choices=["A", "B"], action="append", help="by default both")
    parser.add_argument("--tests", type=int, nargs="+", default=[1, 10, 50], help="tests per program")
    arguments = parser.parse_args()
    print("way                workers tests   tests/s  CPU ms/test   speed     CPU")
    for workers in (1, 2):
        sandboxes = {tier: Sandbox(workers=workers, tier=tier) for tier in arguments.tier or ("A", "B")}
        for count in arguments.tests:
            compare(sandboxes, workers, count, arguments.seconds)
        for sandbox in sandboxes.values():
            sandbox.close()


if __name__ == "__main__":
    main()
