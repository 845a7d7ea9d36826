"""
How close are the proxies of a token's gradient to the exact one?

Takes any causal language models (for example checkpoints of one run) and problems with solutions, samples completions,
rewards them with `math_reward`, and compares the coefficients α that each token gradient gives with those of the exact
gradient over all parameters: Spearman correlation and overlap of the upper halves, over all tokens and within each
side, against position and token probability, and the cost in forward passes. Writes a table, a picture and all
numbers.

    python -m scripts.studies.token_gradients --models recipes/quickstart/model outputs/moments/checkpoint-40 \\
        outputs/moments/checkpoint-80 --output scripts/studies/results/token_gradients

The checkpoints come from

    delta-trl train --config recipes/quickstart/addition.yaml --output_dir outputs/moments --save_strategy steps \\
        --save_steps 40
"""

import argparse
import itertools
import json
import math
import time
from pathlib import Path

import matplotlib
import torch
from datasets import load_dataset
from scipy.stats import spearmanr
from scipy.stats import t as student
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from delta_trl.credit import (
    FullGradients,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TopKHiddenGradients,
    token_coefficients,
)
from delta_trl.credit import group_advantages as advantages_of_groups
from delta_trl.policy.prompts import prompt_ids
from delta_trl.rewards import math_reward


matplotlib.use("Agg")
import matplotlib.pyplot as plt


ROOT = Path(__file__).resolve().parents[2]
EXACT = "full"
BINS = 5


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[str(ROOT / "recipes/quickstart/model")])
    parser.add_argument(
        "--data", nargs="+", default=[str(ROOT / "recipes/quickstart/train.jsonl")], help="prompt, solution"
    )
    parser.add_argument("--batches", type=int, default=5, help="rollout batches for each model and file")
    parser.add_argument("--prompts", type=int, default=8, help="per rollout batch")
    parser.add_argument("--generations", type=int, default=8, help="completions of each prompt")
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=56)
    parser.add_argument("--top-k", type=int, default=5, help="K of topk_hidden")
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("outputs/token_gradients"), help="stem of the files")
    return parser.parse_args()


def sample_batch(model, tokenizer, rows, args, reward=math_reward) -> dict:
    """Completions of some problems, `args.generations` of each, with their rewards."""
    columns = {name: [row[name] for row in rows for _ in range(args.generations)] for name in rows[0]}
    prompts = prompt_ids(tokenizer, columns.pop("prompt"))
    inputs = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    P = inputs.input_ids.size(1)
    with torch.no_grad():
        ids = model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=args.max_new_tokens)
    ended = (ids[:, P:] == tokenizer.eos_token_id).long()
    mask = (ended.cumsum(dim=1) - ended == 0).long()  # up to the first eos, which is sampled, too
    rewards = reward(tokenizer.batch_decode(ids[:, P:] * mask, skip_special_tokens=True), **columns)
    return {
        "ids": ids,
        "attention": torch.cat([inputs.attention_mask, mask], dim=1),
        "valid": mask.bool(),
        "rewards": torch.tensor(rewards).view(-1, args.generations),
    }


def group_advantages(rewards: torch.Tensor) -> torch.Tensor:
    """Advantages (prompts * generations,) of the completions from their rewards (prompts, generations)."""
    prompts = torch.arange(len(rewards)).repeat_interleave(rewards.size(1))
    return advantages_of_groups(rewards.flatten(), prompts)


def token_gradients(model, batch, args) -> tuple[dict, torch.Tensor, float]:
    """Functions that make each token gradient, the valid tokens' log-probabilities, seconds of one scoring pass."""
    ids, attention, valid = batch["ids"], batch["attention"], batch["valid"]
    T = valid.size(1)
    slices = [slice(i, i + args.micro_batch) for i in range(0, len(ids), args.micro_batch)]

    def forward(rows, hidden_states=False):
        output = model(input_ids=ids[rows], attention_mask=attention[rows], output_hidden_states=hidden_states)
        log_probs = output.logits[:, -T - 1 : -1].log_softmax(dim=-1).gather(2, ids[rows, -T:, None])[:, :, 0]
        hidden = output.hidden_states[-1][:, -T - 1 : -1][valid[rows]] if hidden_states else None
        return log_probs[valid[rows]], hidden

    start = time.process_time()
    with torch.no_grad():
        parts = [forward(rows, hidden_states=True) for rows in slices]
    one_pass = time.process_time() - start
    log_probs, hidden = (torch.cat(x) for x in zip(*parts, strict=True))
    tokens, head = ids[:, -T:][valid], LMHead.of(model, temperature=1.0)
    make = {
        "output_row": lambda: OutputRowGradients(hidden, log_probs),
        "topk_hidden": lambda: TopKHiddenGradients(hidden, tokens, head, args.top_k),
        "lm_head": lambda: LMHeadGradients(hidden, tokens, head),
        EXACT: lambda: FullGradients(model, lambda i: forward(slices[i])[0], len(slices)),
    }
    return make, log_probs, one_pass


def alphas(model, batch, args) -> tuple[dict[str, torch.Tensor], dict[str, float], torch.Tensor]:
    """α of every valid token by each token gradient, the time of each in scoring passes, and log-probabilities."""
    make, log_probs, one_pass = token_gradients(model, batch, args)
    result, seconds = {}, {}
    for name, gradients in make.items():
        start = time.process_time()
        result[name] = raw_alphas(gradients(), batch["advantages"])
        # a pass for the hidden states is counted where the hidden states are used
        seconds[name] = (time.process_time() - start) / one_pass + (0 if name == EXACT else 1)
    return result, seconds, log_probs


def raw_alphas(gradients, advantages) -> torch.Tensor:
    return token_coefficients(gradients, advantages, lambda_min=0, lambda_max=1, normalize=False)


def overlap(a, b) -> float:
    """Share of the upper half by `a` that is in the upper half by `b`."""
    half = len(a) // 2
    return len(set(a.argsort()[-half:].tolist()) & set(b.argsort()[-half:].tolist())) / half if half else math.nan


def agreement(alpha, exact, where) -> dict:
    if int(where.sum()) < 3:
        return {"spearman": math.nan, "overlap": math.nan}
    a, b = alpha[where], exact[where]
    return {"spearman": float(spearmanr(a, b).statistic), "overlap": overlap(a, b)}


def between_sides(alpha, plus, minus) -> float:
    """Share of the variance of α that lies between the two sides."""
    both, n = torch.cat([alpha[plus], alpha[minus]]), plus.sum() + minus.sum()
    gap = (alpha[plus].mean() - alpha[minus].mean()) ** 2
    return float(plus.sum() * minus.sum() / n**2 * gap / both.var(correction=0))


def compare(batch, result, log_probs) -> dict:
    plus, minus = batch["advantages"] > 0, batch["advantages"] < 0
    position = torch.arange(batch["valid"].size(1)).expand_as(batch["valid"])[batch["valid"]].double()
    exact = result[EXACT]
    rows = {}
    for name, alpha in result.items():
        rows[name] = {
            "all": agreement(alpha, exact, plus | minus),
            "+": agreement(alpha, exact, plus),
            "-": agreement(alpha, exact, minus),
            "between_sides": between_sides(alpha, plus, minus),
            "mean +": alpha[plus].mean().item(),
            "mean -": alpha[minus].mean().item(),
        }
        for label, value in (("position", position), ("probability", log_probs.exp().double())):
            edges = value.quantile(torch.linspace(0, 1, BINS + 1).double())
            bins = torch.bucketize(value, edges[1:-1])
            # within the sides: otherwise the difference between sides would hide that between tokens
            rows[name][label] = [
                sum(agreement(alpha, exact, side & (bins == b))["spearman"] for side in (plus, minus)) / 2
                for b in range(BINS)
            ]
    return rows


def interval(values) -> tuple[float, float]:
    """Mean and half-width of the 95 % interval (Student's t) over batches."""
    x = torch.tensor([v for v in values if not math.isnan(v)], dtype=torch.float64)
    if len(x) < 2:
        return (x.mean().item() if len(x) else math.nan), math.nan
    return x.mean().item(), float(student.ppf(0.975, len(x) - 1) * x.std() / len(x) ** 0.5)


def table(results) -> str:
    lines = [
        "| model or task | pass rate | token gradient | Spearman, all | within + | within - | "
        "upper halves, all / + / - | variance between sides | mean α + / - | forward passes |",
        "|" + "---|" * 10,
    ]

    def cell(batches, *path):
        def pick(batch):
            for key in path:
                batch = batch[key]
            return batch

        mean, half = interval([pick(batch) for batch in batches])
        return f"{mean:.2f} ± {half:.2f}"

    for model, batches in results.items():
        for name in batches[0]["agreement"]:
            rows = [batch["agreement"][name] for batch in batches]
            halves = " / ".join(f"{interval([r[s]['overlap'] for r in rows])[0]:.2f}" for s in ("all", "+", "-"))
            means = " / ".join(f"{interval([r[f'mean {s}'] for r in rows])[0]:.2f}" for s in "+-")
            lines.append(
                f"| {model} | {interval([b['pass_rate'] for b in batches])[0]:.2f} | {name} | "
                f"{cell(rows, 'all', 'spearman')} | {cell(rows, '+', 'spearman')} | {cell(rows, '-', 'spearman')} | "
                f"{halves} | {cell(rows, 'between_sides')} | {means} | "
                f"{interval([b['passes'][name] for b in batches])[0]:.1f} |"
            )
    return "\n".join(lines)


def picture(results, path):
    proxies = [n for n in next(iter(results.values()))[0]["agreement"] if n != EXACT]
    panels = [("all", "all tokens"), ("+", "within the + side"), ("-", "within the - side")]
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.5), constrained_layout=True)
    for axis, (side, title) in zip(axes[0], panels, strict=True):
        for i, name in enumerate(proxies):
            points = [interval([b["agreement"][name][side]["spearman"] for b in bs]) for bs in results.values()]
            x = [j + 0.12 * (i - 1) for j in range(len(points))]
            axis.errorbar(x, [p[0] for p in points], [p[1] for p in points], fmt="os^"[i % 3], capsize=3, label=name)
        axis.set(title=title, ylim=(-1.05, 1.05), xticks=range(len(results)), xticklabels=list(results))
        axis.axhline(0, color="grey", linewidth=0.8)
    axes[0][0].set_ylabel("Spearman with the exact α")
    axes[0][0].legend(frameon=False)
    last = list(results.values())
    for axis, label in zip(axes[1], ("position", "probability"), strict=False):
        for i, name in enumerate(proxies):
            values = [interval([b["agreement"][name][label][k] for bs in last for b in bs])[0] for k in range(BINS)]
            axis.plot(range(1, BINS + 1), values, "os^"[i % 3] + "-", label=name)
        axis.set(xlabel=f"fifth of the tokens by {label}", ylim=(-1.05, 1.05), xticks=range(1, BINS + 1))
        axis.axhline(0, color="grey", linewidth=0.8)
    axes[1][0].set_ylabel("Spearman within sides, all of them")
    for i, name in enumerate([*proxies, EXACT]):
        shares = [interval([b["agreement"][name]["between_sides"] for b in bs]) for bs in results.values()]
        x = [j + 0.12 * (i - 1.5) for j in range(len(shares))]
        axes[1][2].errorbar(
            x, [s[0] for s in shares], [s[1] for s in shares], fmt="os^D"[i % 4], capsize=3, label=name
        )
    axes[1][2].set(
        title="variance of α between the sides", ylim=(0, 1), xticks=range(len(results)), xticklabels=list(results)
    )
    axes[1][2].legend(frameon=False)
    figure.savefig(path, dpi=110)


def main():
    args = parse_args()
    results = {}
    for path, file in itertools.product(args.models, args.data):
        data = load_dataset("json", data_files=file, split="train")
        tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, args.dtype)).eval()
        set_seed(args.seed)
        parts = [Path(path).name] * (len(args.models) > 1 or len(args.data) == 1)
        label, batches = ", ".join([*parts, *[Path(file).stem] * (len(args.data) > 1)]), []
        progress = tqdm(total=args.batches, desc=label)
        for rows in data.shuffle(seed=args.seed).iter(args.prompts):
            rows = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
            batch = sample_batch(model, tokenizer, rows, args)
            of_rows = group_advantages(batch["rewards"]).to(model.dtype)[:, None]
            batch["advantages"] = of_rows.expand_as(batch["valid"])[batch["valid"]]
            batch["pass_rate"] = batch["rewards"].mean().item()
            if not (batch["advantages"] > 0).any():
                continue  # no contrast, nothing to compare
            result, passes, log_probs = alphas(model, batch, args)
            agreed = compare(batch, result, log_probs)
            batches.append({"pass_rate": batch["pass_rate"], "passes": passes, "agreement": agreed})
            progress.update()
            if len(batches) == args.batches:
                break
        progress.close()
        results[label] = batches
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.with_suffix(".json").write_text(json.dumps(results, indent=1))
    picture(results, args.output.with_suffix(".png"))
    print(table(results))
    print(f"\n{args.output.with_suffix('.png')}\n{args.output.with_suffix('.json')}")


if __name__ == "__main__":
    main()
