"""Answers to docs/balance_plan.md from the comparisons of its study: by the plan's criteria, and explorations."""

import json
import math
from pathlib import Path

from scipy.stats import chi2, spearmanr

from .plans import BALANCE, SHORT_TASKS, Study


AUDIT = Path(__file__).parent / "results" / "audit.json"
FULL = (*SHORT_TASKS, "long")  # fine-tuned in full
STRICT, LOOSE, NEAR_ZERO, ENOUGH = 0.01, 0.05, 0.02, 3
LEAST_PASS_64 = -0.05
WEIGHTS = {
    **{"losers_0": 0, "losers_0.1": 0.1, "losers_0.2": 0.2, "losers_0.5": 0.5, "losers_2": 2},
    **{"adaptive_sides": "adaptive", "pass_rate_sides": "pass rate"},
}
# Variants, and the audit's rules that they train with or mask losers by.
AUDITED = {
    "delta": "delta",
    "delta_full": "delta:token_gradient=full",
    "group_contrast": "group_contrast",
    "top_sibling": "sibling_value",
    "top_surprisal": "surprisal",
    "top_entropy": "entropy",
    "optimal_token_baseline": "optimal_token_baseline",
    "advantage_reweighting": "advantage_reweighting",
    "stare": "stare",
    "losers_0.2": "side_weights",
}
MASKS_BY_SCORE = ("top_sibling",)  # whose gradients are not those that the audit measured


class Comparisons:
    """Entries of one section, by outcome, family, variant and task."""

    def __init__(self, summary: dict):
        self.tasks = tuple(summary["seeds"])
        self.cells = {(e["task"], e["variant"]): e for e in summary["cells"]}
        self.entries = {(e["outcome"], e["family"], e["variant"], e["task"]): e for e in summary["comparisons"]}

    def variants(self, family: str) -> list[str]:
        return list(dict.fromkeys(variant for _, of, variant, _ in self.entries if of == family))

    def over(self, tasks, outcome: str, family: str, variant: str) -> dict[str, dict]:
        places = {task: (outcome, family, variant, task) for task in tasks}
        return {task: self.entries[place] for task, place in places.items() if place in self.entries}


def answers(study: Study, summaries: list[dict]) -> list[str]:
    """Parts of the page; nothing for a study that the plan does not cover."""
    if study is not BALANCE:
        return []
    main, long, rest = map(Comparisons, summaries[:3])
    longest = Comparisons(summaries[4])
    return [
        "## What holds up, by the plan's criteria\n",
        what_holds_up(main, long),
        "## Which token matters, by the plan's criteria\n",
        which_token_matters(main, rest),
        "## Explored, without test\n",
        by_task(main),
        by_weight([main, rest]),
        share_of_oracle([main, longest]),
        audit_against_learning([main, rest]),
    ]


def holds_up(main: Comparisons, long: Comparisons, variant: str) -> dict:
    """The plan's criteria for one variant. `holds` is `None` if long runs that could undo it are missing."""
    short = main.over(FULL, "accuracy", "baseline", variant)
    later = long.over(FULL, "accuracy", "baseline", variant)
    within_64 = [e["difference"] for e in long.over(FULL, "pass@64", "baseline", variant).values()]
    found = {
        "wins": [task for task, e in short.items() if e["p_holm"] < STRICT and e["difference"] > 0],
        "losses": [task for task, e in short.items() if e["p_holm"] < LOOSE and e["difference"] < 0],
        "later": {task: e["difference"] for task, e in later.items()},
        "pass@64": sum(within_64) / len(within_64) if within_64 else math.nan,
    }
    wins = len(found["wins"]) >= ENOUGH and not found["losses"]
    all_there = set(later) == set(long.tasks) and bool(later)
    undone = sum(d < 0 for d in found["later"].values()) > 1 or (all_there and found["pass@64"] < LEAST_PASS_64)
    found["holds"] = False if not wins or undone else True if all_there else None
    return found


def what_holds_up(main: Comparisons, long: Comparisons) -> str:
    lines = [
        "| variant | beats DAPO on | loses on | 64 rollout batches: difference in accuracy | in pass@64 | holds up |"
    ]
    lines.append("|" + "---|" * 6)
    for variant in main.variants("baseline"):
        found = holds_up(main, long, variant)
        later = ", ".join(f"{task} {value:+.3f}" for task, value in found["later"].items()) or "not run"
        verdict = {True: "**yes**", False: "no", None: "not known"}[found["holds"]]
        pass_64 = "" if math.isnan(found["pass@64"]) else f"{found['pass@64']:+.3f}"
        both = (", ".join(found[name]) or "none" for name in ("wins", "losses"))
        lines.append(f"| {variant} | {' | '.join(both)} | {later} | {pass_64} | {verdict} |")
    return "\n".join(lines) + "\n"


def which_token_matters(main: Comparisons, rest: Comparisons) -> str:
    """`rest` has the shuffled controls that run later."""
    lines = [
        "| rule | beats both controls on | below its side-matched control on | "
        f"95 % interval against it within ±{NEAR_ZERO} on | so |",
        "|" + "---|" * 5,
    ]
    for variant in main.variants("side_matched"):
        side = main.over(FULL, "accuracy", "side_matched", variant)
        shuffled = {
            **rest.over(FULL, "accuracy", "shuffled", variant),
            **main.over(FULL, "accuracy", "shuffled", variant),
        }

        def above(entries: dict, task: str) -> bool:
            return task in entries and entries[task]["p_holm"] < STRICT and entries[task]["difference"] > 0

        both = [task for task in side if above(side, task) and above(shuffled, task)]
        worse = [task for task, e in side.items() if e["p_holm"] < STRICT and e["difference"] < 0]
        near = [task for task, e in side.items() if -NEAR_ZERO <= e["low"] and e["high"] <= NEAR_ZERO]
        verdict = "matters" if len(both) >= ENOUGH else "matters little" if len(near) >= ENOUGH else "not shown"
        against_both = f"{', '.join(both) or 'none'} of {len(side.keys() & shuffled.keys())}"
        cells = (
            against_both if shuffled else "not shuffled",
            *(", ".join(tasks) or "none" for tasks in (worse, near)),
        )
        lines.append(f"| {variant} | {' | '.join(cells)} | {verdict} |")
    return "\n".join(lines) + "\n"


def difference(entry: dict | None) -> str:
    if entry is None:
        return ""
    half = entry["high"] - entry["difference"]
    return f"{entry['difference']:+.3f}" + ("" if math.isnan(half) else f" ± {half:.3f}")


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def by_task(main: Comparisons) -> str:
    """Gains against length and pass rate."""
    columns = [("baseline", v) for v in ("losers_0.2", "losers_0", "adaptive_sides", "oracle", "delta")]
    columns += [("side_matched", v) for v in ("oracle", "delta", "top_sibling")]
    names = [f"{variant} − {'dapo' if family == 'baseline' else 'its side-matched'}" for family, variant in columns]
    lines = [
        f"| accuracy, by length | tokens | before | dapo | {' | '.join(names)} |",
        "|" + "---|" * (4 + len(names)),
    ]
    tasks = [task for task, variant in main.cells if variant == "dapo"]
    for task in sorted(tasks, key=lambda task: main.cells[task, "dapo"]["length"]):
        cell = main.cells[task, "dapo"]
        found = [difference(main.entries.get(("accuracy", family, variant, task))) for family, variant in columns]
        numbers = f"{cell['length']:.0f} | {cell['before']:.3f} | {cell['accuracy']:.3f}"
        lines.append(f"| {task} | {numbers} | {' | '.join(found)} |")
    return "\n".join(lines) + "\n"


def by_weight(sections: list[Comparisons]) -> str:
    """Gains by the weight of losers, constant or computed from the batch."""
    lines = [f"| accuracy − dapo, by losers' weight | {' | '.join(map(str, WEIGHTS.values()))} |"]
    lines.append("|" + "---|" * (1 + len(WEIGHTS)))
    for task in dict.fromkeys(task for task, _ in sections[0].cells):
        cells = []
        for variant in WEIGHTS:
            found = [s.entries.get(("accuracy", "baseline", variant, task)) for s in sections]
            entry = next(filter(None, found), None)
            cells.append(f"{difference(entry)} ({entry['pairs']} seeds)" if entry else "")
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def share_of_oracle(sections: list[Comparisons]) -> str:
    """The gain of exact labels over the same weight per side, and each rule's gain over its own as a share of it."""

    def all_tasks(outcome: str, variant: str) -> dict[str, dict]:
        entries = [section.over(section.tasks, outcome, "side_matched", variant) for section in sections]
        return {task: entry for of_section in entries for task, entry in of_section.items()}

    gaps = all_tasks("accuracy", "oracle")
    if not gaps:
        return "What exact labels bring beyond the same weight per side: not run.\n"
    text = ["What exact labels of losers' first mistakes bring beyond the same weight per side:"]
    text.append("; ".join(f"{task} {difference(gap)}" for task, gap in gaps.items()) + ".")
    text += heterogeneity(list(gaps.values()))
    clear = {task: gap["difference"] for task, gap in gaps.items() if gap["p_holm"] < LOOSE and gap["low"] > 0}
    if not clear:
        possible = [f"{gap['high']:.3f} on {task}" for task, gap in gaps.items() if gap["high"] > NEAR_ZERO]
        text.append(
            f"On no task is it above zero with corrected p < {LOOSE}: no gap for a rule to close was detected."
        )
        if possible:
            text.append(f"Intervals leave room for one of up to {', '.join(possible)}.")
    for task, gap in clear.items():
        every = {variant for section in sections for variant in section.variants("side_matched")} - {"oracle"}
        found = {variant: all_tasks("accuracy", variant).get(task) for variant in sorted(every)}
        shares = {variant: entry["difference"] / gap for variant, entry in found.items() if entry}
        text.append(f"Share of it on {task}: " + ", ".join(f"{v} {share:+.0%}" for v, share in shares.items()) + ".")
    areas = all_tasks("area", "oracle")
    text.append(f"In area: {'; '.join(f'{task} {difference(gap)}' for task, gap in areas.items())}.")
    above = [f"{task} (p {e['p_holm']:.3f})" for task, e in areas.items() if e["p_holm"] < LOOSE and e["low"] > 0]
    text.append(f"Above zero there with corrected p < {LOOSE}: {', '.join(above) or 'none'}.")
    return "\n".join(text) + "\n"


def heterogeneity(entries: list[dict]) -> list[str]:
    """Whether differences vary by more than their errors (Cochran's Q)."""
    errors = [entry["sd"] / math.sqrt(entry["pairs"]) for entry in entries]
    if len(entries) < 2 or not all(error > 0 for error in errors):
        return []
    weights = [error**-2 for error in errors]
    found = [entry["difference"] for entry in entries]
    mean = sum(w * d for w, d in zip(weights, found, strict=True)) / sum(weights)
    q = sum(w * (d - mean) ** 2 for w, d in zip(weights, found, strict=True))
    freedom = len(entries) - 1
    told = p_value(float(chi2.sf(q, freedom)))
    return [f"Do tasks differ by more than chance? Cochran's Q is {q:.0f} on {freedom} degrees of freedom, {told}."]


def audit_against_learning(sections: list[Comparisons]) -> str:
    """Spearman correlations over rules between what the audit measures and what training brings."""
    measures = {
        "losers' mistakes found (AUC)": lambda rule: rule["losers"]["auc"] if "losers" in rule else None,
        "cosine with the gradient of many batches": lambda rule: (
            rule["gradient"]["cosine"] if "gradient" in rule else None
        ),
    }
    audits = {e["task"]: e["rules"] for e in json.loads(AUDIT.read_text()) if e["moment"] == 0}
    lines = ["| correlation over rules with the gain | task | against dapo | against the same weight per side |"]
    lines.append("|" + "---|" * 4)
    for name, measure in measures.items():
        for task in (task for task in FULL if task in audits):
            values = {v: measure(audits[task][rule]) for v, rule in AUDITED.items() if rule in audits[task]}
            skipped = MASKS_BY_SCORE if name.startswith("cosine") else ("losers_0.2",)
            values = {v: value for v, value in values.items() if value is not None and v not in skipped}
            found = []
            for family in ("baseline", "side_matched"):
                gains = {
                    v: section.entries["accuracy", family, v, task]["difference"]
                    for section in reversed(sections)
                    for v in values
                    if ("accuracy", family, v, task) in section.entries
                }
                rank = spearmanr([values[v] for v in gains], [*gains.values()]).statistic if len(gains) > 3 else None
                found.append("" if rank is None else f"{rank:+.2f} ({len(gains)} rules)")
            lines.append(f"| {name} | {task} | {' | '.join(found)} |")
    lines.append("\nThe audit's measures are those of [the start models](../../../docs/results/audit.md).")
    return "\n".join(lines) + "\n"
