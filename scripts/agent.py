r"""Train a tiny model that asks a calculator, with the outcome alone and with a reward for each turn; `make agent`.

    prompt        48+27+95+16=
    turn 1        48+27=      and the calculator goes on: 75\n
    turn 2        75+95=      170\n
    turn 3        170+16=     186\n
    turn 4        186<eos>

A careless teacher has taught the model to write down wrong digits now and then. The outcome is right if the answer is.
A turn is right if it adds the next number to what the calculator said last, or at the end repeats that. So a turn can
be right although the outcome is wrong.

1. The model is made and warmed up, the same one every time.
2. It is trained anew for each seed and each of `ARMS`. Accuracy is measured on problems of its own.
3. Each run gets a report. All accuracies are in `runs.jsonl`. Differences from the outcome alone
   are printed with their 95 % intervals over seeds.

    python -m scripts.agent --seeds 0 1 2 3 4
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
import yaml
from datasets import Dataset
from transformers import PrinterCallback

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import Given
from delta_trl.evaluation.seed_statistics import t_test
from delta_trl.report import write_report

from .studies.tasks.models import make_model, make_tokenizer, warm_up


ARMS = {
    "outcome": "none",
    "turns": Given("column:turn_rewards", what="rewards"),  # a turn counts those after it, too
    "own_turn": Given("column:turn_rewards", what="rewards", discount=0.0),
}
SLIPS = 0.3  # share of the teacher's turns with a wrong digit
OPTIONS = Path(__file__).with_suffix(".yaml")


def make_problem(rng: random.Random) -> dict[str, str]:
    numbers = [rng.randint(10, 99) for _ in range(4)]
    summands = "+".join(map(str, numbers))
    return {"prompt": f"{summands}=", "solution": str(sum(numbers))}


class Conversation:
    """
    A conversation with the calculator.

    Attributes:
        right_turn (`str`): What to say next.
        rewards (`list[float]`): 1 for each turn so far that was right, else 0.
        done (`bool`): Whether the last turn asked for no sum.
    """

    def __init__(self, prompt: str):
        first, *self._numbers = prompt.rstrip("=").split("+")
        self.right_turn = f"{first}+{self._numbers.pop(0)}="
        self.rewards = []
        self.done = False

    def take(self, turn: str) -> str:
        """What the calculator says to a turn."""
        self.rewards.append(float(turn == self.right_turn))
        asked = re.fullmatch(r"(\d+)\+(\d+)=", turn)
        if not asked or "+" not in self.right_turn:
            self.done = True
            return ""
        total = int(asked[1]) + int(asked[2])
        if self._numbers:
            self.right_turn = f"{total}+{self._numbers.pop(0)}="
        else:
            self.right_turn = f"{total}"
        return f"{total}\n"


def demonstrations(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Prompts and conversations of the careless teacher."""
    while True:
        prompt = make_problem(rng)["prompt"]
        conversation = Conversation(prompt)
        text = ""
        while not conversation.done:
            turn = conversation.right_turn
            if rng.random() < SLIPS:
                digits = [i for i, character in enumerate(turn) if character.isdigit()]
                place = rng.choice(digits)
                turn = turn[:place] + rng.choice("0123456789") + turn[place + 1 :]
            text += turn + conversation.take(turn)
        yield prompt, text


def make_start(folder: Path, steps: int = 800) -> None:
    """Make the model and warm it up."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer(["<pad>", "<eos>", *"0123456789+=\n"], r"[\s\S]")
    model = make_model(tokenizer)
    teacher = demonstrations(random.Random(0))
    warm_up(model, tokenizer, teacher, steps=steps, batch_size=64, learning_rate=5e-3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@torch.no_grad()
def converse(prompts: list[str], trainer: DeltaGRPOTrainer) -> dict[str, list | None]:
    """The `rollout_func`. In every round, all conversations that go on take a turn."""
    tokenizer = trainer.processing_class
    prompt_ids = tokenizer(prompts).input_ids
    ends = tokenizer.convert_tokens_to_ids(["=", "<eos>"])
    conversations = [Conversation(prompt) for prompt in prompts]
    completion_ids = [[] for _ in prompts]
    env_mask = [[] for _ in prompts]  # 1 for the model's tokens, 0 for the calculator's
    while going_on := [i for i, conversation in enumerate(conversations) if not conversation.done]:
        so_far = [prompt_ids[i] + completion_ids[i] for i in going_on]
        inputs = tokenizer.pad({"input_ids": so_far}, return_tensors="pt")
        output = trainer.model.generate(**inputs, max_new_tokens=10, eos_token_id=ends)
        turns = output[:, inputs.input_ids.size(1) :].tolist()
        for i, padded in zip(going_on, turns, strict=True):
            turn = up_to_end(padded, ends)
            answer = conversations[i].take(tokenizer.decode(turn, skip_special_tokens=True))
            answer_ids = tokenizer(answer).input_ids
            completion_ids[i] += turn
            env_mask[i] += [1] * len(turn)
            completion_ids[i] += answer_ids
            env_mask[i] += [0] * len(answer_ids)
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": completion_ids,
        "logprobs": None,
        "env_mask": env_mask,
        "turn_rewards": [conversation.rewards for conversation in conversations],
    }


def up_to_end(tokens: list[int], ends: list[int]) -> list[int]:
    """Tokens up to the first one that ends a turn."""
    for i, token in enumerate(tokens):
        if token in ends:
            return tokens[: i + 1]
    return tokens


def outcome(completions: list[str], solution: list[str], **columns) -> list[float]:
    """The reward of a conversation: 1 if its last line is the solution."""
    answers = [text.rpartition("\n")[2] for text in completions]
    return [float(answer == right) for answer, right in zip(answers, solution, strict=True)]


def train(start: Path, folder: Path, arm: str, seed: int, max_steps: int = 40) -> dict[str, str | float]:
    """The accuracies of a run, and its mean reward over all of training."""
    rng = random.Random(1)
    problems = [make_problem(rng) for _ in range(512 + 2048)]
    options = yaml.safe_load(OPTIONS.read_text())
    trainer = DeltaGRPOTrainer(
        str(start),
        outcome,
        DeltaGRPOConfig(str(folder), seed=seed, max_steps=max_steps, **options),
        train_dataset=Dataset.from_list(problems[512:]),
        eval_dataset=Dataset.from_list(problems[:512]),
        token_credit=ARMS[arm],
        rollout_func=converse,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_state()
    write_report(folder, folder / "report.html")
    history = pd.DataFrame(trainer.state.log_history)
    before, halfway, after = history["eval_reward"].dropna()
    return {
        "arm": arm,
        "seed": seed,
        "before": before,
        "halfway": halfway,
        "after": after,
        "mean_reward": float(history["reward"].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/agent"))
    args = parser.parse_args()
    start = args.output_dir / "start"
    make_start(start)
    rows = []
    for seed in args.seeds:
        for arm in ARMS:
            row = train(start, args.output_dir / f"{arm}-{seed}", arm, seed)
            print(row, flush=True)
            rows.append(row)
    runs = pd.DataFrame(rows)
    runs.to_json(args.output_dir / "runs.jsonl", orient="records", lines=True)
    by_arm = runs.pivot(index="seed", columns="arm")
    for measured in ("mean_reward", "after"):
        of_arms = by_arm[measured]
        for arm in ("turns", "own_turn"):
            mean, half, _ = t_test(of_arms[arm] - of_arms["outcome"])
            print(f"{measured}: {arm} - outcome {mean:+.3f} ± {half:.3f}")
    print(f"reports: {args.output_dir}/*/report.html")


if __name__ == "__main__":
    main()
