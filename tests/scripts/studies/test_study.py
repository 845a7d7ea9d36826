"""The studies: plans and their rows, statistics, resumption, and a tiny run."""

import json
import lzma
import math
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from scripts.studies import contrasts, study
from scripts.studies import rows as study_rows
from scripts.studies.plans import FOLDER, Family, Plan, Section, read_plan, terms
from scripts.studies.training import MINIBATCHES, RememberedReward, Runner, gist


ROOT = Path(__file__).parents[3]
# those that are finished: their rows are packed
STUDIES = sorted(path.stem for path in FOLDER.glob("*.yaml") if (study.RESULTS / f"{path.stem}.jsonl.xz").exists())


# --- the rows --------------------------------------------------------------------------------------------------------


@cache
def rows_of(name: str) -> study_rows.Rows:
    return study_rows.read_rows(study.RESULTS / f"{name}.jsonl")


@pytest.mark.parametrize("name", STUDIES)
def test_a_plan_s_runs_have_their_rows(name):
    assert f"\n| {name}: " in (ROOT / "scripts/studies/README.md").read_text()
    plan, rows = read_plan(name), rows_of(name)
    for section in plan.sections.values():
        planned = {run.key for run in [*plan.tuning(section), *plan.runs(section, rows)]}
        assert planned <= rows.keys
        assert {len(of_seeds) for of_seeds in plan.finished(section, rows).values()} >= {section.seeds}


# --- statistics -----------------------------------------------------------------------------------------------------


def test_only_seeds_that_all_arms_have_and_one_start_model():
    section = Section("main", "study", 3, (("x", "a"), ("x", "b")))
    family = Family("f", ("main",), ("accuracy",), ("a - b",), ("x",))
    plan = Plan("small", {"a": {}, "b": {}}, {"study": {"rollouts": 1}}, 1, [1e-4], {"main": section}, (family,))
    made = []
    for arm, seed in ("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2):
        key = ("study", "x", arm, 1e-4, seed)
        made.append(dict(zip(study_rows.KEY, key, strict=True)) | {"accuracy_after": 0.5})
    [entry] = contrasts.compare(plan, family, "accuracy", study_rows.Rows(made))
    assert entry["n"] == 2
    assert math.isnan(entry["p"])  # no difference at all is no finding
    mixed = [row | {"start_model": str(i)} for i, row in enumerate(made)]
    with pytest.raises(ValueError, match="start_model"):
        contrasts.compare(plan, family, "accuracy", study_rows.Rows(mixed))


def test_a_contrast_may_have_weights():
    assert terms("a - 0.5 b - 0.5 a") == {"a": 0.5, "b": -0.5}


def test_pass_at_k_by_its_definition():
    # two problems with no and with three of four samples right: 0, and all but C(1, 2) of C(4, 2) pairs
    assert contrasts.pass_at([1, 0, 0, 1, 0], 1) == pytest.approx(0.375)
    assert contrasts.pass_at([1, 0, 0, 1, 0], 2) == pytest.approx(0.5)


# --- resumption -----------------------------------------------------------------------------------------------------


def test_a_killed_study_goes_on_and_repeats_nothing(tmp_path):
    """Some rows are packed, and the last one is cut off. A run that is being done is not begun again."""
    runs = [study_rows.Run("study", "programs", f"arm {i}", 1e-4, 0) for i in range(4)]
    rows = [dict(zip(study_rows.KEY, run.key, strict=True)) for run in runs]
    (tmp_path / "rows.jsonl.xz").write_bytes(lzma.compress(json.dumps(rows[0]).encode()))
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(rows[1])}\n{json.dumps(rows[2])[:30]}")
    done = []

    def execute(run) -> dict:
        done.append(run)
        with study_rows.claimed(run, tmp_path / "locks") as again:
            assert not again
        return rows[runs.index(run)]

    for _ in range(2):
        study_rows.work(runs, tmp_path / "rows.jsonl", execute, tmp_path / "locks")
    assert done == runs[2:]
    assert study_rows.read_rows(tmp_path / "rows.jsonl").rows == rows


def test_rows_of_other_code_are_refused():
    code = {"commit": "a", "versions": {"torch": "2.13.0"}}
    study.check_code(study_rows.Rows([]), code)
    study.check_code(study_rows.Rows([code | {"seed": 1}]), code)
    for other in (code | {"commit": "b"}, code | {"versions": {"torch": "2.12.0"}}, {"seed": 2}):
        with pytest.raises(SystemExit, match="rows of other code"):
            study.check_code(study_rows.Rows([code, other]), code)


# --- the real thing, small ------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_two_rollout_batches_with_looks():
    phases = {"tune": {"rollouts": 1}, "study": {"rollouts": 2}, "long": {"rollouts": 2, "looks": 2}}

    def row_of(phase, arm, plan="mechanism"):
        runner = Runner(replace(read_plan(plan), phases=phases, problems=16))
        return runner(study_rows.Run(phase, "arithmetic", arm, 2.5e-4, 0))

    plain, looked = row_of("study", "dapo"), row_of("long", "dapo")
    assert [len(plain["reward"]), len(plain["grad_norm"])] == [2, 2 * MINIBATCHES]
    for name in ("reward", "grad_norm", "solved_after", "accuracy_before"):
        assert looked[name] == plain[name]  # looks change nothing
    assert [look["rollouts"] for look in looked["looks"]] == [0, 1, 2]
    assert looked["looks"][-1]["accuracy"] == looked["accuracy_after"]
    assert len(plain["start_model"]) == 12 and plain["processor"]  # noqa: PT018
    changed = subprocess.run(
        ["git", "log", "-1", "--format=%H", "--", "delta_trl", "scripts/studies/*.py", "scripts/studies/plans"],
        cwd=ROOT, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    assert (plain["commit"] or "").removesuffix("-dirty") == changed
    valued = row_of("tune", "mc_value", "siblings")
    assert valued["reward"] == plain["reward"][:1]  # continuations come after the first rollout batch
    assert contrasts.generated_tokens(valued)[1] > 3 * contrasts.generated_tokens(plain)[1]
    exact = row_of("tune", "exact_0.1_unit")
    assert exact["losers"][0] / exact["winners"][0] == pytest.approx(0.1, rel=0.01)


def test_grades_are_remembered_and_failures_asked_again():
    asked = []

    def reward(completions, solution):
        asked.extend(completions)
        return [None if c == "?" else float(c == s) for c, s in zip(completions, solution, strict=True)]

    remembered = RememberedReward(reward)
    for _ in range(2):
        grades = remembered(["1", "2", "1", "?"], ["a", "a", "b", "a"], solution=["1", "1", "2", "1"])
        assert grades == [1.0, 0.0, 0.0, None]
    assert asked == ["1", "2", "1", "?", "?"]
    assert gist("a \\boxed{12}") == "\\boxed{12}"
    for text in ("\\boxed{1} \\boxed{12}", "\\boxed{12} 13"):
        assert gist(text) == text
