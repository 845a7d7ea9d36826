"""
The files of an evaluation, and its table.

    NAME.jsonl    the samples of a benchmark, written while it is sampled
    NAME.json     its settings, versions of packages, and numbers; written last: a benchmark with it is finished
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pandas as pd

from ..arguments.differences import differences, in_words
from ..arguments.errors import UsageError
from ..files import write_json
from .metrics import bootstrap_interval, no_interval, pass_at_k, problem_means


# What samples and scores: `latex2sympy2_extended` parses for `math-verify`
PACKAGES = ("delta-trl", "torch", "transformers", "vllm", "math-verify", "latex2sympy2_extended", "sympy")


def read_samples(folder: Path, name: str, settings: dict) -> tuple[np.ndarray, list[str]]:
    """
    The samples of a finished benchmark with these settings, of shape (3, problems, k): rewards, NaN where there is
    none; lengths in tokens, the end token included; whether the length limit cut them off. And the prompts, as JSON.
    """
    path = folder / f"{name}.jsonl"
    values = []
    prompts = []
    with _naming(path), path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            values.append([row["reward"], row["length"], row["truncated"]])
            prompts.append(json.dumps(row["prompt"]))
        shape = (settings["num_problems"], settings["num_generations"], 3)
        samples = np.array(values, dtype=float).reshape(shape)
    return samples.transpose(2, 0, 1), prompts[:: settings["num_generations"]]


def read_results(path: Path) -> dict:
    """The content of a results file, with `settings`."""
    with _naming(path):
        content = json.loads(path.read_text())
        content["settings"]["num_generations"]
    return content


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise `UsageError` with the name of a damaged file."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a file of an evaluation, or is damaged ({error!r}). Move it away.") from error


def versions() -> dict[str, str]:
    """The versions of what samples and scores, as far as it is installed; of rewards and sandbox, a hash of each."""
    version_of = {installed.name: installed.version for installed in distributions() if installed.name in PACKAGES}
    package = Path(__file__).parents[1]
    for room in ("rewards", "sandbox"):
        files = sorted((package / room).rglob("*.py"))
        code = b"".join(map(Path.read_bytes, files))
        version_of[room] = hashlib.sha256(code).hexdigest()[:16]
    return version_of


def finished(folder: Path, name: str, settings: dict) -> bool:
    """
    Whether a benchmark has its results file.

    Raises:
        UsageError: If these are results of other settings; names the differences.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        return False
    changed = differences(read_results(path)["settings"], settings)
    if changed:
        raise UsageError(
            f"{path} holds results of other settings: {in_words(changed)}. Use the same settings, or another "
            "--output_dir."
        )
    return True


def write_results(folder: Path, name: str, settings: dict) -> None:
    """Write the results file of a benchmark, from its samples."""
    content = {
        "settings": settings,
        "versions": versions(),
        "results": numbers(*read_samples(folder, name, settings)),
    }
    write_json(content, folder / f"{name}.json")


def numbers(samples: np.ndarray, prompts: Sequence[str]) -> dict:
    """The results on problems, from samples and prompts as of [`read_samples`]."""
    rewards, lengths, truncated = samples
    k = rewards.shape[1]
    powers = [2**i for i in range(k.bit_length())]
    passes = {str(n): number(pass_at_k(rewards, n)) for n in sorted({*powers, k})}
    means = problem_means(rewards, prompts)
    return {
        "problems": len(rewards),
        "scored_problems": int(means.notna().sum()),
        "avg_at_k": number(means.mean()),
        "interval": list(map(number, bootstrap_interval(means))),
        "no_interval": no_interval(means),
        "pass_at_k": passes,
        "truncated": truncated.mean(),
        "mean_length": lengths.mean(),
        "unscored": int(np.isnan(rewards).sum()),
    }


def number(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if np.isnan(value) else value


def show(folder: Path, names: Sequence[str]) -> None:
    """Print the table of finished benchmarks."""
    rows = {}
    samples = []
    prompts = []
    for name in names:
        content = read_results(folder / f"{name}.json")
        settings = content["settings"]
        rows[name] = content["results"]
        of_benchmark, asked = read_samples(folder, name, settings)
        samples.append(of_benchmark)
        prompts += asked
    if len(rows) > 1:  # over problems: a benchmark weighs as much as it has
        rows["average (by problems)"] = numbers(np.concatenate(samples, axis=1), prompts)
    k = str(settings["num_generations"])  # as all other settings that are printed, the same for all benchmarks
    model = settings.get("adapter_name_or_path") or settings["model_name_or_path"]
    print("{model}, temperature {temperature:g}, top-p {top_p:g}".format(model=model, **settings))
    lines = [
        ["benchmark", "problems", f"avg@{k}", "95 % interval", f"pass@{k}", "truncated", "mean length", "unscored"]
    ]
    for name, row in rows.items():
        problems = str(row["problems"])
        if row["scored_problems"] < row["problems"]:
            problems = f"{row['scored_problems']} of {problems}"
        cells = [
            name,
            problems,
            mean(row["avg_at_k"]),
            row["no_interval"] or interval(row["interval"]),
            mean(row["pass_at_k"][k]),
            f"{row['truncated']:.1%}",
            f"{row['mean_length']:.0f}",
            str(row["unscored"]),
        ]
        lines.append(cells)
    print(table(lines))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as a Markdown table with aligned columns. The first row has the titles."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    titles, *others = rows
    lines = []
    for first, *cells in [titles, rule, *others]:
        aligned = [first.ljust(widths[0])]
        aligned += map(str.rjust, cells, widths[1:])
        lines.append(f"| {' | '.join(aligned)} |")
    return "\n".join(lines)


def mean(value: float | None) -> str:
    """A mean reward, on the scale of the rewards, as training prints it."""
    return "?" if pd.isna(value) else f"{value:.3f}"


def interval(ends: Sequence[float | None]) -> str:
    return " to ".join(map(mean, ends))
