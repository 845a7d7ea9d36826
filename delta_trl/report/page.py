"""The report: one HTML file that opens offline."""

import base64
import gzip
import json
import math
import os
import secrets
from dataclasses import asdict
from pathlib import Path

import jinja2
import numpy as np
from plotly.offline import get_plotlyjs
from wordcloud.wordcloud import FONT_PATH

from .clouds import average, cloud, frequent_types
from .figures import Plot, curves, distributions, relations, run_name, token_table
from .heatmap import STYLE, legend, spread
from .run import HOW_TO_RECORD, Group, Run
from .text import label, visible


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
    credited = [run for run in runs if run.has_credit]
    tables = [token_table(run) for run in credited]
    coefficients = [c.coefficients for run in credited for group in run.groups for c in group.completions]
    full = spread(np.concatenate(coefficients or [[]]))
    plots: list[Plot] = []

    def add(new: list[Plot]) -> list[dict]:
        start = len(plots)
        plots.extend(new)
        return [
            {"index": start + i, "title": plot.title, "note": plot.note, "label": plot.label}
            for i, plot in enumerate(new)
        ]

    curve_plots = add(curves(runs))
    blocks = [
        {
            "name": run_name(runs, runs.index(run)),
            "distributions": add(distributions(table)),
            "relations": add(relations(table)),
        }
        for run, table in zip(credited, tables, strict=True)
    ]
    clouds = [_clouds(run, run_name(runs, i), min_count) for i, run in enumerate(runs) if run.token_types]
    shown = _completions(runs, full, step)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("page.html.j2").render(
        title=" and ".join(run_name(runs, i) for i in range(len(runs))),
        # The policy lets only scripts with this number run: a second wall behind escaping.
        nonce=secrets.token_urlsafe(16),
        style=STYLE,
        runs=[_summary(run, run_name(runs, i)) for i, run in enumerate(runs)],
        curves=curve_plots,
        blocks=blocks,
        clouds=clouds,
        min_count=min_count,
        cloud_font=base64.b64encode(Path(FONT_PATH).read_bytes()).decode() if clouds else "",
        legend=legend(full),
        how_to_record=HOW_TO_RECORD,
        notes=shown.pop("notes"),
        steps=sorted({group["step"] for run in shown["runs"] for group in run["groups"]}),
        columns={name: _packed(data) for name, data in shown.pop("columns").items()},
        completions=_packed(_json(shown)),
        figures=_packed(("[" + ",".join(plot.figure.to_json() for plot in plots) + "]").encode()),
        plotly=_packed(get_plotlyjs().encode()) if plots else "",
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.parent / f"{output.name}.tmp"  # so that a report is there as a whole or not at all
    try:
        temporary.write_text(html, encoding="utf-8")
        os.replace(temporary, output)
    finally:
        temporary.unlink(missing_ok=True)


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _json(value) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()  # ASCII, lone surrogates escaped


def _summary(run: Run, name: str) -> dict:
    """Name and key figures of a run, formatted."""
    figures = {}
    steps = max((entry["step"] for entry in run.history), default=None)
    if steps is not None:
        figures["optimiser steps"] = f"{steps:,}"
    for key, title, digits in (
        ("reward", "reward", 3),
        ("eval_reward", "reward in evaluation", 3),
        ("completions/mean_length", "completion length", 0),
        ("entropy", "entropy", 3),
        ("credit/between_sides_variance", "variance between sides", 2),
    ):
        values = [e[key] for e in run.history if isinstance(e.get(key), (int, float)) and math.isfinite(e[key])]
        if values:
            figures[title] = f"{values[0]:,.{digits}f} → {values[-1]:,.{digits}f}"
    if run.groups:
        completions = [c for group in run.groups for c in group.completions]
        figures["recorded completions"] = f"{len(completions):,}"
        if run.has_credit:
            values = np.concatenate([c.coefficients for c in completions])
            if np.isfinite(values).any():
                low, high = np.nanquantile(values, (0.05, 0.95))
                figures["coefficients, 5–95 %"] = f"{low:.2f} – {high:.2f}"
    return {"name": name, "path": visible(str(run.path), 200), "figures": figures, "has_credit": run.has_credit}


def _clouds(run: Run, name: str, min_count: int) -> dict:
    types = frequent_types(run.token_types, min_count)
    mean = average(run.token_types)
    rows = types if len(types) <= 2 * TABLE_ROWS else types[:TABLE_ROWS] + types[-TABLE_ROWS:]
    return {
        "name": name,
        "types": len(types),
        "average": mean,
        "high": cloud([t for t in types if t.mean > mean], mean),
        "low": cloud([t for t in types if t.mean < mean], mean),
        "rows": [asdict(row) for row in rows],
    }


def _completions(runs: list[Run], full: float, step: int | None) -> dict:
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
        rows = []
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
        "full": full,
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
    """Coefficients in 16 bits: thousandths, 65535 where not known."""
    known = np.isfinite(values)
    return np.where(known, np.clip(np.where(known, values, 0) * 1000, 0, 65534).round(), 65535).astype("<u2").tobytes()


def _levels(values: np.ndarray) -> tuple[bytes, list[float]]:
    """Numbers >= 0 in 8 bits and the value of each level: finer near 0, where most of them are."""
    known = np.isfinite(values)
    values = np.where(known, values, 0).clip(0)
    top = float(values.max()) or 1.0
    levels = np.where(known, np.round(np.sqrt(values / top) * (UNKNOWN - 1)), UNKNOWN).astype(np.uint8)
    return levels.tobytes(), [round(top * (level / (UNKNOWN - 1)) ** 2, 5) for level in range(UNKNOWN)]
