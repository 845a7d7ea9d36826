"""
How stable are DelTA's coefficients? No training: coefficients of sampled rollout batches on the tasks of
scripts.studies.tasks, compared (Spearman, α before its range is applied) with those that the same tokens get when

- flips: 5, 10 or 20 % of the rewards are wrong;
- sparse: the pass rate of the other prompts in the batch is 2 %;
- batch size: the batch has 2 to 64 prompts, with other companions each time;
- boilerplate: the same, as the number of template words per line of the arithmetic task grows.

For each proxy of a token's gradient and for the exact one, on each task's start model and after training with DAPO.

    python -m scripts.studies.stability            # results/stability.*, docs/stability.md; ten minutes
    python -m scripts.studies.stability --report   # tables and picture again, from results/stability.jsonl
"""

import argparse
import json
import math
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import torch
from scipy.stats import rankdata, spearmanr
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from .pages import put_tables
from .plans import CREDIT
from .runs import Run
from .start_models import FOLDER
from .study import RESULTS, Runner
from .tasks import TASKS, Task, addition, make_problems
from .tasks.models import make_task_model
from .token_gradients import group_advantages, interval, raw_alphas, sample_batch, token_gradients


matplotlib.use("Agg")
import matplotlib.pyplot as plt


ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "outputs" / "stability"
OUTPUT, PAGE = RESULTS / "stability", Path(__file__).parent / "docs" / "stability.md"
GRADIENTS = ("output_row", "topk_hidden", "lm_head", "full")
FLIPS = (0.05, 0.1, 0.2)
SIZES = (2, 4, 8, 16, 32, 64)  # prompts of a rollout batch
SPARSE_PASS_RATE = 0.02
WORDS = (0, 6, 12, 24)  # template words per line
PROMPTS, GENERATIONS = 160, 8  # sampled for each repeat
OPTIONS = SimpleNamespace(generations=GENERATIONS, top_k=5, micro_batch=64)


class Pool:
    """Sampled completions of many prompts with their rewards, and the coefficients of batches made from them."""

    def __init__(self, model, tokenizer, task: Task, prompts: int, seed: int):
        set_seed(seed)
        self.model = model
        problems, _ = make_problems(task)
        rows = [problems[i] for i in torch.randperm(len(problems))[:prompts].tolist()]
        options = SimpleNamespace(**vars(OPTIONS), max_new_tokens=task.max_completion_length)
        self.batch = sample_batch(model, tokenizer, rows, options, task.reward)
        self.rewards = self.batch["rewards"]  # (prompts, GENERATIONS)

    def having(self, *successes: int) -> list[int]:
        """The prompts with one of these numbers of right completions, in random order."""
        counts = self.rewards.sum(dim=1).int()
        found = torch.isin(counts, torch.tensor(successes)).nonzero().flatten()
        return found[torch.randperm(len(found))].tolist()

    def coefficients(self, prompts: list[int], rewards: list[torch.Tensor] | None = None) -> list[dict]:
        """
        α of a batch of some prompts, for the true rewards or for each of several others (prompts, GENERATIONS).

        Returns a dict for each rewards tensor. It has a tensor (prompts, GENERATIONS, T) for each token gradient, and
        under `"sign"` the sign of the advantage, with NaN where there is no token or no contrast.
        """
        rows = (torch.tensor(prompts)[:, None] * GENERATIONS + torch.arange(GENERATIONS)).flatten()
        results = []
        for given in rewards if rewards is not None else [self.rewards[prompts]]:
            advantages = group_advantages(given)  # (rows,)
            used = advantages != 0  # tokens without contrast do not affect the others' coefficients
            part = {name: self.batch[name][rows[used]] for name in ("ids", "attention", "valid")}
            of_tokens = advantages[used][:, None].expand_as(part["valid"])[part["valid"]]
            gradients, _, _ = token_gradients(self.model, part, OPTIONS)
            result = {"sign": of_tokens.sign()}
            result |= {name: raw_alphas(gradients[name](), of_tokens) for name in GRADIENTS}
            results.append({name: self._spread(value, used, part["valid"]) for name, value in result.items()})
        return results

    def _spread(self, values: torch.Tensor, used: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        whole = torch.full((len(used), valid.size(1)), math.nan)
        whole[used] = torch.full(valid.shape, math.nan).masked_scatter(valid, values.float())
        return whole.view(-1, GENERATIONS, valid.size(1))


def agreement(one: dict, other: dict) -> dict[str, dict[str, float]]:
    """
    Spearman correlations of the coefficients of the tokens that have contrast in both: over all of them, and within
    the sides, the mean over those that won in both and those that lost in both.
    """
    both = one["sign"].isfinite() & other["sign"].isfinite()
    sides = [both & (one["sign"] == sign) & (other["sign"] == sign) for sign in (1, -1)]
    result = {}
    for name in GRADIENTS:
        within = [rank_correlation(one[name][side], other[name][side]) for side in sides]
        within = [x for x in within if not math.isnan(x)]
        result[name] = {
            "all": rank_correlation(one[name][both], other[name][both]),
            "within": sum(within) / len(within) if within else math.nan,
        }
    return result


def rank_correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    if len(a) < 3 or a.unique().numel() == 1 or b.unique().numel() == 1:
        return math.nan
    return float(spearmanr(a.numpy(), b.numpy()).statistic)


def flipped(rewards: torch.Tensor, share: float) -> torch.Tensor:
    """The rewards with a share of them, chosen at random, flipped."""
    flat = rewards.flatten().clone()
    chosen = torch.randperm(len(flat))[: round(share * len(flat))]
    flat[chosen] = 1 - flat[chosen]
    return flat.view_as(rewards)


def first(result: dict) -> dict:
    """The part of a batch's coefficients that belongs to its first prompt."""
    return {name: value[:1] for name, value in result.items()}


def flips(pool: Pool, prompts: int = 16, draws: int = 1) -> list[dict]:
    """Agreement of the coefficients under flipped rewards with those of the true rewards."""
    chosen = torch.randperm(len(pool.rewards))[:prompts].tolist()
    true = pool.rewards[chosen]
    levels = [share for share in FLIPS for _ in range(draws)]
    clean, *noisy = pool.coefficients(chosen, [true, *(flipped(true, share) for share in levels)])
    return [
        {"experiment": "flips", "level": share, "agreement": agreement(clean, one)}
        for share, one in zip(levels, noisy, strict=True)
    ]


def batch_size(pool: Pool, sizes=SIZES) -> list[dict]:
    """Coefficients of one prompt's tokens in two batches that share nothing else."""
    target = pool.having(*range(2, GENERATIONS - 1))[0]
    companions = [i for i in torch.randperm(len(pool.rewards)).tolist() if i != target]
    results = []
    for size in sizes:
        batches = [companions[: size - 1], companions[size - 1 : 2 * (size - 1)]]
        one, other = (first(pool.coefficients([target, *batch])[0]) for batch in batches)
        results.append({"experiment": "batch size", "level": size, "agreement": agreement(one, other)})
    return results


def sparse(pool: Pool, prompts: int = 64) -> list[dict]:
    """
    Coefficients of one prompt's tokens in two batches of 64 prompts that share nothing else, as in `batch_size`, but
    only 2 % of the 512 completions are right: ten prompts have one right completion each. They are compared with each
    other, and one of them with a batch whose other prompts have the natural pass rate.
    """
    winners = round(SPARSE_PASS_RATE * prompts * GENERATIONS)
    available = pool.having(1)
    if len(available) < 2 * winners - 1:
        return []  # as for trained models, which have too few such prompts
    target, *others = available
    # prompts without a right completion have no contrast and can be left out
    batches = [others[: winners - 1], others[winners - 1 : 2 * (winners - 1)]]
    used = {target, *batches[0], *batches[1]}
    natural = [i for i in torch.randperm(len(pool.rewards)).tolist() if i not in used][: prompts - 1]
    one, other, dense = (first(pool.coefficients([target, *batch])[0]) for batch in (*batches, natural))
    return [
        {"experiment": "sparse", "level": "2 %, other companions", "agreement": agreement(one, other)},
        {"experiment": "sparse", "level": "2 %, against natural pass rate", "agreement": agreement(one, dense)},
    ]


def boilerplate(pool: Pool, words: int, tokenizer, prompts: int = 16) -> list[dict]:
    """10 % flips, other companions, agreement with the exact gradient, and the mean rank of tokens but digits."""
    chosen = torch.randperm(len(pool.rewards))[:prompts].tolist()
    true = pool.rewards[chosen]
    clean, noisy = pool.coefficients(chosen, [true, flipped(true, 0.1)])
    exact = dict.fromkeys(GRADIENTS, clean["full"]) | {"sign": clean["sign"]}
    (companions,) = batch_size(pool, [prompts])

    rows = (torch.tensor(chosen)[:, None] * GENERATIONS + torch.arange(GENERATIONS)).flatten()
    valid = pool.batch["valid"][rows]
    digits = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))
    other = ~torch.isin(pool.batch["ids"][rows, -valid.size(1) :], digits) & valid
    share = other.sum().item() / valid.sum().item()
    ranks = {name: {"within": mean_rank(clean, name, other.view_as(clean["sign"]))} for name in GRADIENTS}
    measured = {
        "10 % flips": agreement(clean, noisy),
        "other companions": companions["agreement"],
        "against the exact gradient": agreement(clean, exact),
        "mean rank of boilerplate": ranks,
    }
    return [
        {"experiment": f"boilerplate: {name}", "level": words, "share": share, "agreement": value}
        for name, value in measured.items()
    ]


def mean_rank(result: dict, name: str, where: torch.Tensor) -> float:
    """Mean rank of some tokens' coefficients among those of their side, from 0 to 1; 0.5 is no distinction."""
    ranks = []
    for sign in (1, -1):
        side = result["sign"] == sign
        if (side & where).any():
            values = result[name][side]
            ranks.append((rankdata(values.numpy())[where[side].numpy()].mean() - 1) / max(len(values) - 1, 1))
    return float(sum(ranks) / len(ranks)) if ranks else math.nan


def load(folder: Path) -> tuple:
    return (
        AutoModelForCausalLM.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder, padding_side="left"),
    )


def trained(task: Task, learning_rate: float = 2.5e-4) -> Path:
    """The task's model after one run of the study with DAPO."""
    folder = CACHE / f"{task.name}-trained"
    if not folder.is_dir():
        trainer = Runner().train(Run("study", task.name, "dapo", learning_rate, 0))
        trainer.save_model(folder)
    return folder


def measure(repeats: int, seed: int) -> list[dict]:
    """One entry for each experiment, level, model and repeat."""
    results = []
    work = [(TASKS[name], moment) for name in CREDIT.tasks for moment in ("start", "trained")]
    for task, moment in work:
        model, tokenizer = load(FOLDER / task.name if moment == "start" else trained(task))
        for repeat in tqdm(range(repeats), desc=f"{task.name}, {moment}"):
            pool = Pool(model, tokenizer, task, prompts=PROMPTS, seed=seed + repeat)
            where = {"task": task.name, "model": moment, "repeat": repeat, "pass_rate": pool.rewards.mean().item()}
            results += [{**where, **entry} for entry in [*flips(pool), *batch_size(pool), *sparse(pool)]]
    for words in WORDS:
        task = TASKS["arithmetic"] if words == 12 else addition(f"arithmetic-{words}-words", words_per_line=words)
        folder = FOLDER / task.name if task.name in TASKS else CACHE / task.name
        if not folder.is_dir():
            make_task_model(task, folder)
        model, tokenizer = load(folder)
        for repeat in tqdm(range(repeats), desc=task.name):
            pool = Pool(model, tokenizer, task, prompts=32, seed=seed + repeat)
            where = {"task": "arithmetic", "model": "start", "repeat": repeat, "pass_rate": pool.rewards.mean().item()}
            results += [{**where, **entry} for entry in boilerplate(pool, words, tokenizer)]
    return results


def select(results: list[dict], experiment: str, **where) -> list[dict]:
    return [r for r in results if r["experiment"] == experiment and all(r[k] == v for k, v in where.items())]


def mean_of(entries: list[dict], gradient: str, tokens: str) -> tuple[float, float]:
    """Mean and half-width over repeats, each of them with the mean over its draws."""
    by_repeat: dict[int, list[float]] = {}
    for entry in entries:
        value = entry["agreement"][gradient].get(tokens, math.nan)
        if not math.isnan(value):
            by_repeat.setdefault(entry["repeat"], []).append(value)
    return interval([sum(values) / len(values) for values in by_repeat.values()])


def tables(results: list[dict]) -> str:
    parts = []
    for experiment in dict.fromkeys(r["experiment"] for r in results):
        parts.append(f"### {experiment[0].upper()}{experiment[1:]}\n")
        with_all = "all" in select(results, experiment)[0]["agreement"][GRADIENTS[0]]
        titles = [f"{g}, {tokens}" for g in GRADIENTS for tokens in (("all", "within") if with_all else ("within",))]
        parts.append("| task | model | level | " + " | ".join(titles) + " |\n" + "|---" * (3 + len(titles)) + "|")
        keys = dict.fromkeys((r["task"], r["model"], r["level"]) for r in select(results, experiment))
        for task, model, level in sorted(keys, key=lambda key: list(keys).index((*key[:2], key[2]))):
            entries = select(results, experiment, task=task, model=model, level=level)
            label = f"{level:.0%}" if isinstance(level, float) else str(level)
            if "share" in entries[0]:
                label = f"{interval([e['share'] for e in entries])[0]:.0%} boilerplate"
            cells = ["{:.2f} ± {:.2f}".format(*mean_of(entries, *title.split(", "))) for title in titles]
            parts.append(f"| {task} | {model} | {label} | " + " | ".join(cells) + " |")
        parts.append("")
    return "\n".join(parts)


def picture(results: list[dict], path: Path) -> None:
    """Within-side correlations; a row of panels for each experiment."""
    columns = [(task, model) for task in CREDIT.tasks for model in ("start", "trained")]
    panels = {"flips": "rewards flipped", "batch size": "prompts"}
    figure, axes = plt.subplots(3, 4, figsize=(14, 9.5), layout="constrained")
    for line, (experiment, label) in zip(axes[:2], panels.items(), strict=True):
        for axis, (task, model) in zip(line, columns, strict=True):
            for shift, gradient in enumerate(GRADIENTS):
                found = select(results, experiment, task=task, model=model)
                levels = sorted({r["level"] for r in found})
                points = [mean_of([r for r in found if r["level"] == x], gradient, "within") for x in levels]
                at = [math.log2(x) + 0.07 * (shift - 1.5) for x in levels]
                values, halves = zip(*points, strict=True)
                axis.errorbar(at, values, halves, fmt="os^D"[shift] + "-", capsize=2, markersize=4, label=gradient)
            names = [f"{x:.0%}" if x < 1 else str(x) for x in levels]
            axis.set(title=f"{experiment}: {task}, {model}", xlabel=label, ylim=(-0.3, 1.05))
            axis.set_xticks([math.log2(x) for x in levels], names)
            axis.axhline(0, color="grey", linewidth=0.8)
    names = [name for name in dict.fromkeys(r["experiment"] for r in results) if name.startswith("boilerplate")]
    for axis, experiment in zip(axes[2], names, strict=True):
        found = select(results, experiment)
        levels = sorted({r["level"] for r in found})
        shares = [interval([r["share"] for r in found if r["level"] == x])[0] for x in levels]
        for shift, gradient in enumerate(GRADIENTS):
            points = [mean_of([r for r in found if r["level"] == x], gradient, "within") for x in levels]
            values, halves = zip(*points, strict=True)
            at = [share + 0.004 * (shift - 1.5) for share in shares]
            axis.errorbar(at, values, halves, fmt="os^D"[shift] + "-", capsize=2, markersize=4)
        axis.set(title=experiment, xlabel="share of tokens other than digits", ylim=(-0.3, 1.05))
        axis.axhline(0, color="grey", linewidth=0.8)
    axes[0][0].legend(frameon=False)
    for line in axes:
        line[0].set_ylabel("Spearman within sides")
    axes[2][names.index("boilerplate: mean rank of boilerplate")].set_ylabel("mean rank")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", action="store_true", help="do not measure again")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="stem of the files")
    parser.add_argument("--page", type=Path, help="for the tables: docs/stability.md, or beside another --output")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = args.output.with_suffix(".jsonl")
    if not args.report:
        results = measure(args.repeats, args.seed)
        rows.write_text("".join(json.dumps(r) + "\n" for r in results))
    results = [json.loads(line) for line in rows.read_text().splitlines()]
    picture(results, args.output.with_suffix(".png"))
    page = args.page or (PAGE if args.output == OUTPUT else args.output.with_suffix(".md"))
    put_tables(page, tables(results))


if __name__ == "__main__":
    main()
