"""How often graders of mathematics err on the labelled answers of tests/corpus/answers.

    python -m scripts.benchmarks.graders --output scripts/benchmarks/results/graders.json

The rows are ours, and `math_reward` was mended on them; the other graders never saw them. These get their golds in a
box: without one, TRL's `accuracy_reward` cannot read a third of them.
"""

import argparse
import json
import signal
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from math_verify import parse, verify
from tqdm import tqdm
from trl.rewards import accuracy_reward

from delta_trl.rewards import math_reward
from tests.corpus.answers import labelled_answers


SECONDS = 30  # for one answer; a grader that takes longer gives no score


def boxed(gold: str) -> str:
    return f"$\\boxed{{{gold}}}$"


def of_math_reward(completion: str, gold: str, prompt: str) -> float | None:
    return math_reward([completion], [gold], prompts=[prompt])[0]


def of_math_verify(completion: str, gold: str, prompt: str) -> float:
    return float(verify(parse(boxed(gold)), parse(completion)))


def of_trl(completion: str, gold: str, prompt: str) -> float | None:
    return accuracy_reward([[{"role": "assistant", "content": completion}]], [boxed(gold)])[0]


GRADERS = {
    "math_reward": of_math_reward,
    "math-verify": of_math_verify,
    "accuracy_reward": of_trl,
}


def score(grader: Callable, case: dict) -> float | None:
    """The score of an answer; `None` without one, also if the grader raises an error or takes too long."""

    def stop(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)  # math-verify's own timeouts set theirs anew
    signal.alarm(SECONDS)
    try:
        return grader(case["completion"], case["gold"], case["prompt"])
    except Exception:  # whatever a parser raises
        return None
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    # others take neither messages nor golds that are no text; a gold that nobody can use has no right score
    cases = []
    for case in labelled_answers():
        are_texts = isinstance(case["gold"], str) and isinstance(case["completion"], str)
        if are_texts and case["label"] is not None:
            cases.append(case)
    counts = {}
    for name, grader in GRADERS.items():
        found = Counter()
        for case in tqdm(cases, desc=name):
            given = score(grader, case)
            if given is None:
                found["without a score"] += 1
            elif given > case["label"]:
                found["wrong, scored 1"] += 1
            elif given < case["label"]:
                found["right, scored 0"] += 1
        counts[name] = found
    versions = {name: version(name) for name in ("math-verify", "trl", "latex2sympy2_extended", "sympy")}
    result = {"versions": versions, "answers": len(cases), "graders": counts}
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
