"""The report: one HTML file that opens offline."""

import base64
import gzip
import json
import math
import secrets
from dataclasses import asdict
from pathlib import Path

import jinja2
import numpy as np
from plotly.offline import get_plotlyjs
from wordcloud.wordcloud import FONT_PATH

from ..files import write_atomically
from .clouds import FULL, HEIGHT, WIDTH, average, cloud, farthest, frequent_types
from .figures import Plot, curves, distributions, relations, run_name
from .heatmap import STYLE, legend, spread
from .run import HOW_TO_RECORD, Group, Run
from .settings import differing, rule_name, strip
from .text import label, visible
from .tokens import side_means, token_table
from .verdict import HOW, Sentence, compared, verdict


# What the page holds of the completions, in bytes of text. Groups are taken evenly over the run until this is reached,
# so that the file stays below 5 MB. Curves, distributions and clouds are over everything recorded.
MAX_SIZE = 1_650_000
TOKEN_SIZE = 4  # a token and its numbers take about as much of the file as this many bytes of text
COMPLETION_SIZE = 40  # the same for reward, advantage and so on
TEXT_LIMIT = 20_000  # characters of a prompt or of an unshaded completion
TABLE_ROWS = 100  # of the token table, from either end
UNKNOWN = 255


def write_page(runs: list[Run], output: Path, *, min_count: int, step: int | None) -> None:
    """See [`~delta_trl.report.write_report`]."""
    names = [run_name(runs, i) for i in range(len(runs))]
    tables = [token_table(run) for run in runs]
    credited = [run for run in runs if run.has_credit]
    coefficients = [c.coefficients for run in credited for group in run.groups for c in group.completions]
    full = spread(np.concatenate([np.zeros(0), *coefficients]))
    full_relative = spread(1 + np.concatenate([np.zeros(0), *(table.relative for table in tables)]))
    plots: list[Plot] = []

    def add(new: list[Plot]) -> list[dict]:
        start = len(plots)
        plots.extend(new)
        return [
            {"index": start + i, "title": plot.title, "note": plot.note, "label": plot.label}
            for i, plot in enumerate(new)
        ]

    all_curves = curves(runs)
    shown_first = [plot for plot in all_curves if plot.title == "Reward"]
    folded = {
        "Diagnostics": [plot for plot in all_curves if not plot.is_credit and plot not in shown_first],
        "Token credit": [plot for plot in all_curves if plot.is_credit],
    }
    reward = add(shown_first)
    folds = [{"title": title, "plots": add(some)} for title, some in folded.items() if some]
    places = {p["title"]: p["index"] for fold in folds for p in fold["plots"]}
    blocks = [
        {"name": name, "distributions": add(distributions(table)), "relations": add(relations(table))}
        for run, name, table in zip(runs, names, tables, strict=True)
        if run.has_credit
    ]
    clouds, cloud_scale = _clouds(runs, names, min_count)
    shown = _completions(runs, step)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("page.html.j2").render(
        title=" and ".join(names),
        # The policy lets only scripts with this number run: a second wall behind escaping.
        nonce=secrets.token_urlsafe(16),
        style=STYLE,
        runs=[
            {**_summary(run, name), "verdict": _linked(verdict(run, table, min_count), places)}
            for run, name, table in zip(runs, names, tables, strict=True)
        ],
        how=HOW,
        compared=_linked(compared(runs, names), places),
        differing=differing(runs),
        reward=reward,
        folds=folds,
        blocks=blocks,
        clouds=clouds,
        cloud_scale=cloud_scale,
        cloud_size=(WIDTH, HEIGHT),
        min_count=min_count,
        cloud_font=base64.b64encode(Path(FONT_PATH).read_bytes()).decode() if clouds else "",
        legend=legend(full),
        relative_legend=legend(full_relative, relative=True),
        how_to_record=HOW_TO_RECORD,
        notes=shown.pop("notes"),
        steps=sorted({group["step"] for run in shown["runs"] for group in run["groups"]}),
        columns={name: _packed(data) for name, data in shown.pop("columns").items()},
        completions=_packed(_json({**shown, "full": full, "fullRelative": full_relative})),
        figures=_packed(("[" + ",".join(plot.figure.to_json() for plot in plots) + "]").encode()),
        plotly=_packed(get_plotlyjs().encode()) if plots else "",
    )
    write_atomically(html.encode(), output)


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _json(value) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()  # ASCII, lone surrogates escaped


def _summary(run: Run, name: str) -> dict:
    """Name and key figures of a run, formatted."""
    figures = {}
    evaluation, measure = run.evaluation
    steps = max((entry["step"] for entry in run.history), default=None)
    if steps is not None:
        figures["optimiser steps"] = f"{steps:,}"
    for key, title, digits in (
        ("reward", "reward", 3),
        (evaluation, f"{measure} in evaluation", 3),
        ("completions/mean_length", "completion length", 0),
        ("entropy", "entropy", 3),
        ("credit/between_sides_variance", "variance between sides", 2),
    ):
        _, values = run.logged(key)
        if len(values):
            figures[title] = f"{values[0]:,.{digits}f} → {values[-1]:,.{digits}f}"
    if run.groups:
        completions = [c for group in run.groups for c in group.completions]
        figures["recorded completions"] = f"{len(completions):,}"
        if run.has_credit:
            values = np.concatenate([c.coefficients for c in completions])
            if np.isfinite(values).any():
                low, high = np.nanquantile(values, (0.05, 0.95))
                figures["coefficients, 5–95 %"] = f"{low:.2f} – {high:.2f}"
    return {
        "name": name,
        "path": visible(str(run.path), 200),
        "figures": figures,
        "settings": strip(run.settings) if run.settings else {},
        "rule": rule_name(run.settings or {}),
        "has_credit": run.has_credit,
    }


def _linked(sentences: list[Sentence], places: dict[str, int]) -> list[dict]:
    """Sentences with the place of their folded plot, if any."""
    return [{"text": s.text, "warning": s.warning, "plot": places.get(s.plot)} for s in sentences]


def _clouds(runs: list[Run], names: list[str], min_count: int) -> tuple[list[dict], float]:
    """The clouds of runs that have recorded token types, and the distance that is the largest size in all of them."""
    found = [
        (name, frequent_types(run.token_types, min_count), average(run.token_types))
        for run, name in zip(runs, names, strict=True)
        if run.token_types
    ]
    full = max([FULL, *(farthest(types, mean) for _, types, mean in found)])
    clouds = [
        {
            "name": name,
            "types": len(types),
            "average": mean,
            "farthest": farthest(types, mean),
            "high": cloud([t for t in types if t.mean > mean], mean, full),
            "low": cloud([t for t in types if t.mean < mean], mean, full),
            "rows": [asdict(row) for row in _ends(types)],
        }
        for name, types, mean in found
    ]
    return clouds, full


def _ends(types: list) -> list:
    return types if len(types) <= 2 * TABLE_ROWS else types[:TABLE_ROWS] + types[-TABLE_ROWS:]


def _completions(runs: list[Run], step: int | None) -> dict:
    """
    The groups that the page shows: a JSON part, one number per token in `columns`, and `notes` on what was left out.

    Tokens are numbered through all completions; `first` and `length` say which belong to one.
    """
    vocabulary: dict[str, int] = {}
    ids, coefficients, log_probs, entropies, notes, shown = [], [], [], [], [], []
    first = 0
    for i, run in enumerate(runs):
        groups = [group for group in run.groups if step is None or group.step == step]
        kept, limit = _evenly(groups, run.has_credit, MAX_SIZE // len(runs))
        if len(kept) < len(groups):
            where = (
                "evenly over the run. `--step N` shows those of one step." if step is None else f"all of step {step}."
            )
            notes.append(
                f"{run_name(runs, i)}: {len(kept):,} of {len(groups):,} recorded groups are shown here, {where}"
            )
        if limit:
            unit = "tokens" if run.has_credit else "characters"
            notes.append(f"{run_name(runs, i)}: completions are cut after {limit:,} {unit} here.")
        rows, means = [], side_means(run)
        for group in kept:
            completions = []
            for c in group.completions:
                row = {"reward": _rounded(c.reward), "advantage": _rounded(c.advantage), "side": c.side}
                if len(c.rewards) > 1:
                    row["rewards"] = {label(name): _rounded(value) for name, value in c.rewards.items()}
                if run.has_credit:
                    tokens = c.tokens()[:limit]
                    ids += [vocabulary.setdefault(token, len(vocabulary)) for token in tokens]
                    coefficients.append(c.coefficients[:limit])
                    log_probs.append(c.log_probs[:limit])
                    entropies.append(c.entropies[:limit])
                    mean = np.nanmean(c.coefficients) if np.isfinite(c.coefficients).any() else None
                    row |= {
                        "first": first,
                        "length": len(tokens),
                        "total": len(c.coefficients),
                        "mean": _rounded(mean),
                        "sideMean": _rounded(means.get((group.step, c.side))),
                    }
                    first += len(tokens)
                else:
                    row["text"] = visible(c.tokens()[0], limit or TEXT_LIMIT)
                completions.append(row)
            rows.append({"step": group.step, "prompt": visible(group.prompt, TEXT_LIMIT), "completions": completions})
        shown.append({"name": run_name(runs, i), "groups": rows})
    columns, tables = {}, {}
    if ids:
        columns["tokens"] = np.array(ids, "<u4" if len(vocabulary) > 65535 else "<u2").tobytes()
        columns["coefficients"] = _thousandths(np.concatenate(coefficients))
        columns["log_probs"], tables["log_probs"] = _levels(-np.concatenate(log_probs))
        columns["entropies"], tables["entropies"] = _levels(np.concatenate(entropies))
    return {
        "runs": shown,
        "vocabulary": [visible(token) for token in vocabulary],
        "wide": len(vocabulary) > 65535,
        "tables": tables,
        "columns": columns,
        "notes": notes,
    }


def _evenly(groups: list[Group], has_credit: bool, budget: int) -> tuple[list[Group], int | None]:
    """
    Every n-th group, with the smallest n that fits into `budget`; at least one.

    If one is still too large, the second value is how many tokens (characters without token credit) fit of each of its
    completions, so that winners and losers stay. Otherwise it is `None`.
    """

    def size(group: Group) -> int:
        sizes = [TOKEN_SIZE * len(c.coefficients) if has_credit else _size(c.tokens()[0]) for c in group.completions]
        return _size(group.prompt) + COMPLETION_SIZE * len(sizes) + sum(sizes)

    sizes = [size(group) for group in groups]
    stride = 1
    while sum(sizes[::stride]) > budget and stride < len(groups):
        stride += 1
    kept = groups[::stride]
    if sum(sizes[::stride]) <= budget:
        return kept, None
    share = (budget - _size(kept[0].prompt)) // len(kept[0].completions) - COMPLETION_SIZE
    return kept, max(share // TOKEN_SIZE, 1)  # a character takes at most as much as a token


def _size(text: str) -> int:
    return len(text[:TEXT_LIMIT].encode("utf-8", "surrogatepass"))


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 4)


def _thousandths(values: np.ndarray) -> bytes:
    """Coefficients, which may be negative, in 16 bits: thousandths, -32768 where not known."""
    known = np.isfinite(values)
    rounded = np.clip(np.where(known, values, 0) * 1000, -32767, 32767).round()
    return np.where(known, rounded, -32768).astype("<i2").tobytes()


def _levels(values: np.ndarray) -> tuple[bytes, list[float]]:
    """Numbers >= 0 in 8 bits and the value of each level: finer near 0, where most of them are."""
    known = np.isfinite(values)
    values = np.where(known, values, 0).clip(0)
    top = float(values.max()) or 1.0
    levels = np.where(known, np.round(np.sqrt(values / top) * (UNKNOWN - 1)), UNKNOWN).astype(np.uint8)
    return levels.tobytes(), [round(top * (level / (UNKNOWN - 1)) ** 2, 5) for level in range(UNKNOWN)]
