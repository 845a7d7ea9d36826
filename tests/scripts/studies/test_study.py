"""The studies: plans and their rows, statistics, resumption, and a tiny run."""

import json
import lzma
import math
import os
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from scripts.studies import contrasts, study, training
from scripts.studies import rows as study_rows
from scripts.studies.plans import FOLDER, Family, Plan, Section, read_plan, terms


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
    plan = read_plan(name)
    rows = rows_of(name)
    for section in plan.sections.values():
        planned = [*plan.tuning(section), *plan.runs(section, rows)]
        assert {run.key for run in planned} <= rows.keys
        finished = plan.finished(section, rows)
        assert finished
        for of_seeds in finished.values():
            assert len(of_seeds) == section.seeds


# --- statistics -----------------------------------------------------------------------------------------------------


def row_of(run: study_rows.Run, **found) -> dict:
    return dict(zip(study_rows.KEY, run.key, strict=True)) | found


def test_only_seeds_that_all_arms_have_and_one_start_model():
    section = Section("main", "study", 3, (("x", "a"), ("x", "b")))
    family = Family("f", ("main",), ("accuracy",), ("a - b",), ("x",))
    plan = Plan(
        "small",
        arms={"a": {}, "b": {}},
        phases={"study": {"rollouts": 1}},
        samples=1,
        rates=[1e-4],
        sections={"main": section},
        families=(family,),
    )
    made = []
    for arm, seed in (("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)):
        run = study_rows.Run("study", "x", arm, 1e-4, seed)
        made.append(row_of(run, accuracy_after=0.5))

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
    solved = [1, 0, 0, 1, 0]
    assert contrasts.pass_at(solved, 1) == pytest.approx(0.375)
    assert contrasts.pass_at(solved, 2) == pytest.approx(0.5)


# --- resumption -----------------------------------------------------------------------------------------------------


def test_a_killed_study_goes_on_and_repeats_nothing(tmp_path):
    """Some rows are packed, and the last one is cut off. A run that is being done is not begun again."""
    path = tmp_path / "rows.jsonl"
    locks = tmp_path / "locks"
    runs = [study_rows.Run("study", "programs", f"arm {i}", 1e-4, 0) for i in range(4)]
    rows = [row_of(run) for run in runs]
    packed, finished, cut_off, _ = map(json.dumps, rows)
    (tmp_path / "rows.jsonl.xz").write_bytes(lzma.compress(packed.encode()))
    path.write_text(f"{finished}\n{cut_off[:30]}")
    done = []

    def execute(run) -> dict:
        done.append(run)
        with study_rows.claimed(run, locks) as again:
            assert not again
        return rows[runs.index(run)]

    study_rows.work(runs, path, execute, locks)
    study_rows.work(runs, path, execute, locks)
    assert done == runs[2:]
    assert study_rows.read_rows(path).rows == rows


CODE = {"commit": "a", "versions": {"torch": "2.13.0"}}


def test_rows_of_the_same_code_are_gone_on_with():
    study.check_code(study_rows.Rows([]), CODE)
    study.check_code(study_rows.Rows([CODE | {"seed": 1}]), CODE)


@pytest.mark.parametrize(
    "other",
    [
        CODE | {"commit": "b"},
        CODE | {"versions": {"torch": "2.12.0"}},
        {"seed": 2},
    ],
    ids=["commit", "versions", "neither is known"],
)
def test_rows_of_other_code_are_refused(other):
    rows = study_rows.Rows([CODE, other])
    with pytest.raises(SystemExit, match="rows of other code"):
        study.check_code(rows, CODE)


# --- the real thing, small ------------------------------------------------------------------------------------------


OWN_GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_the_commit_is_the_last_one_that_changed_code(tmp_path, monkeypatch):
    """In a repository of its own. Rows and pages are no code."""
    monkeypatch.setattr(training, "ROOT", tmp_path)
    for name, value in OWN_GIT.items():
        monkeypatch.setenv(name, value)

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    def commit(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
        git("add", name)
        git("commit", "--message", name)
        return git("rev-parse", "HEAD").strip()

    assert training.commit() is None
    git("init")
    of_package = commit("delta_trl/code.py")
    commit("tests/test_code.py")
    commit("scripts/studies/results/rows.jsonl")
    commit("scripts/studies/README.md")
    assert training.commit() == of_package
    of_plan = commit("scripts/studies/plans/plan.yaml")
    (tmp_path / "scripts/studies/README.md").write_text("other text")
    assert training.commit() == of_plan
    (tmp_path / "delta_trl/code.py").write_text("other text")
    assert training.commit() == f"{of_plan}-dirty"


@pytest.mark.processes
def test_two_rollout_batches_with_looks(monkeypatch):
    monkeypatch.setattr(training, "commit", lambda: "the commit")
    phases = {
        "tune": {"rollouts": 1},
        "study": {"rollouts": 2},
        "long": {"rollouts": 2, "looks": 2},
    }

    def done(phase, arm, plan="mechanism") -> dict:
        small = replace(read_plan(plan), phases=phases, problems=16)
        run = study_rows.Run(phase, "arithmetic", arm, 2.5e-4, 0)
        return training.Runner(small)(run)

    plain = done("study", "dapo")
    assert len(plain["reward"]) == 2
    assert len(plain["grad_norm"]) == 2 * training.MINIBATCHES
    assert len(plain["start_model"]) == 12
    assert plain["processor"]
    assert plain["commit"] == "the commit"

    looked = done("long", "dapo")
    for name in ("reward", "grad_norm", "solved_after", "accuracy_before"):
        assert looked[name] == plain[name]  # looks change nothing
    looks = looked["looks"]
    assert [look["rollouts"] for look in looks] == [0, 1, 2]
    assert looks[-1]["accuracy"] == looked["accuracy_after"]

    valued = done("tune", "mc_value", "siblings")
    assert valued["reward"] == plain["reward"][:1]  # continuations come after the first rollout batch
    tokens_of_plain = contrasts.generated_tokens(plain)
    tokens_of_valued = contrasts.generated_tokens(valued)
    assert tokens_of_valued[1] > 3 * tokens_of_plain[1]

    exact = done("tune", "exact_0.1_unit")
    assert exact["losers"][0] / exact["winners"][0] == pytest.approx(0.1, rel=0.01)


def test_grades_are_remembered_and_failures_asked_again():
    asked = []

    def reward(completions, solution):
        asked.extend(completions)
        return [None if c == "?" else float(c == s) for c, s in zip(completions, solution, strict=True)]

    remembered = training.RememberedReward(reward)
    completions = ["1", "2", "1", "?"]
    prompts = ["a", "a", "b", "a"]
    for _ in range(2):
        grades = remembered(completions, prompts, solution=["1", "1", "2", "1"])
        assert grades == [1.0, 0.0, 0.0, None]
    assert asked == ["1", "2", "1", "?", "?"]


def test_of_a_completion_only_a_single_box_at_its_end_counts():
    assert training.gist("a \\boxed{12}") == "\\boxed{12}"
    for text in ("\\boxed{1} \\boxed{12}", "\\boxed{12} 13"):
        assert training.gist(text) == text
