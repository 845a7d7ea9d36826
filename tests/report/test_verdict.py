"""The verdict's sentences follow from the numbers. Where these are too few or unclear, nothing is claimed."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from delta_trl.credit import HiddenStates, Tokens, make_rule
from delta_trl.report import read_run
from delta_trl.report.tokens import token_table
from delta_trl.report.verdict import LEAST_TOKENS, RULES, effects, ends, verdict

from . import runs


def read(path, **logged):
    """A run that has logged these lists of values."""
    length = max(map(len, logged.values()))
    history = [{"step": i + 1, **{k: v[i] for k, v in logged.items() if i < len(v)}} for i in range(length)]
    path.mkdir(parents=True, exist_ok=True)
    (path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return read_run(path)


def sentences(run) -> dict[str, str]:
    """By rule; warnings begin with "! "."""
    return {s.name: "! " * bool(s.warning) + s.text for s in verdict(run, token_table(run))}


def of_rows(path, rows) -> dict[str, str]:
    runs.write_completions(path, rows)
    return sentences(read_run(path))


def noisy(start, end, n=30, noise=0.02, seed=0):
    return (np.linspace(start, end, n) + np.random.default_rng(seed).normal(0, noise, n)).tolist()


def test_at_most_eight_rules_each_with_its_own_name():
    assert len({rule.name for rule in RULES}) == len(RULES) <= 8


def test_reward(tmp_path):
    def reward(values, **more):
        return sentences(read(tmp_path, reward=values, **more))["Reward"]

    assert "rose: 0.3" in reward(noisy(0.3, 0.8))
    assert reward(noisy(0.8, 0.3)).startswith("! It fell: 0.7")
    assert reward(noisy(0.5, 0.5)).startswith("No clear change")
    assert reward(noisy(0.2, 0.9) + noisy(0.9, 0.5)).startswith("! It rose")  # but had been higher
    assert reward(noisy(0.2, 0.9) + noisy(0.9, 0.2)).startswith("! No clear change")
    assert reward([0.2, 0.9, 0.3]).startswith("Too few values")
    assert reward([0.2]).startswith("Too few values")
    before = noisy(0.2, 0.8, n=60)  # the policy's, with dynamic sampling
    assert "rose: 0.2" in reward(noisy(0.5, 0.5, n=60), **{"dynamic_sampling/reward_before": before})


def test_evaluation(tmp_path):
    named = sentences(read(tmp_path, eval_easy_reward=[0.1, 0.6, 0.4], eval_hard_reward=[0.2]))["Evaluation"]
    assert "easy: 0.100 → 0.400, highest 0.600 at step 2" in named
    assert "hard: 0.200" in named
    assert "Evaluation" not in sentences(read(tmp_path, reward=[0.5]))


@pytest.mark.parametrize("n", [6, 10, 30, 200])
def test_noise_is_rarely_a_change(n):
    values = np.random.default_rng(0).normal(0.5, 0.1, (1000, n))
    assert np.mean([ends(row).rises != 0 for row in values]) < 0.03


def test_what_is_clear():
    """
    Neighbours differ by 0.3, 0.3, 1, 0, 0: a variance of 1.18 / 5 / 2 for each value, and the standard error of the
    difference of two means of three is √(1.18 / 15) = 0.28. The means differ by 0.9, 3.2 times as much. With 0.5 in
    place of 0.3 it is 0.83 and √(1.5 / 15), 2.6 times as much.
    """
    rise = ends(np.array([0, 0.3, 0, 1, 1, 1]))
    assert (rise.first, rise.last, rise.rises) == (pytest.approx(0.1), 1, 1)
    assert ends(np.array([1, 1, 1, 0, 0.3, 0])).rises == -1
    assert ends(np.array([0, 0.5, 0, 1, 1, 1])).rises == 0
    assert ends(np.zeros(100)).n == 10
    assert ends(np.arange(5.0)).rises == 0


def test_a_trend_is_no_noise():
    """The error is that of the ends' means, not of the values' distance from the mean of all."""
    error = np.mean([ends(np.array(noisy(0.0, 1.0, 100, 0.05, seed))).error for seed in range(20)])
    assert error == pytest.approx(0.05 / np.sqrt(10), rel=0.1)


@pytest.mark.parametrize(
    ("rule", "logged", "warns"),
    [
        ("Entropy", {"entropy": [1.0] * 3 + [0.25] * 3}, False),
        ("Entropy", {"entropy": [1.0] * 3 + [0.24] * 3}, True),
        ("Entropy", {"entropy": [1.0] * 3 + [3.0] * 3}, False),
        ("Entropy", {"entropy": [1.0] * 3 + [3.1] * 3}, True),
        ("Entropy", {"entropy": [0.0] * 3 + [1.0] * 3}, False),  # no multiple of 0
        ("Entropy", {"entropy": [1.0, 0.1]}, False),  # too few
        ("Length", {"completions/mean_length": [400.0], "completions/clipped_ratio": [0.0] * 91 + [0.3] * 9}, True),
        ("Length", {"completions/mean_length": [400.0], "completions/clipped_ratio": [0.1]}, True),
        ("Length", {"completions/mean_length": [400.0], "completions/clipped_ratio": [0.09]}, False),
        ("Contrast", {"frac_reward_zero_std": [0.5]}, True),
        ("Contrast", {"frac_reward_zero_std": [0.49]}, False),
    ],
)  # fmt: skip
def test_warnings(tmp_path, rule, logged, warns):
    found = sentences(read(tmp_path, **logged))
    assert found[rule].startswith("! ") == warns
    assert found.keys() == {rule, "Credit"}


def two_sides(rng, won, lost, steps=4, spread=0.05):
    """Rows of two sides around these coefficients, which drift over the steps."""
    return [
        runs.completion(
            ["a"] * 50, step=step, advantage=side, coefficients=(mean + step / 4 + rng.normal(0, spread, 50)).tolist()
        )
        for step in range(steps)
        for side, mean in ((1.0, won), (-1.0, lost))
    ]


@pytest.mark.parametrize(
    ("won", "lost", "expected"),
    [(1.2, 0.8, "mostly reweights"), (1.06, 0.94, "both"), (1.0, 1.0, "mostly tells tokens")],
)
def test_credit_between_the_sides(tmp_path, won, lost, expected):
    """Within a step: the drift is neither."""
    text = of_rows(tmp_path, two_sides(np.random.default_rng(0), won, lost))["Credit"]
    assert expected in text
    values = two_sides(np.random.default_rng(0), won, lost)
    means = [
        np.mean([c for row in values if row["advantage"] == side for c in row["coefficients"]]) for side in (1, -1)
    ]
    assert f"{means[0]:.2f} times the credit, a loser's {means[1]:.2f} times" in text


def test_credit_that_is_none(tmp_path):
    assert "hardly differ" in of_rows(tmp_path, two_sides(np.random.default_rng(0), 1.0, 1.0, spread=0.005))["Credit"]
    assert "log_token_credit" in sentences(read(tmp_path / "none", reward=[1.0]))["Credit"]
    lonely = of_rows(tmp_path / "lonely", [runs.completion(["a"])])
    assert "No winner" in lonely["Credit"]


def credited(rule, steps=12, seed=0) -> list[dict]:
    """Recorded rollout batches of 16 completions, weighed by a rule of the package. Sides use tokens differently."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        lengths = rng.integers(20, 60, 16)
        advantages = torch.tensor(rng.permutation([1.0] * 6 + [-0.6] * 10), dtype=torch.float32)
        mask = torch.arange(60) < torch.tensor(lengths)[:, None]
        ids = torch.tensor((rng.zipf(1.3, (16, 60)) - 1) % 30)
        ids = torch.where(advantages[:, None] > 0, ids, (ids * 7) % 30)
        log_probs = -torch.tensor(rng.gamma(0.4, 1.0, (16, 60))).float()
        hidden = torch.randn(int(mask.sum()), 8) + torch.nn.functional.one_hot(ids[mask] % 8, 8)
        tokens = Tokens(ids, mask, advantages, hidden=HiddenStates([hidden]), log_probs=log_probs)
        weights = tokens.padded(rule.of_rollout(tokens).weights) + step / 20  # the mean drifts
        for i in range(16):
            row_ids = ids[i][mask[i]].tolist()
            rows.append(
                runs.completion(
                    [f"w{j}" for j in row_ids], step=step, prompt_index=i // 8, advantage=float(advantages[i]),
                    token_ids=row_ids, coefficients=weights[i][mask[i]].tolist(),
                    log_probs=log_probs[i][mask[i]].tolist(),
                )
            )  # fmt: skip
    return rows


@pytest.mark.parametrize("rule", ["side_weights", "shuffled", "random", "side_mean"])
def test_rules_without_token_information_name_no_token(tmp_path, rule):
    for seed in range(5):
        text = of_rows(tmp_path, credited(make_rule(rule), seed=seed))["Tokens"]
        assert text.startswith("None of"), text


def test_a_rule_with_token_information_names_tokens(tmp_path):
    text = of_rows(tmp_path, credited(make_rule("delta")))["Tokens"]
    assert "a probability under 0.5" in text


@pytest.mark.parametrize("weights", [[0.5, 3.0], [0.0, 100.0]])
def test_skewed_weights_are_no_effect(tmp_path, weights):
    """A few tokens get nearly all, by chance: a type that has one of them, or none, is not named for it."""
    rng = np.random.default_rng(0)
    for share in (0.2, 0.02):
        rows = [
            runs.completion(
                [f"w{j}" for j in ids], token_ids=ids.tolist(), step=step, advantage=side,
                coefficients=rng.choice(weights, 50, p=[1 - share, share]).tolist(), log_probs=[-0.1] * 50,
            )
            for step in range(20)
            for side in (1.0, -1.0)
            for ids in [rng.integers(0, 40, 50)]
        ]  # fmt: skip
        assert of_rows(tmp_path, rows)["Tokens"].startswith("None of")


def planted(rng, effect, count, side=1.0, later=0.0, unlikely=0.0, types=20):
    """Rows in which type 0, the later half and improbable tokens get more than others."""
    rows = []
    for i in range(count):
        ids = np.arange(200) % types
        rare = rng.random(200) < 0.3
        late = np.arange(200) >= 100
        c = 1.2 + effect * (ids == 0) + unlikely * rare + later * late + rng.normal(0, 0.05, 200)
        rows.append(
            runs.completion(
                [f"w{j}" for j in ids], token_ids=ids.tolist(), step=i % 3, advantage=side,
                coefficients=c.tolist(), log_probs=np.where(rare, -2.0, -0.1).tolist(),
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"effect": 0.06}, "more credit in winners for “w0” (+0.05)"),
        ({"effect": -0.06, "side": -1.0}, "less blame in losers for “w0” (-0.06)"),
        ({"effect": 0.0, "later": 0.1}, "more credit in winners for the later half (+0.05)"),
        ({"effect": 0.0, "unlikely": -0.1, "side": -1.0}, "less blame in losers for a probability under 0.5 (-0.07)"),
    ],
)
def test_a_planted_effect_is_named(tmp_path, options, expected):
    text = of_rows(tmp_path, planted(np.random.default_rng(0), count=6, **options))["Tokens"]
    assert expected in text
    assert text.count("(") == 1  # and nothing else
    assert "None of" in of_rows(tmp_path / "0", planted(np.random.default_rng(0), effect=0.0, count=6))["Tokens"]


def test_small_and_rare_effects_are_not_named(tmp_path):
    rng = np.random.default_rng(0)
    assert "None of" in of_rows(tmp_path / "small", planted(rng, effect=0.015, count=40))["Tokens"]
    for n, said in ((LEAST_TOKENS - 1, False), (LEAST_TOKENS, True)):
        ids = np.arange(400) >= 400 - n
        row = runs.completion(
            ["b" if rare else "a" for rare in ids], token_ids=ids.astype(int).tolist(),
            coefficients=(1 + 0.5 * ids + rng.normal(0, 0.01, 400)).tolist(), log_probs=[-0.1] * 400,
        )  # fmt: skip
        assert ("“b”" in of_rows(tmp_path / str(n), [row])["Tokens"]) == said


def test_errors_are_those_of_chance():
    """Of coefficients that do not depend on tokens, distances vary by as much as their errors say."""
    rng = np.random.default_rng(0)
    kinds, rows = rng.integers(0, 5, 2000), np.repeat(np.arange(20), 100)
    ratios = []
    for _ in range(300):
        values = rng.normal(1, 0.1, 2000) + rng.normal(0, 1, 20)[rows]  # completions differ by much
        within = values - (np.bincount(rows, values) / 100)[rows]
        table = SimpleNamespace(within=within, rows=rows, completions=[None] * 20)
        found = effects(table, np.arange(2000), kinds, 5)
        np.testing.assert_allclose(found.distances, [within[kinds == k].mean() for k in range(5)])
        ratios.append(found.distances / found.errors)
    assert 0.75 < np.std(ratios) < 1.02


def test_unknown_coefficients_are_left_out(tmp_path):
    rows = planted(np.random.default_rng(0), 0.06, 6)
    for row in rows:
        row["coefficients"][1::20] = [None] * 10
    rows.append(runs.completion(["c"] * 30, coefficients=[None] * 30))
    rows.append(runs.completion([], advantage=-1.0))
    assert "“w0” (+0.05)" in of_rows(tmp_path, rows)["Tokens"]
