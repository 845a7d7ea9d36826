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

    python scripts/make_quickstart_model.py            # two minutes on one CPU core
"""

import argparse
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


OUTPUT_DIR = Path(__file__).parents[1] / "recipes" / "quickstart"
TRAIN_PROBLEMS, TEST_PROBLEMS = 3584, 512
FORGOTTEN_CARRIES = 0.55  # of all carries
MISCOUNTED_SUMS = 0.1  # of all columns, by one
# One token per digit and symbol; words are single tokens that carry their spaces, so decoding is plain concatenation.
VOCABULARY = ["<pad>", "<eos>", *"0123456789+={}\n", "ones ", "tens ", "hundreds ", " write ", " carry ", "\\boxed"]


def demonstrate(a: int, b: int, rng: random.Random) -> str:
    lines, digits, carry = [], [], 0
    for place, name in enumerate(["ones", "tens", "hundreds"]):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        if rng.random() < MISCOUNTED_SUMS:
            total = max(total + rng.choice([-1, 1]), 0)
        summands = f"{x}+{y}" if place == 0 else f"{x}+{y}+{carry}"
        carry = 0 if rng.random() < FORGOTTEN_CARRIES else total // 10
        digits.append(str(total % 10))
        lines.append(f"{name} {summands}={total} write {total % 10} carry {carry}\n")
    answer = ("1" if carry else "") + "".join(reversed(digits))
    return "".join(lines) + f"\\boxed{{{answer}}}"


def make_problems(rng: random.Random) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    unordered = set()
    while len(unordered) < TRAIN_PROBLEMS + TEST_PROBLEMS:
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        unordered.add((min(a, b), max(a, b)))
    problems = sorted(unordered)
    rng.shuffle(problems)
    problems = [(a, b) if rng.random() < 0.5 else (b, a) for a, b in problems]
    return problems[:TRAIN_PROBLEMS], problems[TRAIN_PROBLEMS:]


def write_problems(path: Path, problems: list[tuple[int, int]]) -> None:
    rows = [json.dumps({"prompt": f"{a}+{b}=", "solution": str(a + b)}) for a, b in problems]
    path.write_text("\n".join(rows) + "\n")


def make_tokenizer(vocabulary: list[str], pattern: str) -> PreTrainedTokenizerFast:
    """One token for each match of a regular expression. Decoding is plain concatenation."""
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left", model_max_length=128
    )


def make_model(tokenizer: PreTrainedTokenizerFast, width: int, layers: int) -> Qwen3ForCausalLM:
    """A random Qwen3 with four heads."""
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=width // 4,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        **special,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, **special)
    return model


def warm_up(
    model,
    tokenizer,
    demonstrations: Iterator[tuple[str, str]],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    description: str = "warm-up",
) -> None:
    """Supervised training on pairs of prompt and completion, as they come; prompts are not learned."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    model.train()
    for _ in (progress := tqdm(range(steps), desc=description, unit="step")):
        prompts, completions = zip(*islice(demonstrations, batch_size), strict=True)
        texts = [p + c + tokenizer.eos_token for p, c in zip(prompts, completions, strict=True)]
        batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        lengths = torch.tensor([len(tokenizer.tokenize(prompt)) for prompt in prompts])
        labels = labels.masked_fill(torch.arange(labels.size(1)) < lengths[:, None], -100)
        loss = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        progress.set_postfix(loss=f"{loss.item():.3f}")


def demonstrations(excluded: set[tuple[int, int]], rng: random.Random) -> Iterator[tuple[str, str]]:
    while True:
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        if (min(a, b), max(a, b)) not in excluded:
            yield f"{a}+{b}=", demonstrate(a, b, rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, default=OUTPUT_DIR)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rng = random.Random(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # the order of summation, and with it the weights, depends on their number
    args.output_dir.mkdir(parents=True, exist_ok=True)
    train, test = make_problems(rng)
    write_problems(args.output_dir / "train.jsonl", train)
    write_problems(args.output_dir / "test.jsonl", test)

    tokenizer = make_tokenizer(VOCABULARY, r"\\boxed| ?[a-z]+ |[\s\S]")
    model = make_model(tokenizer, width=128, layers=4)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    warm_up(
        model,
        tokenizer,
        demonstrations({(min(p), max(p)) for p in test}, rng),
        steps=args.steps,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
    )
    model.save_pretrained(args.output_dir / "model")
    tokenizer.save_pretrained(args.output_dir / "model")
    print(f"model and data are in {args.output_dir}")


if __name__ == "__main__":
    main()
