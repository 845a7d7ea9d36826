"""Make the quickstart's data and its tiny warmed-up model, everything in recipes/quickstart/.

The task is the addition of two three-digit numbers with the steps written out:

    345+567=  ->  ones 5+7=12 write 2 carry 1
                  tens 4+6+1=11 write 1 carry 1
                  hundreds 3+5+1=9 write 9 carry 0
                  \\boxed{912}

The warm-up is supervised, on demonstrations by a careless teacher, who forgets a carry more often than not and now and
then miscounts a column; everything after a slip follows from it. The model learns the format and the arithmetic this
way, and its teacher's habits: even decoded greedily it forgets most carries. Reinforcement learning has to find out
which habits to keep. No test problem is ever shown, in either order of the summands.

    python -m scripts.build.quickstart_model            # two minutes on one CPU core
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import torch

from ..studies.tasks import addition
from ..studies.tasks.models import make_model, make_tokenizer, warm_up


OUTPUT_DIR = Path(__file__).parents[2] / "recipes" / "quickstart"
TRAIN_PROBLEMS = 3584
TEST_PROBLEMS = 512
Pair = tuple[int, int]
TASK = addition("quickstart", digits=3, words_per_line=0, forgotten_carries=0.55)
# One token per digit and symbol; words are single tokens that carry their spaces, so decoding is plain concatenation.
VOCABULARY = ["<pad>", "<eos>", *"0123456789+={}\n", "ones ", "tens ", "hundreds ", " write ", " carry ", "\\boxed"]


def draw(rng: random.Random) -> Pair:
    a = rng.randint(100, 999)
    b = rng.randint(100, 999)
    return a, b


def in_order(pair: Pair) -> Pair:
    return min(pair), max(pair)


def make_problems(rng: random.Random) -> tuple[list[Pair], list[Pair]]:
    """Training and test problems, which have no two summands in common, in either order."""
    found = set()
    while len(found) < TRAIN_PROBLEMS + TEST_PROBLEMS:
        found.add(in_order(draw(rng)))
    problems = sorted(found)
    rng.shuffle(problems)
    problems = [(a, b) if rng.random() < 0.5 else (b, a) for a, b in problems]
    return problems[:TRAIN_PROBLEMS], problems[TRAIN_PROBLEMS:]


def prompt_of(pair: Pair) -> str:
    a, b = pair
    return f"{a}+{b}="


def write_problems(path: Path, problems: list[Pair]) -> None:
    rows = [{"prompt": prompt_of(pair), "solution": str(sum(pair))} for pair in problems]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def demonstrations(excluded: set[Pair], rng: random.Random) -> Iterator[tuple[str, str]]:
    while True:
        pair = draw(rng)
        if in_order(pair) not in excluded:
            prompt = prompt_of(pair)
            yield prompt, TASK.demonstrate({"prompt": prompt}, rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, default=OUTPUT_DIR)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()

    rng = random.Random(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the order of summation, and with it the weights, depends on their number
    args.output_dir.mkdir(parents=True, exist_ok=True)
    train, test = make_problems(rng)
    write_problems(args.output_dir / "train.jsonl", train)
    write_problems(args.output_dir / "test.jsonl", test[: TEST_PROBLEMS // 2])  # quick to evaluate

    tokenizer = make_tokenizer(VOCABULARY, r"\\boxed| ?[a-z]+ |[\s\S]")
    model = make_model(tokenizer, width=128, layers=4)
    print(f"{model.num_parameters():,} parameters")
    warm_up(
        model,
        tokenizer,
        demonstrations(set(map(in_order, test)), rng),
        steps=args.steps,
        batch_size=64,
        learning_rate=3e-3,
    )
    model.save_pretrained(args.output_dir / "model")
    tokenizer.save_pretrained(args.output_dir / "model")
    print(f"model and data are in {args.output_dir}")


if __name__ == "__main__":
    main()
