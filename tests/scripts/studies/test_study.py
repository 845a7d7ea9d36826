"""The learning study and the stability study: tasks, resumption, statistics, and a tiny run of each."""

import dataclasses
import gc
import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from delta_trl.credit import Tokens, make_rule
from scripts.studies import answers as study_answers
from scripts.studies import dynamic_sampling, pages, stability, study
from scripts.studies import mechanism as study_mechanism
from scripts.studies import plans as study_plans
from scripts.studies import report as study_report
from scripts.studies import rules as study_rules
from scripts.studies import runs as study_runs
from scripts.studies import start_models as make_study_models
from scripts.studies import statistics as study_statistics
from scripts.studies.tasks import TASKS, first_mistake, right_tokens

from ...corpus import tiny


ROOT = Path(__file__).parents[3]


# --- statistics -----------------------------------------------------------------------------------------------------


def test_paired_comparison_against_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 12), rng.normal(0, 1, 12)
    compared = study_statistics.compare_pairs(a, b)
    t = stats.ttest_rel(a, b)
    low, high = t.confidence_interval(0.95)
    assert compared["p_t"] == pytest.approx(t.pvalue)
    assert (compared["low"], compared["high"]) == pytest.approx((low, high))
    assert compared["p_wilcoxon"] == pytest.approx(stats.wilcoxon(a, b).pvalue)
    assert compared["difference"] == pytest.approx(np.mean(a) - np.mean(b))


def test_no_difference_at_all_is_no_finding():
    compared = study_statistics.compare_pairs(np.ones(4), np.ones(4))
    assert compared["difference"] == 0
    assert math.isnan(compared["p_t"])
    assert math.isnan(compared["p_wilcoxon"])


@pytest.mark.parametrize("n", [5, 8, 16])
def test_detectable_difference_is_found_in_four_of_five_simulated_studies(n):
    shift = study_statistics.detectable_difference(sd=2.0, n=n)
    samples = np.random.default_rng(n).normal(shift, 2.0, (20_000, n))
    assert (stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.01)


def test_holm_by_its_definition():
    p = [0.01, 0.04, 0.03, math.nan, 0.005]
    adjusted = study_statistics.holm(p)
    assert adjusted[:3] + adjusted[4:] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert math.isnan(adjusted[3])


@pytest.mark.parametrize(
    ("after", "reward", "expected"),
    [
        (0.5, [0.3, 0.4, 0.5, 0.5, 0.5], False),
        (0.2, [0.3, 0.4, 0.5, 0.5, 0.5], True),  # worse than before
        (0.3, [0.3, 0.8, 0.8, 0.8, 0.3, 0.3, 0.3], True),  # lost what it had
        (0.5, [0.3, 0.9, 0.3, 0.4, 0.5, 0.5], False),  # one lucky batch is no summit
    ],
)
def test_collapse(after, reward, expected):
    assert study_statistics.collapsed({"accuracy_before": 0.3, "accuracy_after": after, "reward": reward}) is expected


def fake_row(run: study_runs.Run, **overrides) -> dict:
    rng = random.Random(repr(run))
    row = dict(zip(("phase", "task", "variant", "learning_rate", "seed"), run.key, strict=True))
    row |= {"reward": [0.3, 0.4, rng.random()], "grad_norm": [rng.random() for _ in range(4)], "seconds": 1.0}
    return row | {"accuracy_before": 0.3, "accuracy_after": rng.random()} | overrides


def test_learning_rate_with_the_best_second_half():
    ends = {1e-4: (0.5, 0.6), 2.5e-4: (0.9, 0.4), 6e-4: (0.1, 0.1)}
    rows = [
        fake_row(study_runs.Run("tune", "arithmetic", "delta", rate, seed), reward=[0.9 - rate, end])
        for rate, both in ends.items()
        for seed, end in enumerate(both)
    ]
    rows.append(fake_row(study_runs.Run("study", "arithmetic", "delta", 6e-4, 0), reward=[1.0, 1.0]))
    assert study_runs.best_tuned(rows, "arithmetic", ("delta",)) == ("delta", 2.5e-4)


def all_runs(plan: study_plans.Study, seeds: int = 99, chosen=lambda cell: True) -> list[study_runs.Run]:
    """Every run that a study asks for, each made as soon as it is asked for."""
    rows, runs = [], []
    for stage in plan.stages(chosen, seeds, rows.copy):
        assert len({run.phase for run in stage}) <= 1
        runs += stage
        rows += [fake_row(run) for run in stage]
    return runs


def test_of_the_language_model_only_the_area_over_both_tasks_is_tested():
    plan = study_plans.LANGUAGE
    rows = [fake_row(run, solved_after=[20, *[4] * 7, 16], entropy=[0.1]) for run in all_runs(plan)]
    (main,) = study_statistics.summarise(plan, rows)
    assert list(main["outcomes"]) == ["area", "accuracy", "pass@8", "entropy"]
    tested = [e for e in main["comparisons"] if not math.isnan(e["p_holm"])]
    assert {(e["outcome"], e["task"], e["pairs"]) for e in tested} == {("area", study_plans.ALL, 10)}
    assert {e["variant"] for e in tested} == {"losers_0.2", "winners_0.2", "delta"}
    expected = stats.ttest_rel(
        *([np.mean(row["reward"]) for row in rows if row["variant"] == arm] for arm in ("delta", "dapo"))
    )
    assert [e["p_t"] for e in tested if e["variant"] == "delta"] == [pytest.approx(expected.pvalue)]
    assert all(cell["pass@8"] == pytest.approx(44 / 64) for cell in main["cells"])


def test_report_pairs_by_task_and_seed(tmp_path):
    plan = study_plans.CREDIT
    runs = dict.fromkeys(all_runs(plan, seeds=4))
    lost = [run for run in runs if (run.phase, run.variant, run.seed) == ("study", "delta", 3)]
    rows = [fake_row(run) for run in runs if run not in lost]
    rows.append(fake_row(study_runs.Run("study", "programs", "delta", 9.0, 3), accuracy_after=100.0))  # another rate
    random.Random(0).shuffle(rows)
    tuned, common = study_statistics.summarise(plan, rows)
    entries = {(e["task"], e["variant"]): e for e in tuned["comparisons"] if e["outcome"] == "accuracy"}
    rates = plan.learning_rates(plan.sections[0], plan.sections[0].cells, rows)
    after = {
        (row["task"], row["variant"], row["seed"]): row["accuracy_after"]
        for row in rows
        if row["phase"] == "study" and row["learning_rate"] == rates[row["task"], row["variant"]]
    }
    for task in plan.tasks:
        expected = stats.ttest_rel(*([after[task, v, seed] for seed in range(3)] for v in ("delta", "dapo")))
        assert entries[task, "delta"]["p_t"] == pytest.approx(expected.pvalue)
        # of a section without all of its runs, all variants are reported on the same seeds
        assert {e["pairs"] for (of, _), e in entries.items() if of == task} == {3}
        p_values = sorted(e["p_t"] for (of, _), e in entries.items() if of == task)
        assert min(e["p_holm"] for (of, _), e in entries.items() if of == task) == pytest.approx(
            min(1, p_values[0] * len(p_values))
        )
    assert entries[study_plans.ALL, "delta"]["pairs"] == 6
    assert common["rate_is_their_own"] == {
        task: [variant for variant in plan.variants if rates[task, variant] == rates[task, "dapo"]]
        for task in plan.tasks
    }
    assert tuned["rate_is_their_own"] == {}
    by_rate = {cell["learning_rate"] for cell in common["cells"] if cell["task"] == "programs"}
    assert by_rate == {rates["programs", "dapo"]}

    study_report.write_report(plan, rows, tmp_path / "credit")
    page = (tmp_path / "credit.md").read_text()
    assert page.count("| select_random − dapo |") == 4  # two outcomes at two rates
    assert {path.suffix for path in tmp_path.iterdir()} == {".md", ".json", ".png"}


def test_families_are_those_of_the_plan():
    plan = study_plans.BALANCE

    def tests(section: int) -> dict:
        counts = {}
        for family, (task, _), _ in study_statistics.planned_pairs(plan, plan.sections[section]):
            counts[task, family] = counts.get((task, family), 0) + 1
        return counts

    main = tests(0)
    for task in ("arithmetic", "programs", "own_errors"):
        assert [main[task, family] for family in study_statistics.FAMILIES] == [12, 7, 5]
    pairs = study_statistics.planned_pairs(plan, plan.sections[0])
    references = {(f, variant): reference for f, (_, variant), (_, reference) in pairs}
    assert references["side_matched", "top_sibling"] == "losers_0.2"
    assert references["shuffled", "top_sibling"] == "top_random"
    assert references["side_matched", "delta"] == "delta_side_mean"
    assert {reference for (f, _), reference in references.items() if f == "baseline"} == {"dapo"}
    for task in ("sparse", "long"):
        assert [main[task, family] for family in study_statistics.FAMILIES] == [10, 6, 1]
    assert set(tests(1)) == {(task, "baseline") for task in study_plans.SHORT_TASKS}
    rest = study_statistics.planned_pairs(plan, plan.sections[2])
    # a rule of the main section whose control comes later is compared with it there
    assert (
        "shuffled",
        ("arithmetic", "optimal_token_baseline"),
        ("arithmetic", "optimal_token_baseline_shuffled"),
    ) in rest
    assert not {variant for family, (_, variant), _ in rest if family == "baseline"} & set(study_plans.MAIN)


def planted(run: study_runs.Run, gains: dict[str, float]) -> dict:
    """A row with known differences from DAPO, and a bit of noise. In its second rollout batch nobody lost."""
    rng = random.Random(repr(run))
    solved = [8, *[0] * 55, *[7] * 8, 0]  # of 64 problems: none in 64, or 56 to 63 samples
    return fake_row(
        run,
        accuracy_after=0.5 + gains.get(run.variant, 0.0) + rng.gauss(0, 0.005),
        entropy=[0.1] * 8,
        length=[50.0],
        winners=[1.2, None, 1.2],
        losers=[0.4, None, 0.4],
        looks=[{"accuracy": None}, {"accuracy": 0.5}, {"rollouts": 64, "solved": solved, "accuracy": 0.5}],
    )


GAINS = {"losers_0.2": 0.05, "top_sibling": 0.08, "top_random": 0.05, "oracle": 0.002, "losers_0": -0.05}


@pytest.mark.slow
@pytest.mark.parametrize("undone", [False, True])
def test_verdict_by_the_criteria_of_the_plan(undone):
    plan = study_plans.BALANCE
    later = GAINS | {"losers_0.2": -0.05 if undone else 0.02}
    rows = [planted(run, GAINS if run.phase == "study" else later) for run in dict.fromkeys(all_runs(plan, seeds=8))]

    def verdicts(rows: list[dict], *variants: str) -> list[bool | None]:
        main, long = map(study_answers.Comparisons, study_statistics.summarise(plan, rows)[:2])
        return [study_answers.holds_up(main, long, variant)["holds"] for variant in variants]

    # the last has no long runs
    variants = ("losers_0.2", "losers_0", "oracle", "top_sibling")
    assert verdicts(rows, *variants) == [not undone, False, False, None]
    # three of the four tasks' long runs say nothing about the fourth; two in which it loses undo it all the same
    cut = [row for row in rows if row["phase"] != "long" or row["task"] != "sparse"]
    assert verdicts(cut, "losers_0.2") == [False if undone else None]
    one = [row for row in rows if row["phase"] != "long" or row["task"] == "sparse"]
    assert verdicts(one, "losers_0.2") == [None]

    main, _, rest = study_statistics.summarise(plan, rows)[:3]
    assert not any(e["p_holm"] >= 0 for e in main["comparisons"] if e["task"] == study_plans.ALL)  # no test
    found = [study_answers.Comparisons(part) for part in (main, rest)]
    short = found[0].over(study_answers.FULL, "accuracy", "baseline", "losers_0.2")
    assert len(short) == 5
    assert all(entry["difference"] == pytest.approx(0.05, abs=0.01) for entry in short.values())
    assert all(cell["losers"] == pytest.approx(0.4) for cell in main["cells"])
    lines = [line.split(" | ") for line in study_answers.which_token_matters(*found).splitlines()[2:]]
    told = {line[0].strip("| "): (line[1], line[-1].strip("| ")) for line in lines}
    assert told["top_sibling"] == ("arithmetic, programs, sparse, own_errors, long of 5", "matters")
    assert told["oracle"] == told["delta"] == ("none of 3", "matters little")
    assert told["optimal_token_baseline"][0] == "none of 2"  # its shuffled control runs with the rest
    assert told["top_random"][0] == "not shuffled"


@pytest.mark.slow
def test_report_of_the_second_study_says_what_is_missing(tmp_path):
    plan = study_plans.BALANCE
    rows = [planted(run, GAINS) for run in dict.fromkeys(all_runs(plan, seeds=3))]
    lacks = [row for row in rows if row["phase"] == "long" and row["task"] == "sparse"]
    lacks += [row for row in rows if row["phase"] == "saturation" or row["task"] == "longest"]
    lacks += [row for row in rows if (row["phase"], row["task"], row["variant"]) == ("study", "long", "delta")][:2]
    study_report.write_report(plan, [row for row in rows if row not in lacks], tmp_path / "balance")
    page = (tmp_path / "balance.md").read_text()
    assert "arithmetic 3 of 16, programs 3 of 16, own_errors 3 of 16, sparse 3 of 16, long 1 of 16," in page
    assert "arithmetic 3 of 5, programs 3 of 5, sparse 0 of 5, own_errors 3 of 5." in page
    assert "longest 0 of 6." in page
    assert "| long | 50 | 0.300 |" in page  # one seed: a difference, but no interval
    assert "nan" not in page.lower()
    numbers = json.loads((tmp_path / "balance.json").read_text(), parse_constant=pytest.fail)
    with_long = [part["seeds"]["long"] for part in numbers if "long" in part["seeds"]]
    assert with_long == [1, 3]  # at their own rate, and at DAPO's
    assert {path.name for path in tmp_path.iterdir()} == {
        "balance.md",
        "balance.json",
        "balance_curves.png",
        "balance_differences.png",
    }
    with pytest.raises(SystemExit, match="nothing to report"):
        study_report.write_report(plan, [], tmp_path / "empty")
    assert not (tmp_path / "empty.json").exists()


def test_what_exact_labels_may_still_bring_is_told_with_what_was_not_found():
    def entry(task: str, outcome: str, difference: float, p: float) -> dict:
        half = 0.02
        found = {
            "task": task,
            "outcome": outcome,
            "family": "side_matched",
            "variant": "oracle",
            "difference": difference,
        }
        return found | {"low": difference - half, "high": difference + half, "sd": 0.04, "pairs": 16, "p_holm": p}

    tasks = {"arithmetic": (-0.03, 0.01), "sparse": (0.03, 0.2)}
    entries = [entry(task, "accuracy", *found) for task, found in tasks.items()]
    entries += [entry("arithmetic", "area", 0.0, 1.0), entry("sparse", "area", 0.03, 0.034)]
    summary = {"seeds": dict.fromkeys(tasks, 16), "cells": [], "comparisons": entries}
    told = study_answers.share_of_oracle([study_answers.Comparisons(summary)])
    # two differences with one error: Q is the square of theirs over twice the error's
    assert f"Cochran's Q is {0.06**2 / (2 * 0.01**2):.0f} on 1 degrees of freedom, p < 0.001." in told
    assert "no gap for a rule to close was detected" in told
    assert "room for one of up to 0.050 on sparse." in told
    assert "Above zero there with corrected p < 0.05: sparse (p 0.034)." in told


def test_collapsed_runs_are_also_left_out_and_looks_are_averaged():
    plan = study_plans.BALANCE
    runs = [run for run in dict.fromkeys(all_runs(plan, seeds=4)) if run.phase in ("tune", "long")]
    rows = [planted(run, GAINS) for run in runs if run.task in ("arithmetic", "sparse")]
    cell = {"phase": "long", "task": "sparse", "variant": "dapo", "seed": 2}
    (down,) = [row for row in rows if cell.items() <= row.items()]
    down["accuracy_after"] = 0.01
    for row in rows:
        if row["phase"] == "long":
            row["looks"] = [{"accuracy": a} for a in (None, 0.2, row["accuracy_after"])] + row["looks"][-1:]
            row["looks"][-1]["accuracy"] = 0.9
    long = study_statistics.summarise(plan, rows)[1]
    entries = {(e["outcome"], e["task"], e["variant"]): e for e in long["comparisons"]}
    after = {
        (row["variant"], row["seed"]): row["accuracy_after"]
        for row in rows
        if (row["phase"], row["task"]) == ("long", "sparse")
    }
    differences = [after["losers_0.2", seed] - after["dapo", seed] for seed in range(4)]
    found = entries["accuracy", "sparse", "losers_0.2"]
    assert found["difference"] == pytest.approx(np.mean(differences))
    rest = [d for seed, d in enumerate(differences) if seed != 2]
    assert found["without_collapsed"]["difference"] == pytest.approx(np.mean(rest))
    assert found["without_collapsed"]["pairs"] == 3
    assert "without_collapsed" not in entries["accuracy", "arithmetic", "losers_0.2"]
    assert " without collapsed" in study_report.comparison_cell(found)
    assert entries["looks", "sparse", "losers_0.2"]["difference"] == pytest.approx(np.mean(differences) / 3)


SIDES = {"losers_0.2": 0.05, "losers_0.2_not_annealed": 0.05, "losers_0.2_unit": 0.04, "winners_0.2": -0.1}


def mechanism_rows(gains: dict[str, float], seeds: int = 8) -> list[dict]:
    """Rows with these differences from DAPO. Of the weights, 0.03 tunes best."""
    rows = []
    for stage in study_plans.MECHANISM.stages(lambda cell: True, seeds, rows.copy):
        for run in stage:
            gain = gains.get(run.variant, 0.0)
            row = planted(run, {run.variant: gain}) | {"commit": "of the plan"}
            rows.append(row | {"reward": [0.5, 0.5 + gain + 0.1 * ("_0.03_" in run.variant)]})
    return rows


@pytest.mark.processes
@pytest.mark.parametrize(
    ("gains", "general", "wrong_word"),
    [
        (SIDES, "It is the sides, neither step size nor prompts: all that the plan asks for holds on a", "none"),
        (SIDES | {"annealed": 0.04}, "It is said task by task", "arithmetic, programs, own_errors, long"),
        (SIDES | {"winners_0.2": 0.05}, "It is said task by task", "arithmetic, programs, own_errors, long"),
        ({"annealed": 0.04}, "It is said task by task", "none"),  # losers gain nothing that could be explained
    ],
)
def test_third_study_concludes_as_its_plan_says(gains, general, wrong_word, tmp_path):
    rows = mechanism_rows(gains | {"exact_0.03_unit": 0.03})
    study_mechanism.write_report(study_plans.MECHANISM, rows, tmp_path / "mechanism")
    page = (tmp_path / "mechanism.md").read_text()
    assert f"- {general}" in page
    assert f'- "Losers" is the wrong word on: {wrong_word}.\n' in page
    assert "Tokens, exact labels gain: exact labels are clearly above" in page
    assert "| exact_best_unit | exact_0.03_unit | exact_0.03_unit | exact_0.03_unit | exact_0.03_unit |" in page
    assert "arithmetic 8 of 16" in page

    numbers = json.loads((tmp_path / "mechanism.json").read_text(), parse_constant=pytest.fail)
    after = {(row["variant"], row["seed"]): row["accuracy_after"] for row in rows if row["task"] == "long"}
    arms = ("dapo", "losers_0.2", "annealed")
    dapo, losers, annealed = (np.array([after[arm, seed] for seed in range(3000, 3008)]) for arm in arms)
    assert numbers["gains"]["long"]["annealed"]["p_t"] == pytest.approx(stats.ttest_rel(annealed, dapo).pvalue)
    half = stats.ttest_1samp((annealed - dapo) - (losers - dapo) / 2, 0)
    assert numbers["halves"]["long"]["annealed"]["p_t"] == pytest.approx(half.pvalue)


def test_third_study_reports_the_seeds_that_all_arms_of_a_task_have(tmp_path):
    rows = mechanism_rows(SIDES, seeds=3)
    last = [row for row in rows if row["task"] == "programs" and row["phase"] == "study"][-1]
    tuning = [row for row in rows if row["task"] == "long" and row["phase"] == "tune"][-1]
    runs = study_mechanism.complete_runs(study_plans.MECHANISM, [r for r in rows if r not in (last, tuning)])
    assert {task: len(arms["dapo"]) for task, arms in runs.items()} == {
        "arithmetic": 3,
        "programs": 2,
        "own_errors": 3,
    }
    with pytest.raises(SystemExit, match="nothing to report"):
        study_mechanism.write_report(study_plans.MECHANISM, [], tmp_path / "empty")


def test_tables_are_replaced_not_repeated(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- tables -->\nold\n<!-- end of tables -->\n\nafter\n")
    for text in ("| new |", "| new |", "| newer |"):
        pages.put_tables(page, text)
        assert page.read_text() == f"before\n\n<!-- tables -->\n\n{text}\n<!-- end of tables -->\n\nafter\n"


def test_pass_within_k_of_counted_problems():
    # two problems with no and with three of four samples right: 0, and all but C(1, 2) of C(4, 2) pairs
    assert study_statistics.solved_within([1, 0, 0, 1, 0], 1) == pytest.approx(0.375)
    assert study_statistics.solved_within([1, 0, 0, 1, 0], 2) == pytest.approx(0.5)


# --- resumption -----------------------------------------------------------------------------------------------------

WORKER = """
import time
from pathlib import Path
from scripts.studies import runs as study_runs
cells = [("programs", f"variant {{i}}") for i in range(16)]
runs = study_runs.study_runs(dict.fromkeys(cells, 1e-4), range(2))
def execute(run):
    time.sleep(0.05)
    return dict(zip(("phase", "task", "variant", "learning_rate", "seed"), run.key))
study_runs.work(runs, Path({results!r}), execute, Path({locks!r}), wait_seconds=0.1)
"""


def test_killed_study_goes_on_and_repeats_nothing(tmp_path):
    results, locks = tmp_path / "rows.jsonl", tmp_path / "locks"
    code = WORKER.format(results=str(results), locks=str(locks))

    def start():
        return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)

    def keys():
        return [study_runs.run_key(row) for row in study_runs.read_rows(results)]

    killed = start()
    while len(keys()) < 3:
        assert killed.poll() is None
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    results.write_bytes(results.read_bytes() + b'{"phase": "study", "ta')  # as if killed in the middle of a row
    before = keys()
    others = [start(), start()]
    assert [other.wait(timeout=120) for other in others] == [0, 0]
    assert keys()[: len(before)] == before
    assert len(keys()) == len(set(keys())) == 2 * 16
    assert [key[4] for key in keys()] == sorted(key[4] for key in keys())  # seed by seed


def test_a_run_in_progress_is_left_to_its_process(tmp_path):
    run = study_runs.Run("study", "programs", "delta", 1e-4, 0)
    with study_runs.claimed(run, tmp_path) as first, study_runs.claimed(run, tmp_path) as second:
        assert (first, second) == (True, False)
    with study_runs.claimed(run, tmp_path) as again:
        assert again


# --- the real thing, small ------------------------------------------------------------------------------------------


def test_runners_train_in_folders_of_their_own(tmp_path):
    run = study_runs.Run("tune", "arithmetic", "dapo", 1e-3, 0)
    runners = [study.Runner(study_plans.CREDIT, folder=tmp_path) for _ in range(2)]
    configs = [runner.config(run, study.task_of(run)) for runner in runners]
    assert configs[0].output_dir != configs[1].output_dir


@pytest.mark.processes
def test_two_rollout_batches_of_two_variants(tmp_path):
    runner = study.Runner(study_plans.CREDIT, {"tune": 1, "study": 2}, test_problems=32)
    results = tmp_path / "rows.jsonl"
    runs = [study_runs.Run("study", "arithmetic", variant, 2.5e-4, 0) for variant in ("dapo", "delta")]
    study_runs.work(runs, results, runner, tmp_path / "locks")
    dapo, delta = study_runs.read_rows(results)
    assert [len(row["reward"]) for row in (dapo, delta)] == [2, 2]
    assert [len(row["grad_norm"]) for row in (dapo, delta)] == [8, 8]
    assert dapo["accuracy_before"] == delta["accuracy_before"]
    assert dapo["reward"][0] == delta["reward"][0]  # the same problems, the same samples
    assert dapo["grad_norm"] != delta["grad_norm"]
    assert 0 < dapo["accuracy_before"] < 0.7
    again = runner(runs[0])
    assert again["reward"] == dapo["reward"]
    assert again["grad_norm"] == dapo["grad_norm"]


@pytest.mark.processes
def test_a_language_model_takes_chats(tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}={% endfor %}"
    for part in (tokenizer, tiny.model()):
        part.save_pretrained(tmp_path / study.LANGUAGE_MODEL.name)
    runner = study.LanguageRunner(study_plans.LANGUAGE, {"study": 1}, test_problems=4, models=tmp_path)
    row = runner(study_runs.Run("study", "sums", "winners_0.2", 1e-5, 0))
    assert len(row["grad_norm"]) == study_runs.MINIBATCHES
    nothing = [4] + [0] * study_plans.LANGUAGE.samples  # by a random model
    assert row["solved_before"] == row["solved_after"] == nothing
    assert row["length"][0] > 20


def test_dynamic_sampling_is_compared_at_the_same_effort(tmp_path):
    def row(variant, seed, ratio, seconds, accuracy):
        dynamic = {name: [ratio] * 2 for name in dynamic_sampling.LOGGED} if ratio > 1 else {}
        looks = [{"rollouts": n, "accuracy": a} for n, a in enumerate((None, accuracy / 2, accuracy))]
        return {
            **{"task": "sparse", "variant": variant, "seed": seed, "accuracy_before": 0.0, "looks": looks},
            **{"length": [62.5] * 2, "step_seconds": [seconds] * 8, "dynamic_sampling": dynamic},
        }

    rows = [row("dapo", s, 1, 1.0, 0.4) for s in (1, 2)] + [row("dynamic_sampling", s, 4, 2.0, 0.8) for s in (1, 2)]
    dynamic_sampling.write_report(study_plans.DYNAMIC_SAMPLING, rows, tmp_path / "page")
    page = (tmp_path / "page.md").read_text()
    assert "| 2 rollout batches | 0.400 | 0.800 |" in page
    assert "| 0.016 million generated tokens | 0.400 | 0.200 |" in page  # a quarter of the way
    assert "| 0.133 minutes of training | 0.400 | 0.400 |" in page  # half of the way


def test_a_language_model_s_accuracy_on_the_way_is_the_reward_before_groups_are_replaced():
    row = {"task": "sums", "length": [62.5] * 2, "reward": [0.5, 0.6], "accuracy_after": 0.4, "dynamic_sampling": {}}
    spent = dynamic_sampling.generated_tokens(row)
    assert spent.tolist() == pytest.approx([0, 0.004, 0.008])
    assert dynamic_sampling.accuracy_at(row, spent, 0.006) == pytest.approx(0.5)
    replaced = row | {"dynamic_sampling": {"reward_before": [0.1, 0.2], "tokens_per_trained_token": [2.0, 2.0]}}
    spent = dynamic_sampling.generated_tokens(replaced)
    assert dynamic_sampling.accuracy_at(replaced, spent, 0.004) == pytest.approx(0.15)


def test_processes_share_no_working_folder_and_rows_tell_what_made_them(tmp_path):
    """A trainer writes there, so another process's may be read or replaced half-written."""
    run = study_runs.Run("tune", "arithmetic", "delta", 2.5e-4, 0)
    runners = [study.Runner(study_plans.CREDIT, {"tune": 1}, folder=tmp_path) for _ in range(2)]
    folders = [Path(runner.config(run, TASKS["arithmetic"]).output_dir) for runner in runners]
    assert folders[0] != folders[1]
    row = runners[0](run)
    assert row["settings"] == {"token_credit": "delta"}
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert (row["commit"] or "").removesuffix("-dirty") == head  # both empty outside a checkout
    task = TASKS["arithmetic"]
    assert row["start_model"] == runners[1].digest(task)
    with torch.no_grad():
        runners[1].load(task)[0].lm_head.weight[0, 0] += 1e-6
    runners[1].digests.clear()
    assert row["start_model"] != runners[1].digest(task)
    del runners[0]
    gc.collect()
    assert [folder.exists() for folder in folders] == [False, True]


@pytest.mark.slow
def test_long_run_looks_on_the_way_and_changes_nothing_by_it(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "LOOK_PROBLEMS", 4)
    monkeypatch.setattr(study, "LOOK_SAMPLES", 3)
    runner = study.Runner(study_plans.BALANCE, {"study": 4, "long": 4}, test_problems=8)
    short, long = (runner(study_runs.Run(phase, "arithmetic", "dapo", 2.5e-4, 0)) for phase in ("study", "long"))
    assert long["reward"] == short["reward"]
    assert long["grad_norm"] == short["grad_norm"]
    assert long["solved_after"] == short["solved_after"]
    assert sum(long["solved_after"]) == 8
    assert len(long["solved_after"]) == study_plans.BALANCE.samples + 1
    assert [look["rollouts"] for look in long["looks"]] == [0, 1, 2, 3, 4]
    assert [sum(look["solved"]) for look in long["looks"]] == [4] * 5
    assert long["looks"][-1]["accuracy"] == long["accuracy_after"]
    assert short["winners"] == []  # no weights at all
    assert len(short["length"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in study_plans.REST else [])
        for name in study_plans.BALANCE.variants
    ],
)
def test_each_variant_of_the_second_study_trains(variant):
    runner = study.Runner(study_plans.BALANCE, {"tune": 1})
    row = runner(study_runs.Run("tune", "arithmetic", variant, 2.5e-4, 0))
    assert all(math.isfinite(value) for value in row["grad_norm"])
    # STARE weighs micro-batches
    of_rollouts = variant not in ("dapo", "grpo") and not variant.startswith("stare")
    assert len(row["losers"]) == int(of_rollouts)
    # where losers keep 20 % of winners' weight, whatever tokens that lies on
    if variant.startswith(("top_", "oracle_at_0.2")) or variant == "losers_0.2":
        assert row["losers"][0] / row["winners"][0] == pytest.approx(0.2, abs=0.01)
    if variant == "adaptive_sides":  # a few losers with enormous gradients
        assert row["losers"][0] / row["winners"][0] < 0.3
    if of_rollouts and variant.endswith(("_side_mean", "_shuffled")):  # the weight of sides is the rule's
        of = runner(study_runs.Run("tune", "arithmetic", study_plans.BALANCE.controls[variant], 2.5e-4, 0))
        assert row["losers"][0] == pytest.approx(of["losers"][0], rel=1e-3)
        assert row["winners"][0] == pytest.approx(of["winners"][0], rel=1e-3)


@pytest.mark.slow
def test_lora_run():
    runner = study.Runner(study_plans.BALANCE, {"tune": 1})
    full, lora = (
        runner(study_runs.Run("tune", task, "oracle", 1e-3, 0)) for task in ("arithmetic", "arithmetic+lora")
    )
    assert lora["reward"] == full["reward"]  # one rollout batch of the start model
    assert lora["grad_norm"] != full["grad_norm"]


def test_second_study_asks_for_no_run_twice_and_controls_share_the_rate_of_their_rule():
    plan = study_plans.BALANCE
    every = all_runs(plan)
    assert {run.task for run in every} == set(plan.tasks)
    assert {run.variant for run in every} == set(plan.variants)
    main = [run for run in every if run.phase == "study"]
    first = len(study_plans.MAIN_CELLS)
    assert [run.seed for run in main[: 2 * first]] == [0] * first + [1] * first  # seed by seed
    rates = {}
    for run in every:
        if run.phase == "long":
            assert run.key[1:] in {other.key[1:] for other in main}  # goes on with a rate of the short runs
        if run.phase == "study":
            rates.setdefault((run.task, run.variant), set()).add(run.learning_rate)
    for task, variant in rates:
        assert rates[task, variant] & rates[task, plan.controls.get(variant, variant)]
    tuned = {run.variant for run in every if run.phase == "tune"}
    assert not tuned & set(plan.controls)


def test_third_study_has_seeds_of_its_own_and_chooses_the_weight_of_losers_on_others():
    plan, balance = study_plans.MECHANISM, study_plans.BALANCE
    rows = study_runs.read_rows(study.RESULTS / "balance.jsonl")
    dapo = [(task, "dapo") for task in plan.tasks]
    tuned = balance.learning_rates(balance.sections[0], dapo, rows)
    assert plan.learning_rates(plan.sections[0], dapo, []) == tuned  # needs no tuning of its own

    best = {("programs", "exact_0.01_unit"), ("programs", "uniform_0.3_unit")}
    done, runs = [], []
    for stage in plan.stages(lambda cell: True, 99, done.copy):
        runs += stage
        done += [fake_row(run, reward=[0.0, 0.9 if (run.task, run.variant) in best else 0.1]) for run in stage]
    tuning = [run for run in runs if run.phase == "tune"]
    assert runs[: len(tuning)] == tuning
    assert {run.variant for run in tuning} == {*study_plans.EXACT, *study_plans.UNIFORM}
    seeds = [{run.seed for run in part} for part in (tuning, runs[len(tuning) :])]
    assert seeds == [{4000, 4001, 4002, 4003}, set(range(3000, 3016))]
    assert not (seeds[0] | seeds[1]) & {row["seed"] for row in rows}
    arms = len(plan.tasks) * (len(study_plans.MECHANISM_ARMS) + 2)
    assert [run.seed for run in runs[len(tuning) :]] == [seed for seed in range(3000, 3016) for _ in range(arms)]
    chosen = {(run.task, run.variant) for run in runs[len(tuning) :]}
    assert {cell for cell in chosen if cell[0] == "programs" and cell[1] not in study_plans.MECHANISM_ARMS} == best


@pytest.mark.slow
@pytest.mark.parametrize("variant", study_plans.MECHANISM.variants)
def test_each_arm_of_the_third_study_trains(variant):
    runner = study.Runner(study_plans.MECHANISM, {"tune": 1})
    run = study_runs.Run("tune", "arithmetic", variant, 2.5e-4, 0)
    row = runner(run)
    assert all(math.isfinite(value) for value in row["grad_norm"])
    assert row["settings"] == json.loads(json.dumps(study_plans.MECHANISM.variants[variant]))
    assert runner.config(run, TASKS["arithmetic"]).max_grad_norm == (0.01 if variant.endswith("_unit") else 1.0)
    if variant.startswith("dapo"):
        assert row["losers"] == []
        return
    ratio = row["losers"][0] / row["winners"][0]
    if variant == "prompt_weights":  # losers are mostly of prompts of which few win
        assert ratio > 1
        return
    name, _, weight = variant.removesuffix("_unit").removesuffix("_not_annealed").partition("_")
    expected = {"annealed": 1.0, "winners": 5.0}.get(name) or float(weight)
    assert ratio == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_steps_of_one_size_do_not_know_a_factor_of_the_batch():
    arms = {"unit": study_plans.unit_steps(study_plans.DAPO)}
    arms |= {"annealed_unit": study_plans.unit_steps(study_plans.MECHANISM.variants["annealed"])}
    plan = dataclasses.replace(study_plans.MECHANISM, variants=arms)
    weights = []
    for arm in arms:
        runner = study.Runner(plan, {"tune": 1})
        model = runner.train(study_runs.Run("tune", "arithmetic", arm, 2.5e-4, 0)).model
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    start = torch.cat([p.detach().flatten() for p in runner.load(TASKS["arithmetic"])[0].parameters()])
    assert (weights[0] - weights[1]).norm() < 0.01 * (weights[0] - start).norm()


# --- rules of the second study --------------------------------------------------------------------------------------


def a_batch() -> Tokens:
    """Two prompts of three responses: lost, lost, won; and won, lost (cut off), won. With labels."""
    ids = torch.arange(1, 31).view(6, 5)
    lengths = torch.tensor([5, 3, 5, 4, 2, 5])
    mask = torch.arange(5) < lengths[:, None]
    study_rules.LABELS.ids = [row[:n].tolist() for row, n in zip(ids, lengths.tolist(), strict=True)]
    study_rules.LABELS.mistakes = [1, 2, None, None, None, 3]
    advantages = torch.tensor([-0.5, -0.5, 1.0, 0.5, -1.0, 0.5])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    return Tokens(ids, mask, advantages, rewards=(advantages > 0).float(), groups=groups, n_groups=2)


def relative(name: str, tokens: Tokens, **options) -> list[list[float]]:
    """Weights of each response's tokens, the largest as 1."""
    weights = make_rule(name, options).of_rollout(tokens).weights
    assert weights.mean() == pytest.approx(1)
    weights = weights / weights.max()
    return [[round(w, 4) for w in weights[tokens.row == row].tolist()] for row in range(6)]


def test_oracle_weighs_first_mistakes_and_where_siblings_made_them():
    tokens = a_batch()
    losers = relative("scripts.studies.rules.Oracle", tokens)
    assert losers == [[0, 1, 0, 0, 0], [0, 0, 1], [1] * 5, [1] * 4, [0, 0], [1] * 5]
    both = relative("scripts.studies.rules.Oracle", tokens, winners=True)
    assert both == [[0, 1, 0, 0, 0], [0, 0, 1], [0, 1, 1, 0, 0], [0] * 4, [0, 0], [0] * 5]
    rest = relative("scripts.studies.rules.Oracle", tokens, rest=0.2)
    assert rest[0] == [0.2, 1, 0.2, 0.2, 0.2]
    study_rules.LABELS.ids = study_rules.LABELS.ids[::-1]
    with pytest.raises(RuntimeError, match="not those of this rollout batch"):
        relative("scripts.studies.rules.Oracle", tokens)


def test_labels_are_the_first_mistakes_of_the_completions_in_their_order():
    task = TASKS["arithmetic"]
    runner = study.Runner(study_plans.BALANCE)
    _, tokenizer, _, test, reward = runner.load(task)
    rng = random.Random(0)
    texts = [task.demonstrate(problem, rng) for problem in test[:20]]
    ids = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts]
    columns = {name: [problem[name] for problem in test[:20]] for name in test[0] if name != "prompt"}
    prompts = [problem["prompt"] for problem in test[:20]]
    given = study_rules.labelled(reward, task, tokenizer)(
        completions=texts, prompts=prompts, completion_ids=ids, **columns
    )
    for problem, row, mistake, grade in zip(test, ids, study_rules.LABELS.mistakes, given, strict=False):
        assert mistake == first_mistake(right_tokens(task, problem), tokenizer.convert_ids_to_tokens(row))
        assert grade == 1 or mistake is not None  # two mistakes may cancel, but none of the losers has none
    assert 3 < sum(m is None for m in study_rules.LABELS.mistakes) < 17


def test_mask_of_losers_by_another_rule():
    tokens = a_batch()
    weights = relative("scripts.studies.rules.TopOfLosers", tokens, fraction=0.4)
    assert [sum(row) for row in weights] == [2, 2, 5, 4, 1, 5]
    tokens.log_probs = torch.arange(len(tokens)) / 10 - 5
    of_sure = relative(
        "scripts.studies.rules.TopOfLosers",
        tokens,
        fraction=0.4,
        rule="advantage_reweighting",
        rule_kwargs={"alpha": 1.0},
    )
    assert of_sure == [[0, 0, 0, 1, 1], [0, 1, 1], [1] * 5, [1] * 4, [0, 1], [1] * 5]


def test_oracle_at_a_side_weight():
    tokens = a_batch()
    credit = make_rule(
        "scripts.studies.rules.AtSideWeight", {"rule": "scripts.studies.rules.Oracle", "losers": 0.5}
    ).of_rollout(tokens)
    won = tokens.advantages > 0
    assert credit.weights[~won].mean() / credit.weights[won].mean() == pytest.approx(0.5)
    assert (credit.weights[~won] > 0).sum() == 2


def test_losers_weigh_what_was_probable():
    tokens = a_batch()
    tokens.log_probs = torch.linspace(-3, 0, len(tokens))
    weights = relative("scripts.studies.rules.ProbableLosers", tokens)
    assert weights[2] == [1] * 5
    assert weights[0] == pytest.approx(tokens.log_probs[:5].exp().tolist(), abs=1e-4)


def test_losers_weigh_as_much_as_the_pass_rate():
    weights = relative("scripts.studies.rules.PassRateSides", a_batch())
    assert weights[:3] == [[0.5] * 5, [0.5] * 3, [1] * 5]


# --- rules of the third study ---------------------------------------------------------------------------------------


def test_annealing_and_prompt_weights_by_hand():
    """Of `a_batch`'s 24 tokens 14 win; of the first prompt's completions a third, of the second's two thirds."""
    tokens = a_batch()
    annealed = make_rule("scripts.studies.rules.Annealed", {}).of_rollout(tokens).weights
    f = (1 - 0.8 * 14 / 24) / (0.2 + 0.8 * 14 / 24)
    assert f == pytest.approx(0.8)
    assert annealed.tolist() == pytest.approx([0.8] * 24)
    of_prompts = make_rule("scripts.studies.rules.PromptWeights", {}).of_rollout(tokens).weights
    first, second = 1 - 0.8 / 3, 1 - 0.8 * 2 / 3
    mean = (13 * first + 11 * second) / 24  # tokens of each
    assert of_prompts.tolist() == pytest.approx([first / mean] * 13 + [second / mean] * 11)
    left = make_rule("scripts.studies.rules.NotAnnealed", {}).of_rollout(tokens).weights
    assert left[tokens.advantages > 0].tolist() == pytest.approx([1 / (1 - 0.8 * 14 / 24)] * 14)
    assert left[tokens.advantages < 0].tolist() == pytest.approx([0.2 / (1 - 0.8 * 14 / 24)] * 10)


@pytest.mark.parametrize("losers", [0.0, 0.2, 1.0])
def test_side_weights_are_their_sides_and_their_annealing(losers):
    """On prompts of which some have no contrast; and prompt weights are the pull of side weights, counted out."""
    rng = random.Random(0)
    wins = [[int(rng.random() < p) for _ in range(8)] for p in (0.1, 0.3, 0.6, 0.9)] + [[1] * 8, [0] * 8]
    rewards = torch.tensor(wins).float()
    advantages = (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 1e-4)
    mask = torch.arange(9) < torch.tensor([rng.randint(1, 9) for _ in range(48)])[:, None]
    groups = torch.arange(6).repeat_interleave(8)
    tokens = Tokens(mask.long(), mask, advantages.flatten(), rewards=rewards.flatten(), groups=groups, n_groups=6)
    names = {"side_weights": "side_weights"}
    names |= {name: f"scripts.studies.rules.{name}" for name in ("Annealed", "NotAnnealed", "PromptWeights")}
    found = {
        name: make_rule(path, {"losers": losers}).of_rollout(tokens).weights.tolist() for name, path in names.items()
    }

    trains = [a != 0 for a in tokens.advantages.tolist()]
    assert 0 < sum(trains) < len(trains)
    for weights in found.values():
        assert all(weight == 1 for weight, t in zip(weights, trains, strict=True) if not t)
    product = [a * b for a, b in zip(found["Annealed"], found["NotAnnealed"], strict=True)]
    assert product == pytest.approx(found["side_weights"])
    assert len({w for w, t in zip(found["Annealed"], trains, strict=True) if t}) == 1

    # In units of the difference between the sides' mean gradients, a winner's is 1 - p on average and a loser's -p, so
    # that those of all completions cancel; advantages are in the same proportion.
    pulls = []
    for of_prompt in wins:
        p = sum(of_prompt) / 8
        terms = [(1 - p) * (1 - p) if won else losers * (-p) * (-p) for won in of_prompt]
        even = sum((1 - p) * (1 - p) if won else p * p for won in of_prompt)
        pulls.append(sum(terms) / even if even else 0.0)
    expected = [pulls[g] for g in tokens.group.tolist()]
    mean = sum(w for w, t in zip(expected, trains, strict=True) if t) / sum(trains)
    expected = [w / mean if t else 1.0 for w, t in zip(expected, trains, strict=True)]
    assert found["PromptWeights"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("pass_rate", [0.2, 0.5])
def test_adaptive_balance_is_the_one_of_least_noise_in_a_simulation(pass_rate):
    """One prompt, G of a softmax policy over 6 answers: the cosine to the true gradient, by losers' weight."""
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([pass_rate, *[(1 - pass_rate) * x for x in (0.4, 0.3, 0.1, 0.1, 0.1)]])
    score = torch.eye(6) - p  # G of each answer
    scale = torch.tensor([1.0, 3, 3, 3, 3, 3])[:, None]  # its length also varies in directions that mean nothing
    n, repeats = 64, 4000
    answers = torch.multinomial(p, n * repeats, replacement=True, generator=generator)
    noise = torch.randn(n * repeats, 20, generator=generator) * scale[answers]
    gradients = torch.cat([score[answers], noise], dim=1).view(repeats, n, -1)
    won = (answers == 0).view(repeats, n, 1)
    rate = won.float().mean(dim=1, keepdim=True)
    advantages = (won.float() - rate) / (rate * (1 - rate)).sqrt()
    sides = torch.stack([(gradients * advantages * side).sum(dim=1) for side in (won, ~won)])  # (2, repeats, d)
    true = sides.sum(dim=0).mean(dim=0)
    candidates = torch.logspace(-2, 1, 31, base=10.0)

    def cosine(weight):
        return torch.nn.functional.cosine_similarity(sides[0] + weight * sides[1], true, dim=-1).mean()

    best = candidates[torch.stack([cosine(weight) for weight in candidates]).argmax()]
    moments = [(gradients.square().sum(dim=-1)[side.squeeze(-1)]).mean() for side in (won, ~won)]
    assert math.log10(moments[0] / moments[1]) == pytest.approx(math.log10(best), abs=0.2)


def test_gist_of_a_completion_decides_its_grade():
    task = TASKS["arithmetic"]
    texts = [
        "a \\boxed{12}",
        "\\boxed{1} \\boxed{12}",
        "12",
        "\\boxed{12} 13",
        "\\boxed{12",
        "a\\boxed{}",
        "7=12\\boxed{13}",
    ]
    assert study.gist(texts[0]) == study.gist("b\n\\boxed{12}") == "\\boxed{12}"
    assert [study.gist(text) == text for text in texts] == [False, True, True, True, True, True, False]
    assert task.reward([study.gist(text) for text in texts], ["12"] * 7) == task.reward(texts, ["12"] * 7)


def test_remembered_reward_asks_once_and_never_keeps_a_failure(tmp_path):
    asked = []

    def reward(completions, solution):
        asked.extend(completions)
        return [None if c == "?" else float(c == s) for c, s in zip(completions, solution, strict=True)]

    remembered = study.RememberedReward(reward, tmp_path / "grades.sqlite")
    arguments = (["1", "2", "1", "?"], ["a", "a", "b", "a"])
    assert remembered(*arguments, solution=["1", "1", "2", "1"]) == [1.0, 0.0, 0.0, None]
    assert remembered(*arguments, solution=["1", "1", "2", "1"]) == [1.0, 0.0, 0.0, None]
    in_another_process = study.RememberedReward(reward, tmp_path / "grades.sqlite")
    assert in_another_process(*arguments, solution=["1", "1", "2", "1"]) == [1.0, 0.0, 0.0, None]
    assert asked == ["1", "2", "1", "?", "?", "?"]


def test_stability_agreement_against_scipy():
    generator = torch.Generator().manual_seed(0)
    sign = torch.randint(-1, 2, (2, 8, 5), generator=generator).float()
    sign[sign == 0] = math.nan
    one = {name: torch.rand(sign.shape, generator=generator) for name in stability.GRADIENTS} | {"sign": sign}
    other = {name: torch.rand(sign.shape, generator=generator) for name in stability.GRADIENTS} | {"sign": sign}
    measured = stability.agreement(one, other)["lm_head"]
    a, b = one["lm_head"], other["lm_head"]
    within = [stats.spearmanr(a[sign == s], b[sign == s]).statistic for s in (1, -1)]
    assert measured["within"] == pytest.approx(np.mean(within))
    both = sign.isfinite()
    assert measured["all"] == pytest.approx(stats.spearmanr(a[both], b[both]).statistic)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_flips_turn_the_stated_share(share):
    rewards = torch.randint(0, 2, (16, 8)).float()
    assert (stability.flipped(rewards, share) != rewards).sum() == round(share * 128)


def test_stability_of_a_small_pool():
    task = TASKS["arithmetic"]
    model, tokenizer = stability.load(make_study_models.FOLDER / task.name)
    pool = stability.Pool(model, tokenizer, task, prompts=12, seed=0)
    (same,) = stability.batch_size(pool, [1])  # no companions: twice the same batch
    assert all(value["all"] == pytest.approx(1, abs=1e-3) for value in same["agreement"].values())
    entries = stability.flips(pool, prompts=8, draws=1)
    assert [entry["level"] for entry in entries] == [0.05, 0.1, 0.2]
    assert all(-1 <= value["within"] <= 1 for entry in entries for value in entry["agreement"].values())
