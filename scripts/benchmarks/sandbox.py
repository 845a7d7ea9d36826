"""How fast tests run in the sandbox, compared with the usual ways to run them.

    python -m scripts.benchmarks.sandbox [--seconds 3] [--tier A]

Every way runs the same program (two integers in, their sum out) on the same inputs and checks the outputs. Processor
time is that of this process and everything it started, the host's own part included. On a machine that does other
work as well, compare ratios within one run.
"""

import argparse
import functools
import io
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil

from delta_trl.sandbox import Sandbox, grade, parse_tests


PROGRAM = "a, b = map(int, input().split())\nprint(a + b)"
MANY = """\
import io, sys
for case in sys.stdin.read().split(";"):
    sys.stdin = io.StringIO(case)
    exec(PROGRAM, {"__name__": "__main__"})
""".replace("PROGRAM", repr(PROGRAM))


def fresh_python(inputs: list[str]) -> list[str]:
    return [python(PROGRAM, text) for text in inputs]


def python_per_program(inputs: list[str]) -> list[str]:
    return python(MANY, ";".join(inputs)).split()


def python(code: str, stdin: str) -> str:
    command = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=6).stdout.strip()


def manager_and_process(inputs: list[str]) -> list[str]:
    """LiveCodeBench's and verl's pattern: a Manager for the result, a Process for the program, both per program."""
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        results = manager.list()
        process = context.Process(target=_run_all, args=(inputs, results))
        process.start()
        process.join(6)
        return list(results)


def _run_all(inputs: list[str], results) -> None:
    for text in inputs:
        sys.stdin, sys.stdout = io.StringIO(text), io.StringIO()
        exec(PROGRAM, {"__name__": "__main__"})
        results.append(sys.stdout.getvalue().strip())


def measure(run, seconds: float, workers: int) -> tuple[float, float]:
    """(programs per second, processor seconds per program) of `run()`, called by `workers` threads."""
    run()
    started, before, count = time.monotonic(), busy(), 0
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--tier", choices=["A", "B"], action="append", help="by default both")
    parser.add_argument("--tests", type=int, nargs="+", default=[1, 10, 50], help="tests per program")
    arguments = parser.parse_args()

    baselines = {
        "fresh Python per test": fresh_python,
        "one Python per program": python_per_program,
        "Manager and Process": manager_and_process,
    }
    print(f"{'way':34} {'workers':>7} {'tests':>5} {'tests/s':>9} {'CPU ms/test':>12} {'speed':>7} {'CPU':>7}")
    for workers in (1, 2):
        for tests in arguments.tests:
            inputs = [f"{number} {number + 1}" for number in range(tests)]
            outputs = [str(2 * number + 1) for number in range(tests)]
            ways = {name: functools.partial(run_checked, way, inputs, outputs) for name, way in baselines.items()}
            parsed = parse_tests({"inputs": inputs, "outputs": outputs})
            sandboxes = [Sandbox(workers=workers, tier=tier) for tier in arguments.tier or ["A", "B"]]
            for sandbox in sandboxes:
                sandbox.run_many([("", "")] * 4 * workers)
                ways[f"delta_trl.sandbox, tier {sandbox.tier}"] = functools.partial(grade_checked, sandbox, parsed)
            reference = None
            for name, run in ways.items():
                rate, cpu = measure(run, arguments.seconds, workers)
                rate, cpu = rate * tests, cpu / tests
                reference = reference or (rate, cpu)
                print(
                    f"{name:34} {workers:7} {tests:5} {rate:9.0f} {1000 * cpu:12.2f} "
                    f"{rate / reference[0]:6.1f}x {cpu / reference[1]:6.2f}x",
                    flush=True,
                )
            for sandbox in sandboxes:
                sandbox.close()


def run_checked(way, inputs: list[str], outputs: list[str]) -> None:
    actual = way(inputs)
    if actual != outputs:
        raise RuntimeError(f"expected {outputs}, got {actual}")


def grade_checked(sandbox: Sandbox, tests) -> None:
    result = grade(sandbox, PROGRAM, tests)
    if result.passed != result.total:
        raise RuntimeError(str(result))


if __name__ == "__main__":
    main()
