"""Fuzz the rewards: answers from a grammar, programs bred from the attack collection. Exit status 1 if any fail.

    python -m scripts.endurance.fuzz --answers 100000 --programs 5000 --seed 0 --seconds 3600

Both are done in `PARTS`, each with its own seed. After each part, failures are appended to `--failures`; once
understood, they belong in tests/corpus/answers or tests/corpus/programs.
"""

import argparse
import collections
import json
import os
import random
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from delta_trl.rewards import CodeReward, MathReward
from tests.corpus.host import CANARY, Host
from tests.corpus.programs import ATTACKS, LASTING

from .fuzz_answers import draw
from .fuzz_programs import Attack, breed


# A check that hangs takes longer than its deadline and this. Wall time on a busy machine, in which a worker may have
# to be started: no check is late by less.
GRACE_SECONDS = 30.0
ANSWER_SECONDS = 3.0
PROGRAM_SECONDS = 0.5
PROGRAMS_AT_ONCE = 2
PROGRAMS_IN_A_BATCH = 40
PARTS = {"answers": 5_000, "programs": 250}  # sizes; each part is reported
GOOD = ["print(input())"], [{"inputs": ["7"], "outputs": ["7"]}]


def fuzz_answers(count: int, seed: int, seconds: float, tier: str | None = None) -> dict:
    """Check one answer at a time, so that each is timed by itself. Answers know no `tier`."""
    rng = random.Random(seed)
    reward = MathReward(timeout=ANSWER_SECONDS, num_workers=1)
    failures = []
    kinds = collections.Counter()
    slowest = 0.0
    started = time.monotonic()
    while kinds.total() < count and time.monotonic() - started < seconds:
        kind, gold, completion, wanted = draw(rng)
        columns = {}
        began = time.monotonic()
        (score,) = reward([completion], [gold], log_extra=columns.__setitem__)
        took = time.monotonic() - began
        kinds[kind] += 1
        slowest = max(slowest, took)
        misjudged = score is None or (wanted is not None and score != wanted)
        if misjudged or took > ANSWER_SECONDS + GRACE_SECONDS:
            failure = {
                "kind": kind,
                "gold": gold,
                "completion": completion,
                "label": wanted,
                "score": score,
                "verdict": columns["verdict"][0],
                "seconds": round(took, 3),
            }
            failures.append(failure)
    return {
        "done": kinds.total(),
        "kinds": dict(kinds),
        "slowest_seconds": round(slowest, 3),
        "failures": failures,
    }


def fuzz_programs(count: int, seed: int, seconds: float, tier: str | None = None) -> dict:
    """Run batches on two workers. After each, check that the host is unchanged and that a good program passes."""
    rng = random.Random(seed)
    os.environ["DELTA_TRL_CANARY"] = CANARY
    verdicts = collections.Counter()
    failures = []
    slowest = 0.0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        host = Host(Path(directory))
        reward = CodeReward(timeout=PROGRAM_SECONDS, memory_mb=256, workers=PROGRAMS_AT_ONCE, tier=tier)
        try:
            while verdicts.total() < count and time.monotonic() - started < seconds:
                size = min(PROGRAMS_IN_A_BATCH, count - verdicts.total())
                batch = [breed(ATTACKS, LASTING, rng) for _ in range(size)]
                with ThreadPoolExecutor(PROGRAMS_AT_ONCE) as threads:
                    graded = list(threads.map(partial(grade, reward, host), batch))
                for (name, program, tests), (score, verdict, took) in zip(batch, graded, strict=True):
                    kind, *_ = re.split(" at | of ", verdict)
                    verdicts[kind] += 1
                    slowest = max(slowest, took)
                    cases = len(tests.get("inputs") or tests.get("test_list") or "1")
                    if score != 0.0 or took > PROGRAM_SECONDS * cases + GRACE_SECONDS:
                        failure = {"name": name, "program": program, "tests": tests}
                        failures.append({**failure, "verdict": verdict, "seconds": round(took, 3)})
                names = [name for name, _, _ in batch]
                if host.state() != host.before:
                    failures.append({"name": "the host was changed", "state": str(host.state()), "by": names})
                    break
                if reward(*GOOD) != [1.0]:
                    failures.append({"name": "a good program fails", "after": names})
        finally:
            reward.sandbox.close()
            host.close()
            del os.environ["DELTA_TRL_CANARY"]
    return {
        "done": verdicts.total(),
        "tier": reward.sandbox.tier,
        "verdicts": dict(verdicts),
        "slowest_seconds": round(slowest, 3),
        "failures": failures,
    }


def grade(reward: CodeReward, host: Host, attack: Attack) -> tuple[float | None, str, float]:
    """Score, verdict and seconds of a program, in which the host's secrets and addresses are filled in."""
    _, program, tests = attack
    completion = f"```python\n{host.fill_in(program)}\n```"
    filled = json.loads(host.fill_in(json.dumps(tests)))
    columns = {}
    began = time.monotonic()
    (score,) = reward([completion], [filled], log_extra=columns.__setitem__)
    return score, columns["code_verdict"][0], time.monotonic() - began


FUZZERS = {"answers": fuzz_answers, "programs": fuzz_programs}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--programs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first part")
    parser.add_argument("--seconds", type=float, default=3600, help="at most, for each of the two")
    parser.add_argument("--tier", choices=("A", "B"), help="of the sandbox; by default the best")
    parser.add_argument("--failures", type=Path, default=Path("fuzz_failures.jsonl"))
    options = parser.parse_args(arguments)
    failed = 0
    missing = 0
    for kind, fuzz in FUZZERS.items():
        count = getattr(options, kind)
        deadline = time.monotonic() + options.seconds
        missing += count
        for number, start in enumerate(range(0, count, PARTS[kind])):
            seed = options.seed + number
            size = min(PARTS[kind], count - start)
            left = max(0.0, deadline - time.monotonic())
            report = fuzz(size, seed, left, options.tier)
            failures = report.pop("failures")
            print(json.dumps({"kind": kind, "seed": seed, "asked": size, **report}), flush=True)
            with options.failures.open("a") as file:
                file.writelines(json.dumps(failure) + "\n" for failure in failures)
            failed += len(failures)
            missing -= report["done"]
    place = f", in {options.failures}" if failed else ""
    print(f"{failed} failures{place}")
    if missing:
        print(f"{missing} were not done: --seconds {options.seconds:g} were over, or the host was changed.")
    return int(bool(failed or missing))


if __name__ == "__main__":
    raise SystemExit(main())
