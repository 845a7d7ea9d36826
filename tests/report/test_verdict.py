"""The verdict's sentences follow from the numbers. Where these are too few or unclear, nothing is claimed."""

import numpy as np
import pandas as pd
import pytest

from delta_trl.report import read_run
from delta_trl.report.verdict import LEAST_TOKENS, change, effects, named_effects, verdict

from . import runs


def by_rule(path) -> dict[str, str]:
    """The verdict on a run; warnings begin with "! "."""
    return {name: "! " * bool(warning) + sentence for name, sentence, warning in verdict(read_run(path))}


def of_history(path, **logged) -> dict[str, str]:
    """The verdict on 30 logged values."""
    runs.write_history(path, range(30), **logged)
    return by_rule(path)


def test_reward(tmp_path):
    """With dynamic sampling, the policy's."""
    rise = np.linspace(0.2, 0.8, 30)
    logged = {"reward": 0.5, "dynamic_sampling/reward_before": rise}
    assert of_history(tmp_path, **logged)["Reward"].startswith("It rose: 0.2")
    assert of_history(tmp_path, reward=np.minimum(2 * rise, 1.7 - rise))["Reward"].startswith("! It rose")


def changed(values):
    return change(pd.Series(values))


def test_what_is_clear():
    """
    Blocks of three with the means 0, 0.2, 0, 0.2, 1: the second differences are -0.4, 0.4 and 0.6, the standard error
    of a mean is √(0.68 / 18) = 0.194, and that of a difference 0.275. The change is 3.6 times as much. With 0.15 in
    place of 0.2 the differences are -0.3, 0.3 and 0.7, the standard error is 0.273, and 1.1 is 4.03 times as much.
    """
    unclear = changed(np.repeat([0, 0.2, 0, 0.2, 1], 3))
    assert (unclear.first, unclear.last, unclear.direction) == (0, 1, "No clear change")
    means = np.array([0, 0.15, 0, 0.15, 1.0])
    assert changed(np.repeat(means, 3)).clear == pytest.approx(4 * np.sqrt(2 * 0.67 / 18))
    steady = np.repeat([0, 0.26, 0.5, 0.75, 1], 3)
    assert changed(steady).direction == "It rose"
    assert changed(1 - steady).direction == "It fell"
    assert changed(steady[:14]).direction == "No clear change"  # four blocks
    assert changed(np.zeros(100)).n == 10
    assert changed(np.arange(5.0)) is None


@pytest.mark.parametrize(("count", "most"), [(15, 45), (60, 15), (300, 15)])
@pytest.mark.parametrize("kind", ["independent", "sparse", "averages"])
def test_series_without_a_trend_are_rarely_called(kind, count, most):
    """
    Of 300, at most these rise, fall or have been higher; also if few values differ, or neighbours are alike. Of 1,000
    averages of 15 values, 125 did.
    """
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(300):
        values = rng.normal(size=count + 4)
        if kind == "sparse":
            values = (values > 1.6).astype(float)
        if kind == "averages":
            values = np.convolve(values, np.ones(5), "valid")
        found = changed(values)
        called += found.direction != "No clear change" or found.highest - found.last > found.clear
    assert called <= most


@pytest.mark.parametrize(
    ("rule", "name", "last", "warns"),
    [
        ("Entropy", "entropy", 0.25, False),
        ("Entropy", "entropy", 0.24, True),
        ("Entropy", "entropy", 3.0, False),
        ("Entropy", "entropy", 3.1, True),
        ("Cut off", "completions/clipped_ratio", 0.1, True),
        ("Cut off", "completions/clipped_ratio", 0.09, False),
        ("Contrast", "frac_reward_zero_std", 0.5, True),
        ("Contrast", "frac_reward_zero_std", 0.49, False),
    ],
)
def test_warnings(tmp_path, rule, name, last, warns):
    """Of what was 1 at first."""
    found = of_history(tmp_path, **{name: [1.0] * 15 + [last] * 15})
    assert found[rule].startswith("! ") == warns
    assert found.keys() == {rule}


def test_contrast_is_that_of_sampled_groups(tmp_path):
    """TRL's own number is that of the groups that dynamic sampling has chosen."""
    logged = {"frac_reward_zero_std": 0.0, "dynamic_sampling/no_contrast_before": 0.9}
    assert of_history(tmp_path, **logged)["Contrast"].startswith("! At the end, 90%")


@pytest.mark.parametrize(("won", "lost", "share"), [(1.2, 0.8, "94%"), (1.06, 0.94, "59%"), (1.0, 1.0, "0%")])
def test_credit_between_the_sides(tmp_path, won, lost, share):
    """The standard deviation within sides is 0.05. The mean drifts over the steps, which counts for neither."""
    for step in (0, 1):
        rows = []
        for side, mean in ((1.0, won), (-1.0, lost)):
            coefficients = [mean + step - 0.05, mean + step + 0.05]
            rows.append(runs.completion(["a", "a"], side, step=step, coefficients=coefficients))
        runs.write_completions(tmp_path, rows)
    alone = runs.completion(["a"], step=2, coefficients=[9.0])  # no loser beside it
    runs.write_completions(tmp_path, [alone])
    said = by_rule(tmp_path)["Credit"]
    assert f"{won + 0.5:.3f} in winners and {lost + 0.5:.3f} in losers; {share}" in said
    assert said.startswith("! ") == (share == "94%")


def frame(texts, coefficients, side=1, log_probs=-0.1) -> pd.DataFrame:
    """Tokens of completions, all of shape (completions, T), as a run has them."""
    columns = {"completion": np.arange(len(texts))[:, None], "side": side}
    columns |= {"text": texts, "coefficient": coefficients, "log_prob": log_probs}
    return pd.DataFrame({name: np.broadcast_to(one, np.shape(texts)).ravel() for name, one in columns.items()})


def planted(count, effect=0.0, unlikely=0.0, **changes) -> str | None:
    """What is said of tokens of which kind 0, and improbable ones, get more than others."""
    rng = np.random.default_rng(0)
    kinds = np.tile(np.arange(200) % 20, (count, 1))
    rare = rng.random(kinds.shape) < 0.3
    coefficients = 1.2 + effect * (kinds == 0) + unlikely * rare + rng.normal(0, 0.05, kinds.shape)
    log_probs = np.where(rare, -2.0, -0.1)
    return named_effects(frame(kinds.astype(str), coefficients, log_probs=log_probs, **changes))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"effect": 0.06}, "more credit in winners for “0” (+0.06)"),
        ({"effect": -0.06, "side": -1}, "less blame in losers for “0” (-0.05)"),
        ({"unlikely": -0.1, "side": -1}, "less blame in losers for a probability under 0.5 (-0.08)"),
        ({"unlikely": 0.1, "side": -1}, "more blame in losers for a probability under 0.5 (+0.07)"),
        ({}, None),
        ({"effect": 0.015, "count": 40}, None),  # clear, but small
    ],
)
def test_a_planted_effect_is_named_and_nothing_else(options, expected):
    assert planted(**{"count": 6, **options}) == expected


def test_the_largest_effects_are_named():
    kinds = np.tile(np.arange(50) % 10, (20, 1))
    said = named_effects(frame(kinds.astype(str), np.where(kinds < 5, kinds * 0.1, 0)))
    assert said.startswith("more credit in winners for “4” (+0.30), “3” (+0.20), “2” (+0.10); less credit")


@pytest.mark.parametrize(("count", "is_named"), [(LEAST_TOKENS - 1, False), (LEAST_TOKENS, True)])
def test_rare_kinds_are_not_named(count, is_named):
    rare = np.arange(400) >= 400 - count
    coefficients = 1 + 0.5 * rare + np.random.default_rng(0).normal(0, 0.01, 400)
    said = named_effects(frame([np.where(rare, "b", "a")], coefficients))
    assert ("“b”" in (said or "")) == is_named


def skewed(rng):
    """A few tokens get nearly all, by chance."""
    share = rng.choice([0.2, 0.02])
    return rng.integers(0, 40, (40, 50)), rng.choice([0.0, 100.0], (40, 50), p=[1 - share, share])


def uneven(rng):
    """Completions differ by much."""
    return rng.integers(0, 5, (20, 100)), rng.normal(1, 1, (20, 100)) + rng.normal(0, 1, (20, 1))


def slow(rng):
    """Moving averages of noise, and kinds whose tokens stand side by side."""
    windows = np.lib.stride_tricks.sliding_window_view(rng.normal(size=(4, 209)), 10, axis=1)
    return np.repeat(rng.integers(0, 10, (4, 25)), 8, axis=1), windows.sum(axis=-1)


@pytest.mark.parametrize("draw", [skewed, uneven, slow])
def test_coefficients_that_do_not_depend_on_tokens_name_no_kind(draw):
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(12):
        kinds, coefficients = draw(rng)
        tokens = frame(kinds.astype(str), coefficients)
        found = effects(tokens).set_index("kind")
        within = coefficients - coefficients.mean(axis=1, keepdims=True)
        assert found.distance["“0”"] == pytest.approx(within[kinds == 0].mean())
        called += found.is_clear.any()
    assert called <= 1
