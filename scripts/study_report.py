"""Statistics, tables and pictures of scripts/study.py."""

import csv
import json
import math
import re
from pathlib import Path

import matplotlib
import numpy as np
from compare_token_gradients import interval
from scipy import optimize, stats
from study_plans import CREDIT


matplotlib.use("Agg")
import matplotlib.pyplot as plt


BASELINE = "dapo"
OUTCOMES = {"accuracy": "held-out accuracy after training", "area": "area under the reward curve"}
POWER, LEVEL = 0.8, 0.05
DRAWN = (-0.3, 0.15)  # differences beyond are cut off in the picture
PANELS = {
    "other losses": ("grpo", "forking_tokens", "sapo", "fipo"),
    "DelTA by token gradient": ("delta", "delta_topk", "delta_lm_head", "delta_full"),
    "ablations": ("random", "within_side", "side_mean", "balance_sides"),
    "token selection": ("select_top", "select_bottom", "select_random"),
}


def outcome(row: dict, name: str) -> float:
    """`"accuracy"`, or `"area"`: the mean of the reward curve, that is the area under it per rollout batch."""
    return row["accuracy_after"] if name == "accuracy" else float(np.mean(row["reward"]))


def collapsed(row: dict) -> bool:
    """Worse than before training, or in the end below half of the best reward (both means of 3 rollout batches)."""
    smooth = np.convolve(row["reward"], np.ones(3) / 3, mode="valid")
    return bool(row["accuracy_after"] < row["accuracy_before"] or smooth[-1] < smooth.max() / 2)


def detectable_difference(sd: float, n: int, level: float = LEVEL, power: float = POWER) -> float:
    """The mean difference that a two-sided paired t-test over n pairs of this deviation finds with `power`."""
    if n < 2:
        return math.nan
    critical = stats.t.ppf(1 - level / 2, n - 1)

    # findings in the wrong direction are left out: of 10,000 studies with this shift, less than one
    shift = optimize.brentq(lambda shift: stats.nct.sf(critical, n - 1, shift) - power, 0, 2 * critical + 3)
    return float(shift * sd / math.sqrt(n))


def compare_pairs(values: np.ndarray, baseline: np.ndarray) -> dict:
    """Paired comparison: mean difference with its 95 % interval, two tests, and what could have been seen."""
    differences = np.asarray(values, dtype=float) - np.asarray(baseline, dtype=float)
    n = len(differences)
    mean, half = interval(differences)
    sd = float(np.std(differences, ddof=1)) if n > 1 else math.nan
    varies = n > 1 and sd > 0
    return {
        "pairs": n,
        "difference": mean,
        "low": mean - half,
        "high": mean + half,
        "sd": sd,
        "p_t": float(stats.ttest_1samp(differences, 0).pvalue) if varies else math.nan,
        "p_wilcoxon": float(stats.wilcoxon(differences).pvalue) if np.any(differences) else math.nan,
        "detectable": detectable_difference(sd, n),
    }


def holm(p_values: list[float]) -> list[float]:
    """Holm's adjusted p-values. NaN stays NaN and counts as no test."""
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        adjusted[i] = largest
    return adjusted


def summarise(rows: list[dict], rates: dict[tuple, float]) -> list[dict]:
    """One entry per task and variant, and per variant over all tasks (`"all"`), compared with the baseline.

    `rates` are the tuned learning rates; rows with others are left out.
    """
    rows = [r for r in rows if r["phase"] == "study" and rates.get((r["task"], r["variant"])) == r["learning_rate"]]
    runs = {(r["task"], r["variant"], r["seed"]): r for r in rows}
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    variants = [variant for variant in CREDIT.variants if any(r["variant"] == variant for r in rows)]
    entries = []
    for task in [*tasks, "all"]:
        of_task = []
        for variant in variants:
            mine = {key: r for key, r in runs.items() if key[1] == variant and task in (key[0], "all")}
            if not mine:
                continue
            pairs = [(r, runs[t, BASELINE, s]) for (t, _, s), r in mine.items() if (t, BASELINE, s) in runs]
            norms = [np.array(r["grad_norm"], dtype=float) for r in mine.values()]
            entry = {
                "task": task,
                "variant": variant,
                "learning_rate": rates.get((task, variant)),
                "runs": len(mine),
                "collapsed": sum(map(collapsed, mine.values())),
                "grad_norm_variance": float(np.median([np.nanvar(x) for x in norms])),
                "grad_norm_variation": float(np.median([np.nanstd(x) / np.nanmean(x) for x in norms])),
                "seconds": float(np.median([r["seconds"] for r in mine.values()])),
            }
            for name in OUTCOMES:
                mean, half = interval([outcome(r, name) for r in mine.values()])
                entry |= {f"{name}_mean": mean, f"{name}_half_width": half}
                if variant != BASELINE and pairs:
                    compared = compare_pairs(*np.array([[outcome(x, name) for x in pair] for pair in pairs]).T)
                    entry |= {f"{name}_{key}": value for key, value in compared.items()}
            of_task.append(entry)
        others = [entry for entry in of_task if entry["variant"] != BASELINE]
        for name in OUTCOMES:
            adjusted = holm([entry.get(f"{name}_p_t", math.nan) for entry in others])
            for entry, p in zip(others, adjusted, strict=True):
                entry[f"{name}_p_holm"] = p
        entries += of_task
    return entries


def tables(entries: list[dict]) -> str:
    parts = []
    for task in dict.fromkeys(entry["task"] for entry in entries):
        of_task = [entry for entry in entries if entry["task"] == task]
        parts.append(f"### {'Both tasks together' if task == 'all' else task}\n")
        if task != "all":
            parts.append(
                "| variant | learning rate | runs | accuracy after | area under the curve | collapsed | variance of "
                "the gradient norm | its coefficient of variation |\n" + "|---" * 8 + "|"
            )
            for e in of_task:
                parts.append(
                    f"| {e['variant']} | {e['learning_rate']:g} | {e['runs']} | "
                    f"{e['accuracy_mean']:.3f} ± {e['accuracy_half_width']:.3f} | "
                    f"{e['area_mean']:.3f} ± {e['area_half_width']:.3f} | {e['collapsed']} | "
                    f"{e['grad_norm_variance']:.3f} | {e['grad_norm_variation']:.2f} |"
                )
            parts.append("")
        for name, title in OUTCOMES.items():
            parts.append(
                f"| {title}: difference from DAPO | mean | 95 % interval | p (paired t) | Holm | p (Wilcoxon) | "
                "visible at 80 % power |\n" + "|---" * 7 + "|"
            )
            for e in of_task:
                if f"{name}_difference" in e:
                    size, low, high, detectable = (
                        e[f"{name}_{key}"] for key in ("difference", "low", "high", "detectable")
                    )
                    p = [e[f"{name}_{key}"] for key in ("p_t", "p_holm", "p_wilcoxon")]
                    parts.append(
                        f"| {e['variant']} | {size:+.3f} | {low:+.3f} to {high:+.3f} | "
                        + " | ".join("< 0.001" if x < 0.001 else f"{x:.3f}" for x in p)
                        + f" | {detectable:.3f} |"
                    )
            parts.append("")
    return "\n".join(parts)


def draw_curves(rows: list[dict], rates: dict[tuple, float], path: Path) -> None:
    """Mean reward of each rollout batch with its 95 % interval over seeds."""
    rows = [r for r in rows if r["phase"] == "study" and rates.get((r["task"], r["variant"])) == r["learning_rate"]]
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    figure, axes = plt.subplots(
        len(tasks),
        len(PANELS),
        figsize=(15, 3.6 * len(tasks)),
        sharex=True,
        sharey="row",
        layout="constrained",
        squeeze=False,
    )
    for task, line in zip(tasks, axes, strict=True):
        for (title, variants), axis in zip(PANELS.items(), line, strict=True):
            for variant in (BASELINE, *variants):
                curves = np.array([r["reward"] for r in rows if (r["task"], r["variant"]) == (task, variant)])
                if not len(curves):
                    continue
                points = np.array([interval(batch) for batch in curves.T])  # (rollout batches, 2)
                x = np.arange(1, len(points) + 1)
                color = "black" if variant == BASELINE else None
                (drawn,) = axis.plot(x, points[:, 0], label=variant, color=color, linewidth=1.4)
                low, high = points[:, 0] - points[:, 1], points[:, 0] + points[:, 1]
                axis.fill_between(x, low, high, color=drawn.get_color(), alpha=0.12, linewidth=0)
            axis.set_title(f"{task}: {title}", fontsize=10)
            axis.legend(frameon=False, fontsize=8, loc="lower right" if task != "arithmetic" else "upper left")
            axis.set_ylim(0, 1)
        line[0].set_ylabel("mean reward")
    for axis in axes[-1]:
        axis.set(xlabel="rollout batch", xticks=range(2, len(rows[0]["reward"]) + 1, 2))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_differences(entries: list[dict], path: Path) -> None:
    """Differences from the baseline with 95 % intervals; shaded is what the test would have missed too often."""
    tasks = list(dict.fromkeys(entry["task"] for entry in entries))
    figure, axes = plt.subplots(
        len(OUTCOMES), len(tasks), figsize=(13, 4.6 * len(OUTCOMES)), sharey=True, layout="constrained", squeeze=False
    )
    for (name, title), line in zip(OUTCOMES.items(), axes, strict=True):
        for task, axis in zip(tasks, line, strict=True):
            compared = [e for e in entries if e["task"] == task and f"{name}_difference" in e]
            for y, e in enumerate(compared):
                limit = e[f"{name}_detectable"]
                axis.fill_betweenx([y - 0.35, y + 0.35], -limit, limit, color="lightgrey", alpha=0.6, linewidth=0)
                half = e[f"{name}_high"] - e[f"{name}_difference"]
                found = e[f"{name}_p_holm"] < LEVEL
                color = "tab:red" if found else "tab:blue"
                axis.errorbar(e[f"{name}_difference"], y, xerr=half, fmt="o", color=color, capsize=3, markersize=4)
            axis.axvline(0, color="black", linewidth=0.8)
            axis.set_xlim(*DRAWN)
            axis.set_yticks(range(len(compared)), [e["variant"] for e in compared])
            axis.set_title("both tasks" if task == "all" else task, fontsize=10)
            axis.set_xlabel(f"{title}, difference from DAPO", fontsize=8)
    axes[0][0].invert_yaxis()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write_report(
    rows: list[dict], tuned: dict[tuple, float], common: dict[tuple, float], stem: Path, page: Path
) -> None:
    """
    Write STEM.json, STEM.csv, STEM_curves.png, STEM_differences.png, and the tables into a page.

    `tuned` and `common` are the learning rates of (task, variant), tuned for each and one for all.
    """
    entries = summarise(rows, tuned)
    at_common = summarise(rows, common)
    every = [{"rates": name, **e} for name, part in (("tuned", entries), ("common", at_common)) for e in part]
    stem.with_suffix(".json").write_text(json.dumps(every, indent=1) + "\n")
    names = list(dict.fromkeys(name for entry in every for name in entry))
    with open(stem.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)
    draw_curves(rows, tuned, stem.with_name(f"{stem.name}_curves.png"))
    draw_differences(entries, stem.with_name(f"{stem.name}_differences.png"))
    put_tables(page, tables(entries))
    put_tables(page, tables(at_common), "tables at one rate")


def put_tables(path: Path, text: str, name: str = "tables") -> None:
    """Replace what stands between the markers `<!-- NAME -->` and `<!-- end of NAME -->` of a page."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    page = path.read_text() if path.is_file() else ""
    if start not in page:
        page += f"{start}\n{end}\n"
    new, count = re.subn(f"{start}.*?{end}", lambda _: f"{start}\n\n{text}\n{end}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{path}: expected one pair of the markers {start} and {end}, found {count}.")
    path.write_text(new)
