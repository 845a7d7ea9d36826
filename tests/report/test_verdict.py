"""The verdict's sentences say the numbers and the size of a loss; where numbers are too few, nothing is said."""

import numpy as np
import pandas as pd
import pytest

from delta_trl.report import read_run
from delta_trl.report.verdict import LEAST_TOKENS, course, effects, named_effects, verdict

from . import runs


def by_rule(path) -> dict[str, str]:
    """The verdict on a run; warnings begin with "! "."""
    return {name: "! " * bool(warning) + sentence for name, sentence, warning in verdict(read_run(path))}


def of_history(path, **logged) -> dict[str, str]:
    """The verdict on 30 logged values."""
    runs.write_history(path, range(30), **logged)
    return by_rule(path)


def test_the_verdict_tells_the_first_best_and_last_mean_reward(tmp_path):
    """With dynamic sampling, the policy's. Of 30 values, three make a mean."""
    logged = {"reward": 0.5, "dynamic_sampling/reward_before": [0.2] * 3 + [0.6] * 24 + [0.5] * 3}
    said = of_history(tmp_path, **logged)["Reward"]
    assert said == "In training, 0.200 at step 1 → 0.600 at step 4 → 0.500 at step 28 (means of 3 logged values)."
    assert "Reward" not in of_history(tmp_path, reward=[0.5] * 5 + [float("nan")] * 25)  # too few


def test_evaluations_come_first(tmp_path):
    unknown = float("nan")
    rewards = [0.26] + [unknown] * 13 + [0.7] + [unknown] * 14 + [0.6]
    said = of_history(tmp_path, reward=0.5, eval_reward=rewards, eval_hard_reward=[0.1] + [unknown] * 29)
    assert list(said)[:3] == ["Evaluation", "Evaluation on hard", "Reward"]
    assert said["Evaluation"] == "0.260 at step 0 → 0.700 at step 14 → 0.600 at step 29."
    assert said["Evaluation on hard"] == "0.100 at step 0."


RISE = np.linspace(0.2, 0.8, 50).tolist()


@pytest.mark.parametrize(
    ("values", "is_lost"),
    [
        ([0.8] * 50 + [0.0] * 50, True),  # a collapse
        ([0.8] * 98 + [0.0] * 2, False),  # not yet the last tenth
        (RISE + RISE[::-1], True),  # all that was won
        (RISE + RISE[:15:-1], True),  # more than half of it
        (RISE + RISE[:40:-1], False),
        ([0.0] * 10 + [0.8] * 180 + [0.45] * 10, False),  # less than half of what was won
        (RISE, False),
        (RISE[::-1], True),
        ([0.52] * 50 + [0.5] * 50, False),  # a small effect
        ([-0.1] * 50 + [-0.9] * 50, True),
    ],
)
def test_a_loss_is_named_by_its_size(values, is_lost):
    assert course(pd.Series(values), 10).is_lost == is_lost


def test_a_collapse_says_what_the_reward_was(tmp_path):
    [line] = verdict(read_run(runs.write_history(tmp_path, range(30), reward=[0.8] * 15 + [0.0] * 15)))
    assert line[2] == "It was 0.800 at step 1."


@pytest.mark.parametrize("count", [15, 60, 300])
def test_noise_is_rarely_a_loss(count):
    """
    Of 300 flat series with the noise of 128 completions, around a half and around 0, and of 300 slow waves (AR 0.9) of
    a tenth of the mean.
    """
    rng = np.random.default_rng(0)
    called = {"noise": 0, "waves": 0, "around 0": 0}
    for _ in range(300):
        noise = rng.normal(size=count + 50)
        waves = pd.Series(noise).ewm(alpha=0.1).mean()[50:] / 0.23  # of deviation 1
        called["noise"] += course(pd.Series(0.5 + 0.044 * noise[50:]), max(3, count // 10)).is_lost
        called["waves"] += course(0.5 + 0.05 * waves, max(3, count // 10)).is_lost
        called["around 0"] += course(pd.Series(noise[50:]), max(3, count // 10)).is_lost
    assert called["noise"] == 0
    assert called["around 0"] <= 60
    assert called["waves"] <= 15


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
def test_a_level_beyond_its_bound_is_a_warning(tmp_path, rule, name, last, warns):
    """Of what was 1 at first."""
    found = of_history(tmp_path, **{name: [1.0] * 15 + [last] * 15})
    assert found[rule].startswith("! ") == warns
    assert found.keys() == {rule}


def test_contrast_is_that_of_sampled_groups(tmp_path):
    """TRL's own number is that of the groups that dynamic sampling has chosen."""
    logged = {"frac_reward_zero_std": 0.0, "dynamic_sampling/no_contrast_before": 0.9}
    assert of_history(tmp_path, **logged)["Contrast"].startswith("! At the end, 90%")


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.0, 0.1], "For 5.0% of completions (at most 10.0% in a step), "),
        ([0.1, 0.1], "! For 10.0% of completions (at most 10.0% in a step), "),
        ([0.0, 0.0], None),
    ],
)
def test_mismatches_are_named_if_there_are_any(tmp_path, shares, expected):
    """However few values were logged."""
    runs.write_history(tmp_path, range(2), **{"credit/mismatched_completions": shares})
    said = by_rule(tmp_path).get("Mismatch")
    assert said == expected if expected is None else said.startswith(expected)


@pytest.mark.parametrize(("share", "warns"), [(0.9, True), (0.7, False)])
def test_credit_between_the_sides_is_that_of_whole_batches(tmp_path, share, warns):
    """A step without losers counts for nothing."""
    logged = {
        "credit/coefficient_mean_positive": [0.8, 1.2, 9.0],
        "credit/coefficient_mean_negative": [1.1, 0.9, float("nan")],
        "credit/between_sides_variance": [share - 0.1, share + 0.1, 0.0],
    }
    runs.write_history(tmp_path, range(3), **logged)
    said = by_rule(tmp_path)["Credit"]
    assert "winners 1.00 (0.80 to 1.20), losers 1.00 (0.90 to 1.10)." in said
    assert f"variance, {share:.0%} ({share - 0.1:.0%} to {share + 0.1:.0%}) lies" in said
    assert said.startswith("! ") == warns


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
    """Of both signs, whatever their order in a text."""
    kinds = np.tile(np.arange(50) % 10, (80, 1))
    by_kind = np.array([0.0, -0.2, 0.3, 0.2, -0.3, 0.1, -0.1, 0.0, 0.0, 0.0])
    assert named_effects(frame(kinds.astype(str), by_kind[kinds])) == (
        "more credit in winners for “2” (+0.30), “3” (+0.20), “5” (+0.10); "
        "less credit in winners for “4” (-0.30), “1” (-0.20), “6” (-0.10)"
    )


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
