"""summary.md: what the stages' JSON files say, in tables that can go into the docs as they are."""

from collections.abc import Callable, Iterator
from pathlib import Path

from .stage import STAGES, read


def write_summary(folder: Path) -> None:
    found = {name: read(folder / f"{name}.json") for name in STAGES}
    lines = ["# GPU check", ""]
    if any(stage and stage["dry"] for stage in found.values()):
        lines += ["**A dry run at tiny sizes: its numbers say nothing but that the kit works.**", ""]
    lines += ["| stage | status | seconds | device | left out |", "|---|---|---|---|---|"]
    for name, stage in found.items():
        if stage:
            left_out = "; ".join(stage["left_out"][:5]) + (" ..." if len(stage["left_out"]) > 5 else "")
            device = stage["machine"]["device"]
            lines.append(f"| {name} | {stage['status']} | {stage['seconds']:.0f} | {device} | {left_out} |")
    for name, stage in found.items():
        if stage:
            lines += ["", f"## {name}", ""]
            if stage["error"]:
                lines += ["```", stage["error"].strip()[-1500:], "```", ""]
            if stage["results"]:
                lines += SECTIONS[name](stage["results"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def interval(measured: dict, digits: int = 3) -> str:
    low, high = measured["quartiles"]
    return f"{measured['median']:.{digits}g} | {low:.{digits}g} to {high:.{digits}g} | {len(measured['all'])}"


def environment(results: dict) -> Iterator[str]:
    yield "Packages: " + ", ".join(f"{name} {version or '-'}" for name, version in results["packages"].items())
    if "nvidia_smi" in results:
        yield from ("", "```", results["nvidia_smi"], "```")
    if "rates" in results:
        yield from ("", "| best rate | T/s | quartiles | n |", "|---|---|---|---|")
        for name, measured in results["rates"].items():
            scaled = {key: [x / 1e12 for x in measured[key]] for key in ("quartiles", "all")}
            unit = "FLOP" if "float" in name else "B"
            yield f"| {name}, {unit} | {interval({**scaled, 'median': measured['median'] / 1e12})} |"


def tests(results: dict) -> Iterator[str]:
    counts = results.get("counts", {})
    yield ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
    for test in results.get("tests", ()):
        if test["outcome"] != "passed":
            yield f"- {test['outcome']}: `{test['name']}`: {test['said'].strip().splitlines()[0][:200]}"


def overhead(results: dict) -> Iterator[str]:
    for name, why in results.get("not_here", {}).items():
        yield from (f"{name}: not measured ({why}).", "")
    for name, variants in results.get("cases", {}).items():
        yield from (f"### {name}", "")
        columns = ("variant", "s per rollout batch", "quartiles", "n", "× GRPO", "coefficients, s", "extra passes")
        yield f"| {' | '.join(columns)} | peak GB | × roofline |"
        yield f"|{'---|' * (len(columns) + 2)}"
        measured = {variant: entry for variant, entry in variants.items() if "seconds" in entry}
        base = measured.get("grpo", {}).get("seconds", {}).get("median")
        for variant, entry in measured.items():
            ratio = f"{entry['seconds']['median'] / base:.2f}" if base else "-"
            yield (
                f"| {variant} | {interval(entry['seconds'])} | {ratio} | {entry['credit_seconds']:.3g} | "
                f"{entry['extra_forward_passes']:.0f} | {entry['peak_memory_mb'] * 2**20 / 1e9:.2f} | "
                f"{entry['times_roofline']:.2f} |"
            )
        yield ""


def language(results: dict) -> Iterator[str]:
    yield "| variant | accuracy before | after | quartiles | n | above DAPO, by seed | s a run |"
    yield "|---|---|---|---|---|---|---|"
    for name, entry in results.get("variants", {}).items():
        above = ", ".join(f"{x:+.3f}" for x in entry["above_dapo"])
        yield (
            f"| {name} | {entry['accuracy_before']:.3f} | {interval(entry['accuracy_after'])} | {above} | "
            f"{entry['seconds']['median']:.0f} |"
        )


SECTIONS: dict[str, Callable[[dict], Iterator[str]]] = {
    "environment": environment,
    "tests": tests,
    "overhead": overhead,
    "language": language,
}
