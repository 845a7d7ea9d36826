"""The learning study and the stability study: tasks, resumption, statistics, and a tiny run of each."""

import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import make_study_models
import numpy as np
import pytest
import stability
import study
import study_report
import study_runs
import torch
from scipy import stats

from delta_trl.tasks import TASKS


SCRIPTS = Path(__file__).parents[1] / "scripts"


# --- statistics -----------------------------------------------------------------------------------------------------


def test_paired_comparison_against_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 12), rng.normal(0, 1, 12)
    compared = study_report.compare_pairs(a, b)
    t = stats.ttest_rel(a, b)
    low, high = t.confidence_interval(0.95)
    assert compared["p_t"] == pytest.approx(t.pvalue)
    assert (compared["low"], compared["high"]) == pytest.approx((low, high))
    assert compared["p_wilcoxon"] == pytest.approx(stats.wilcoxon(a, b).pvalue)
    assert compared["difference"] == pytest.approx(np.mean(a) - np.mean(b))


def test_no_difference_at_all_is_no_finding():
    compared = study_report.compare_pairs(np.ones(4), np.ones(4))
    assert compared["difference"] == 0
    assert math.isnan(compared["p_t"])
    assert math.isnan(compared["p_wilcoxon"])


@pytest.mark.parametrize("n", [5, 8, 16])
def test_detectable_difference_is_found_in_four_of_five_simulated_studies(n):
    shift = study_report.detectable_difference(sd=2.0, n=n)
    samples = np.random.default_rng(n).normal(shift, 2.0, (20_000, n))
    assert (stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.01)


def test_holm_by_its_definition():
    p = [0.01, 0.04, 0.03, math.nan, 0.005]
    adjusted = study_report.holm(p)
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
    assert study_report.collapsed({"accuracy_before": 0.3, "accuracy_after": after, "reward": reward}) is expected


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
    assert study_runs.best_learning_rate(rows, "arithmetic", "delta") == 2.5e-4


def test_report_pairs_by_task_and_seed(tmp_path):
    rates = {(task, variant): 1e-4 for task in TASKS for variant in study_runs.VARIANTS}
    runs = [study_runs.Run("study", *key, 1e-4, seed) for key in rates for seed in range(4)]
    rows = [fake_row(run) for run in runs if (run.variant, run.seed) != ("delta", 3)]  # one is missing
    rows.append(fake_row(study_runs.Run("study", "programs", "delta", 9.0, 0), accuracy_after=100.0))  # another rate
    random.Random(0).shuffle(rows)
    entries = {(e["task"], e["variant"]): e for e in study_report.summarise(rows, rates)}
    after = {(r["task"], r["variant"], r["seed"]): r["accuracy_after"] for r in rows if r["learning_rate"] == 1e-4}
    for task in TASKS:
        expected = stats.ttest_rel(*([after[task, v, seed] for seed in range(3)] for v in ("delta", "dapo")))
        assert entries[task, "delta"]["accuracy_p_t"] == pytest.approx(expected.pvalue)
        assert entries[task, "delta"]["accuracy_pairs"] == 3
    assert entries["all", "delta"]["accuracy_pairs"] == 6
    assert entries["all", "sapo"]["accuracy_pairs"] == 8

    page = tmp_path / "page.md"
    study_report.write_report(rows, rates, dict.fromkeys(rates, 9.0), tmp_path / "study", page)
    tables = page.read_text().split("<!-- end of tables -->")[0]
    assert tables.count("| select_random |") == 8
    study_report.write_report(rows, rates, dict.fromkeys(rates, 9.0), tmp_path / "study", page)
    assert page.read_text().startswith(tables)  # the tables are replaced, not repeated
    assert {path.suffix for path in tmp_path.iterdir()} == {".md", ".json", ".csv", ".png"}


# --- resumption -----------------------------------------------------------------------------------------------------

WORKER = """
import sys, time
sys.path.insert(0, {scripts!r})
from pathlib import Path
import study_runs
variants = list(study_runs.VARIANTS)
row = {{"phase": "tune", "task": "programs", "learning_rate": 1e-4, "reward": [1.0]}}
tuned = [row | {{"variant": variant}} for variant in variants]
runs = study_runs.study_runs(study_runs.tuned_rates(tuned, ["programs"], variants), range(2))
def execute(run):
    time.sleep(0.05)
    return dict(zip(("phase", "task", "variant", "learning_rate", "seed"), run.key))
study_runs.work(runs, Path({results!r}), execute, Path({locks!r}), wait_seconds=0.1)
"""


def test_killed_study_goes_on_and_repeats_nothing(tmp_path):
    results, locks = tmp_path / "rows.jsonl", tmp_path / "locks"
    code = WORKER.format(scripts=str(SCRIPTS), results=str(results), locks=str(locks))

    def start():
        return subprocess.Popen([sys.executable, "-c", code])

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
    assert len(keys()) == len(set(keys())) == 2 * len(study_runs.VARIANTS)
    assert [key[4] for key in keys()] == sorted(key[4] for key in keys())  # seed by seed


def test_a_run_in_progress_is_left_to_its_process(tmp_path):
    run = study_runs.Run("study", "programs", "delta", 1e-4, 0)
    with study_runs.claimed(run, tmp_path) as first, study_runs.claimed(run, tmp_path) as second:
        assert (first, second) == (True, False)
    with study_runs.claimed(run, tmp_path) as again:
        assert again


# --- the real thing, small ------------------------------------------------------------------------------------------


def test_two_rollout_batches_of_two_variants(tmp_path):
    runner = study.Runner({"tune": 1, "study": 2}, test_problems=32)
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
