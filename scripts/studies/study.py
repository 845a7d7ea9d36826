"""
Runs a study, or recomputes its tables from its rows. plans/NAME.yaml says what a study is; README.md has what came of
the studies so far.

    python -m scripts.studies.study --study balance --report                  # every table of the second study
    python -m scripts.studies.study --study balance --report --families main  # those with "main" in their title
    OMP_NUM_THREADS=1 python -m scripts.studies.study --study mechanism --run  # appends to results/mechanism.jsonl

`--run` does what has no row yet. It can be stopped and started at will, and several times at once: a run that another
process is doing is skipped (by a lock on a file under outputs/study). Start one process per core. A study that is
finished is packed: `xz -9e results/NAME.jsonl`.
"""

import argparse
from pathlib import Path

from .contrasts import cells_of, differs_at_first, family_tables, section_table
from .plans import FOLDER, Plan, read_plan
from .rows import Rows, Run, read_rows, work


RESULTS = Path(__file__).with_name("results")
LOCKS = Path(__file__).parents[2] / "outputs" / "study" / "locks"


def run_all(plan: Plan, path: Path) -> None:
    """Every section in its order: first its tuning, then its runs."""
    import torch

    from .training import Runner  # needs transformers and TRL, which reports do not

    torch.set_num_threads(1)
    runner = Runner(plan)
    check_code(read_rows(path), runner.code)

    def execute(run: Run) -> dict:
        row = runner(run)
        print(*run.key, row["reward"][-1], row.get("accuracy_after"), f"{row['seconds']} s", flush=True)
        return row

    locks = LOCKS / plan.name
    for section in plan.sections.values():
        work(plan.tuning(section), path, execute, locks)
        runs = plan.runs(section, read_rows(path))
        work(runs, path, execute, locks)


def check_code(rows: Rows, code: dict) -> None:
    """Ends the process if rows that are there came of another commit or of other versions: they would be no pairs."""
    for row in rows.rows:
        for name, here in code.items():
            if row.get(name) != here:
                raise SystemExit(
                    f"This study has rows of other code: {name} {row.get(name)}, here {here}. Go on in a checkout of "
                    "that commit, with its constraints.txt, or give the study a new name."
                )


def report(plan: Plan, rows: Rows, families: str = "") -> str:
    parts = [f"# Tables of the study `{plan.name}`\n"]
    parts.append("Mean differences ± 95 % (Student's t), then p after Holm's correction where the plan tests.\n")
    chosen = [family for family in plan.families if families in family.title]
    sections = {}
    for family in chosen:
        parts += family_tables(plan, family, rows)
        other = differs_at_first(cells_of(plan, family, rows))
        if other:
            parts.append(f"Seeds whose arms did not begin with the same rollout batch: {', '.join(other)}.\n")
        for name in family.sections:
            sections[name] = plan.sections[name]
    parts += [section_table(plan, section, rows) for section in sections.values()]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    parser.add_argument("--study", required=True, choices=names)
    parser.add_argument("--run", action="store_true", help="do what has no row yet")
    parser.add_argument("--report", action="store_true", help="print tables")
    parser.add_argument("--families", default="", metavar="TEXT", help="of the report: those with TEXT in their title")
    args = parser.parse_args()
    plan = read_plan(args.study)
    path = RESULTS / f"{args.study}.jsonl"
    if args.run:
        run_all(plan, path)
    if args.report:
        print(report(plan, read_rows(path), args.families))


if __name__ == "__main__":
    main()
