"""
Audit rules of token credit on the study's tasks at three moments of training: the start model, and after 6 and 16
rollout batches of DAPO as in scripts/studies/study.py.

    OMP_NUM_THREADS=1 python -m scripts.studies.audit            # docs/results/audit.*, the tables in docs/audit.md
    OMP_NUM_THREADS=1 python -m scripts.studies.audit --language # likewise of SmolLM2-135M-Instruct on its tasks
    python -m scripts.studies.audit --report                     # tables and picture again, from results/audit*.json

Every audit is `delta-trl audit` on one model, in outputs/audit, and resumes where it was stopped.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np

from delta_trl.audit.arguments import DEFAULT_RULES
from delta_trl.audit.statistics import ENOUGH, percentiles
from delta_trl.audit.summary import REFERENCE
from delta_trl.evaluation.store import read_samples

from .pages import put_tables
from .plans import COMMON_RATE, CREDIT
from .runs import Run
from .start_models import FOLDER
from .study import Runner
from .tasks import TASKS
from .tasks.language import MODEL as LANGUAGE_MODEL
from .tasks.language import TASKS as LANGUAGE_TASKS


matplotlib.use("Agg")
import matplotlib.pyplot as plt


ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = ROOT / "outputs" / "audit"
RESULTS = Path(__file__).parent / "results" / "audit.json"
LANGUAGE_RESULTS = RESULTS.with_name("audit_language.json")
PAGE, TABLES = ROOT / "docs" / "audit.md", ROOT / "docs" / "results" / "audit.md"
BENCHMARKS = "scripts.studies.audit_benchmarks"
AUDITED = ("arithmetic", "programs", "own_errors", "sparse")
MOMENTS = (0, 6, 16)  # rollout batches of training
RULES = [*DEFAULT_RULES, "delta:token_gradient=full", "delta:token_gradient=topk_hidden", "stare",
         "optimal_token_baseline"]  # fmt: skip
PROXIES = ("delta", "delta:token_gradient=lm_head")
PROMPTS = 192


def model_at(task: str, moment: int) -> Path:
    """The folder of a task's model after `moment` rollout batches of DAPO."""
    if moment == 0:
        return FOLDER / task
    folder = OUTPUTS / f"{task}-{moment}" / "model"
    if not folder.is_dir():
        Runner(CREDIT, {"study": moment}).train(Run("study", task, "dapo", COMMON_RATE, 0)).save_model(str(folder))
    return folder


def run_audit(model: Path, benchmark: str, folder: Path, **options) -> dict:
    """The `results.json` of `delta-trl audit`."""
    command = [sys.executable, "-m", "delta_trl.cli", "audit", "--use_cpu", "true", "--output_dir", str(folder)]
    command += ["--model_name_or_path", str(model), "--benchmarks", f"{BENCHMARKS}.{benchmark}"]
    for name, value in options.items():
        command += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    subprocess.run(command, check=True)
    return json.loads((folder / "results.json").read_text())


def audit_language(task: str) -> dict:
    options = {"reference_batches": 0, "max_completion_length": LANGUAGE_TASKS[task].max_completion_length}
    found = run_audit(LANGUAGE_MODEL, f"language_{task}", OUTPUTS / f"language-{task}", **options)
    return found["benchmarks"][f"language_{task}"]


def audit(task: str, moment: int) -> dict:
    """The results of `delta-trl audit` on a task's model, without machine-specific settings."""
    folder = OUTPUTS / f"{task}-{moment}" / "audit"
    found = run_audit(model_at(task, moment), f"study_{task}", folder, num_prompts=PROMPTS, rules=RULES)
    return {
        "task": task,
        "moment": moment,
        "versions": found["versions"],
        **found["benchmarks"][f"study_{task}"],
        "by_probability": by_probability(folder),
    }


def by_probability(folder: Path) -> dict[str, dict[str, dict]]:
    """Mean percentile that rules give to decisive tokens, for likely ones (p > 1/2) and for the others."""
    places: dict[str, dict[str, list[float]]] = {rule: {} for rule in PROXIES}
    for line in read_samples(folder):
        if line.get(REFERENCE) or not line["advantage"]:
            continue
        side = "winners" if line["advantage"] > 0 else "losers"
        for rule, found in places.items():
            places_of_rule = percentiles(np.array(line["scores"][rule]))
            for token in line["marked"]:
                likely = "likely" if np.exp(-line["scores"]["surprisal"][token]) > 0.5 else "unlikely"
                found.setdefault(f"{side}, {likely}", []).append(places_of_rule[token])
    return {
        rule: {name: {"tokens": len(x), "percentile": float(np.mean(x))} for name, x in found.items()}
        for rule, found in places.items()
    }


def short(rule: str) -> str:
    return rule.replace("delta:token_gradient=", "delta, ")


def with_interval(numbers: dict | None, key: str, interval: str, digits: int = 2) -> str:
    if numbers is None or numbers[key] is None:
        return "?"
    half = (numbers[interval][1] - numbers[interval][0]) / 2 if numbers[interval] else float("nan")
    return f"{numbers[key]:.{digits}f} ± {half:.{digits}f}"


def summary_table(entries: list[dict]) -> str:
    """For each rule: lowest and highest value over all models; how many intervals lie above and below chance."""
    lines = [
        "| rule | losers: AUC | above / below chance | winners: AUC | above / below chance | cosine minus uniform's | "
        "closer / farther |",
        "|---" * 7 + "|",
    ]
    for rule in RULES:
        cells = []
        for side in ("losers", "winners"):
            found = [entry["rules"][rule][side] for entry in entries if side in entry["rules"][rule]]
            found = [one for one in found if one["prompts"] >= ENOUGH]
            above = sum(one["interval"][0] > 0.5 for one in found)
            below = sum(one["interval"][1] < 0.5 for one in found)
            cells += [spread([one["auc"] for one in found]), f"{above} / {below} of {len(found)}"]
        found = [entry["rules"][rule]["gradient"] for entry in entries]
        closer = sum(one["difference_interval"][0] > 0 for one in found)
        farther = sum(one["difference_interval"][1] < 0 for one in found)
        cells += [spread([one["difference"] for one in found], "+"), f"{closer} / {farther} of {len(found)}"]
        lines.append(f"| {short(rule)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float], sign: str = "") -> str:
    return f"{min(values):{sign}.2f} to {max(values):{sign}.2f}"


def task_tables(entries: list[dict]) -> str:
    """Identification and gradients of every rule on every model."""
    parts = []
    for task in dict.fromkeys(entry["task"] for entry in entries):
        of_task = [entry for entry in entries if entry["task"] == task]
        titles = [f"{m['moment']} (reward {m['counts']['mean_reward']:.2f})" for m in of_task]
        head = ["|---" * (len(of_task) + 1) + "|"]
        parts += [f"## {task}", "AUC in losers / winners, after so many rollout batches:"]
        lines = [f"| rule | {' | '.join(titles)} |", *head]
        for rule in RULES:
            sides = [[m["rules"][rule].get(side) for side in ("losers", "winners")] for m in of_task]
            cells = [" / ".join(with_interval(numbers, "auc", "interval") for numbers in pair) for pair in sides]
            lines.append(f"| {short(rule)} | {' | '.join(cells)} |")
        parts += [
            "\n".join(lines),
            "Cosine minus uniform's (of uniform: its own); bias cosine; noise / signal:",
        ]
        lines = [f"| rule | {' | '.join(titles)} |", *head]
        for rule in ["uniform", *RULES]:
            key = ("cosine", "interval") if rule == "uniform" else ("difference", "difference_interval")
            found = [m["rules"][rule]["gradient"] for m in of_task]
            cells = [
                f"{with_interval(one, *key)}; {plain(one['bias_cosine'])}; {plain(one['noise'], 1)}" for one in found
            ]
            lines.append(f"| {short(rule)} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def language_table(entries: dict[str, dict]) -> str:
    """AUC with intervals, of the sides with enough prompts, without rules that score all tokens alike."""
    (first, *_), sides = entries.values(), ("losers", "winners")
    columns = [
        (task, side)
        for task in entries
        for side in sides
        if entries[task]["rules"]["delta"][side]["prompts"] >= ENOUGH
    ]
    lines = [f"| rule | {' | '.join(f'`{task}`, {side}' for task, side in columns)} |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for rule, found in first["rules"].items():
        if not found or all(numbers["equal"] for numbers in found.values()):
            continue
        cells = []
        for task, side in columns:
            numbers = entries[task]["rules"][rule][side]
            low, high = numbers["interval"]
            cells.append(f"{numbers['auc']:.2f} ({low:.2f} to {high:.2f})")
        lines.append(f"| {short(rule)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plain(value: float | None, digits: int = 2) -> str:
    return "?" if value is None else f"{value:.{digits}f}"


def mechanism_table(entries: list[dict]) -> str:
    """The ratio of DelTA's centroid lengths, and mean ranks of decisive tokens by side and probability."""
    kinds = [f"{side}, {likely}" for side in ("winners", "losers") for likely in ("likely", "unlikely")]
    lines = [f"| model | length of μ₊ over μ₋ | {' | '.join(kinds)} |"]
    lines.append("|---" * (len(kinds) + 2) + "|")
    for entry in entries:
        ratio = entry["metrics"]["delta"]["centroid_norm_ratio"]
        cells = []
        for kind in kinds:
            found = [entry["by_probability"][rule].get(kind) for rule in PROXIES]
            cells.append(" / ".join(f"{one['percentile']:.2f}" for one in found) if all(found) else "none")
        lines.append(f"| {entry['task']}, {entry['moment']} | {ratio:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(entries: list[dict], path: Path) -> None:
    """AUC with intervals: a panel for each model, a row for each rule, losers and winners by colour and mark."""
    tasks = list(dict.fromkeys(entry["task"] for entry in entries))
    figure, axes = plt.subplots(
        len(tasks), len(MOMENTS), figsize=(11, 3.6 * len(tasks)), sharex=True, sharey=True, layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for entry in entries:
        axis = axes[tasks.index(entry["task"])][MOMENTS.index(entry["moment"])]
        for side, color, mark, shift in (("losers", "tab:orange", "s", -0.15), ("winners", "tab:blue", "o", 0.15)):
            for y, rule in enumerate(RULES):
                numbers = entry["rules"][rule].get(side)
                if numbers and numbers["interval"]:  # there is none for few prompts
                    low, high = numbers["interval"]
                    axis.plot([low, high], [y + shift] * 2, color=color, linewidth=1.5)
                    axis.plot(numbers["auc"], y + shift, mark, color=color, markersize=4, label=side if y == 0 else "")
        axis.axvline(0.5, color="grey", linewidth=0.8)
        axis.set(xlim=(0, 1), yticks=range(len(RULES)), yticklabels=map(short, RULES))
        axis.set_title(
            f"{entry['task']}, after {entry['moment']} rollout batches "
            f"(reward {entry['counts']['mean_reward']:.2f})", fontsize=9,
        )  # fmt: skip
        axis.tick_params(labelsize=8)
    axes[0][0].invert_yaxis()
    axes[0][0].legend(frameon=False, fontsize=8, loc="lower right")
    for axis in axes[-1]:
        axis.set_xlabel("AUC within a response", fontsize=9)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="tables and picture only")
    parser.add_argument("--language", action="store_true", help="audit the language model, not the study's models")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(AUDITED))
    args = parser.parse_args()
    if args.language and not args.report:
        LANGUAGE_RESULTS.write_text(json.dumps({task: audit_language(task) for task in LANGUAGE_TASKS}) + "\n")
    elif not args.report:
        entries = [audit(task, moment) for task in args.tasks for moment in MOMENTS]
        RESULTS.write_text(json.dumps(entries, indent=1) + "\n")
    entries = json.loads(RESULTS.read_text())
    put_tables(PAGE, summary_table(entries), "summary")
    put_tables(TABLES, task_tables(entries), "tables")
    put_tables(PAGE, mechanism_table(entries), "mechanism")
    put_tables(PAGE, language_table(json.loads(LANGUAGE_RESULTS.read_text())), "language")
    draw(entries, TABLES.with_suffix(".png"))


if __name__ == "__main__":
    main()
