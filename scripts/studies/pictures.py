"""Pictures of scripts/studies/study.py --report."""

import math
from pathlib import Path

import matplotlib
import numpy as np

from .plans import ALL, BASELINE, Section, Study
from .statistics import FAMILIES, LEVEL, POWER, finished_runs
from .token_gradients import interval


matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, MultipleLocator


COLUMNS = 5
DRAWN = (-0.2, 0.15)  # differences beyond are drawn at the edge
# labels and colours of differences
VERDICTS = {f"better, corrected p < {LEVEL}": "tab:blue", "worse": "tab:red", "not clear, or not tested": "dimgrey"}
COLORS = ("black", "tab:orange", "tab:red", "tab:purple", "tab:blue", "tab:green", "tab:brown")


def draw_curves(study: Study, rows: list[dict], path: Path) -> None:
    """Mean reward of each rollout batch with its 95 % interval over seeds: a panel for each task of each section."""
    panels = []
    for section in study.sections:
        repeats = section.rate_of_baseline and section.phase == "study"  # most of its curves are the first section's
        runs = {} if repeats else finished_runs(study, section, rows)
        drawn = {cell: of_seeds for cell, of_seeds in runs.items() if cell[1] in study.drawn}
        tasks = dict.fromkeys(task for task, _ in drawn if (task, BASELINE) in section.cells)
        panels += [(section, task, drawn) for task in tasks]
    lines = -(-len(panels) // COLUMNS)
    columns = -(-len(panels) // lines)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.2 * columns, 3 * lines), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for (section, task, drawn), axis in zip(panels, axes.flat, strict=False):
        draw_panel(axis, study, section, task, drawn)
    handles = {
        label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=2 * columns, frameon=False)
    figure.supylabel("mean reward of a rollout batch", fontsize=10)
    figure.supxlabel("rollout batch", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_panel(axis, study: Study, section: Section, task: str, drawn: dict) -> None:
    for variant, color in zip(study.drawn, COLORS, strict=False):
        of_seeds = drawn.get((task, variant))
        if not of_seeds:
            continue
        curves = np.array([row["reward"] for row in of_seeds.values()], dtype=float)
        width = max(1, curves.shape[1] // 32)  # long runs as means of some rollout batches
        curves = curves[:, : curves.shape[1] // width * width].reshape(len(curves), -1, width).mean(axis=-1)
        points = np.array([interval(batch) for batch in curves.T])  # (points, 2)
        x = (np.arange(len(points)) + 0.5) * width + 0.5
        axis.plot(x, points[:, 0], label=variant, color=color, linewidth=1.3)
        low, high = points[:, 0] - points[:, 1], points[:, 0] + points[:, 1]
        axis.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
    seeds = len(next(of_seeds for (of_task, _), of_seeds in drawn.items() if of_task == task))
    rate = f", {BASELINE}'s rate" if section.rate_of_baseline else ""
    axis.set_title(f"{task}\n{study.rollouts[section.phase]} rollout batches{rate}, {seeds} seeds", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def draw_differences(summary: dict, path: Path) -> None:
    """
    Differences in the main outcome with 95 % intervals, from DAPO and from the controls. They are coloured where
    Holm's p is below `LEVEL`. Differences that the test would miss too often are shaded.
    """
    main, title = next(iter(summary["outcomes"].items()))
    entries = [entry for entry in summary["comparisons"] if entry["outcome"] == main]
    tasks = list(dict.fromkeys(entry["task"] for entry in summary["cells"]))
    if any(entry["task"] == ALL and not math.isnan(entry["p_holm"]) for entry in entries):
        tasks.append(ALL)
    families = [family for family in FAMILIES if any(entry["family"] == family for entry in entries)]
    variants = {f: list(dict.fromkeys(e["variant"] for e in entries if e["family"] == f)) for f in families}
    figure, axes = plt.subplots(
        len(families),
        len(tasks),
        figsize=(2.6 + 2.1 * len(tasks), 1.2 + 0.27 * sum(map(len, variants.values()))),
        sharex=True,
        sharey="row",
        layout="constrained",
        squeeze=False,
        height_ratios=[len(variants[family]) + 1 for family in families],
    )
    by_place = {(entry["family"], entry["task"], entry["variant"]): entry for entry in entries}
    lowest = {task: of for of in families for family, task, _ in by_place if family == of}  # its axis has the numbers
    for family, line in zip(families, axes, strict=True):
        for task, axis in zip(tasks, line, strict=True):
            for y, variant in enumerate(variants[family]):
                if (family, task, variant) in by_place:
                    draw_difference(axis, y, by_place[family, task, variant])
            axis.set_visible(axis is line[0] or axis.has_data())
            axis.axvline(0, color="black", linewidth=0.8)
            axis.set_xlim(*DRAWN)
            axis.xaxis.set_major_locator(MultipleLocator(0.1))
            axis.set_yticks(range(len(variants[family])), variants[family], fontsize=8)
            axis.tick_params(axis="x", labelsize=8, labelbottom=family == lowest[task])
        line[0].set_ylabel(FAMILIES[family], fontsize=8)
        line[0].set_ylim(len(variants[family]) - 0.5, -0.5)
    for task, axis in zip(tasks, axes[0], strict=True):
        axis.set_title(task, fontsize=9)
    keys = [Line2D([], [], color=color, marker="o", markersize=4, label=label) for label, color in VERDICTS.items()]
    keys.append(Patch(color="lightgrey", label=f"found less often than {POWER:.0%} if true"))
    columns = len(keys) if len(tasks) > 3 else 2
    figure.legend(handles=keys, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)
    figure.supxlabel(f"difference in {title[0].lower()}{title[1:]}", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_difference(axis, y: int, entry: dict) -> None:
    better, worse, unclear = VERDICTS.values()
    limit, color = entry["detectable"], unclear
    if entry["p_holm"] < LEVEL:
        color = better if entry["difference"] > 0 else worse
    if not math.isnan(limit):
        axis.fill_betweenx([y - 0.35, y + 0.35], -limit, limit, color="lightgrey", alpha=0.6, linewidth=0)
    middle = min(max(entry["difference"], DRAWN[0]), DRAWN[1])
    axis.plot([entry["low"], entry["high"]], [y, y], color=color, linewidth=1.2)
    axis.plot(middle, y, "o", color=color, markersize=4, clip_on=False)
