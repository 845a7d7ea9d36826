"""Checks per second of `math_reward` against TRL's `accuracy_reward`, on the same completions in the same run.

    python -m scripts.benchmarks.rewards [--batches 4] [--batch-size 128]

The mix: a third short completions, two thirds long reasoning of about 20,000 tokens, 5 % answers that are expensive to
check. Golds are wrapped in `\\boxed{}` for TRL, which cannot read many of them bare. TRL's own timeouts (10 s to
parse, 5 s to compare) stay on; completions that make it raise are counted and cost it nothing.
"""

import argparse
import logging
import random
import time

from trl.rewards import accuracy_reward

from delta_trl.rewards import MathReward


ANSWERS = [
    ("42", "42"),
    ("42", "43"),
    (r"\frac{3}{4}", "0.75"),
    (r"\frac{3}{4}", r"\dfrac{6}{8}"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"2\sqrt{3}", r"3\sqrt{2}"),
    ("x^2+2x+1", "(x+1)^2"),
    ("(1, 2)", "(2, 1)"),
    (r"(-\infty, 3]", r"x \le 3"),
    ("1, 2, 3", "3, 2, 1"),
    (r"\frac{\pi}{6}", r"\frac{\pi}{3}"),
    ("5040", "5041"),
    ("1234", "1,234"),
    ("Yes", "No"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\ln 8", r"3 \ln 2"),
    ("B", "(B)"),
]
PATHOLOGICAL = [
    r"10^{10^{10}}",
    r"\int_0^\infty \sin(x^x)\,dx",
    r"(10^8)!",
    r"\binom{10^9}{10^8}",
    r"\sqrt{1+" * 40 + "1" + "}" * 40,
    r"\sum_{k=1}^{10^{12}} \frac{1}{k^k}",
    r"\gcd(10^{5000},10^{5001})",
    "=".join("1" * 200),
    r"\sin(x)" * 40,
    r"\frac{1}{" + "+".join(rf"\sqrt[{k}]{{{k + 1}}}" for k in range(2, 20)) + "}",
]
SENTENCE = "Let us consider the case $n = {}$, where $\\frac{{a_{}}}{{b}} + {}$ is bounded, and simplify. "


def reasoning(rng: random.Random, tokens: int) -> str:
    """Text of about that many tokens, at four characters each, with mathematics in it."""
    numbers = (rng.randrange(1000) for _ in iter(int, 1))
    return "".join(SENTENCE.format(next(numbers), next(numbers), next(numbers)) for _ in range(tokens * 4 // 84))


def make_batch(rng: random.Random, size: int) -> tuple[list[str], list[str]]:
    completions, golds = [], []
    for _ in range(size):
        gold, answer = rng.choice(ANSWERS)
        if rng.random() < 0.05:
            answer = rng.choice(PATHOLOGICAL)
        elif answer.isdigit():  # rollouts repeat few answers, but no two batches are the same
            gold = answer = str(rng.randrange(10**6))
        text = reasoning(rng, 20_000 if rng.random() < 2 / 3 else 100)
        completions.append(f"{text}\n\nSo the answer is $\\boxed{{{answer}}}$.")
        golds.append(gold)
    return completions, golds


def rate(grade, batches) -> float:
    start = time.perf_counter()
    for completions, golds in batches:
        grade(completions, golds)
    return sum(len(completions) for completions, _ in batches) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    rng = random.Random(arguments.seed)
    batches = [make_batch(rng, arguments.batch_size) for _ in range(arguments.batches)]
    crashes = 0

    def trl(completions, golds):
        nonlocal crashes
        for completion, gold in zip(completions, golds, strict=True):
            try:
                accuracy_reward([[{"content": completion}]], [f"$\\boxed{{{gold}}}$"])
            except Exception:  # in a training run this would end it
                crashes += 1

    warm_up = make_batch(random.Random(-1), 32)
    trl(*[part[:8] for part in warm_up])
    crashes = 0
    baseline = rate(trl, batches)
    print(f"{arguments.batches} batches of {arguments.batch_size}, checks per second:")
    print(f"  TRL accuracy_reward       {baseline:7.1f}          ({crashes} raised an exception)")
    for workers in (1, 2):
        verdicts = []
        reward = MathReward(num_workers=workers)
        reward(*warm_up)

        def ours(completions, golds, reward=reward, verdicts=verdicts):
            reward(completions, golds, log_extra=lambda name, column: verdicts.extend(column * (name == "verdict")))

        speed = rate(ours, batches)
        print(f"  math_reward, {workers} worker{'s' * (workers > 1):1}    {speed:7.1f}  {speed / baseline:5.1f} x "
              f"({verdicts.count('timeout')} timeouts)")  # fmt: skip


if __name__ == "__main__":
    main()
