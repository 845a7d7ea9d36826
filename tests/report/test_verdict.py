"""The verdict's sentences say the numbers and the size of a loss; where numbers are too few, nothing is said."""

import numpy as np
import pandas as pd
import pytest

from delta_trl.report import read_run
from delta_trl.report.verdict import LEAST_TOKENS, course, effects, named_effects, verdict

from . import runs


def by_rule(path) -> dict[str, str]:
    """The verdict on a run; warnings begin with "! "."""
    said = {}
    for name, sentence, warning in verdict(read_run(path)):
        said[name] = f"! {sentence}" if warning else sentence
    return said


def of_history(path, **logged) -> dict[str, str]:
    """The verdict on 30 logged values."""
    runs.write_history(path, range(30), **logged)
    return by_rule(path)


UNKNOWN = float("nan")


def test_the_verdict_tells_the_first_best_and_last_mean_reward(tmp_path):
    """With dynamic sampling, the policy's. Of 30 values, three make a mean."""
    of_policy = [0.2] * 3 + [0.6] * 24 + [0.5] * 3
    logged = {"reward": 0.5, "dynamic_sampling/reward_before": of_policy}
    said = of_history(tmp_path, **logged)["Reward"]
    assert said == "In training, 0.200 at step 1 → 0.600 at step 4 → 0.500 at step 28 (means of 3 logged values)."


@pytest.mark.parametrize(
    ("count", "of_a_mean"),
    [
        (6, 3),
        (30, 3),
        (39, 3),
        (40, 4),
        (200, 20),
    ],
)
def test_a_mean_is_of_a_tenth_or_three(tmp_path, count, of_a_mean):
    runs.write_history(tmp_path, range(count), reward=[0.5] * count)
    assert f"(means of {of_a_mean} logged values)" in by_rule(tmp_path)["Reward"]


def test_of_five_rewards_nothing_is_said(tmp_path):
    assert "Reward" not in of_history(tmp_path, reward=[0.5] * 5 + [UNKNOWN] * 25)


def test_evaluations_come_first(tmp_path):
    once = [0.0] + [UNKNOWN] * 29
    three_times = [0.26] + [UNKNOWN] * 13 + [0.7] + [UNKNOWN] * 14 + [0.6]
    said = of_history(tmp_path, reward=0.5, eval_reward=three_times, eval_hard_reward=once)
    first, second, third, *_ = said
    assert (first, second, third) == ("Evaluation", "Evaluation on hard", "Reward")
    assert said["Evaluation"] == "0.260 at step 0 → 0.700 at step 14 → 0.600 at step 29."
    assert said["Evaluation on hard"] == "0.000 at step 0."


def test_a_loss_in_evaluation_is_a_warning(tmp_path):
    runs.write_history(tmp_path, [0, 5, 9], eval_reward=[0.2, 0.7, 0.3], eval_hard_reward=[0.2, 0.7, 0.6])
    warnings = {name: warning for name, _, warning in verdict(read_run(tmp_path))}
    assert warnings == {"Evaluation": "It was 0.700 at step 5.", "Evaluation on hard": ""}


RISE = np.linspace(0.2, 0.8, 50).tolist()
FALL = RISE[::-1]


def is_lost(values, of_a_mean: int) -> bool:
    return course(pd.Series(values), of_a_mean).is_lost


@pytest.mark.parametrize(
    ("values", "is_a_loss"),
    [
        ([0.8] * 50 + [0.0] * 50, True),  # a collapse
        ([0.8] * 98 + [0.0] * 2, False),  # not yet the last tenth
        (RISE + FALL, True),  # all that was won
        (RISE + FALL[:34], True),  # more than half of it
        (RISE + FALL[:9], False),
        ([0.0] * 10 + [0.8] * 180 + [0.45] * 10, False),  # less than half of what was won
        (RISE, False),
        (FALL, True),
        ([0.52] * 50 + [0.5] * 50, False),  # a small effect
        ([-0.1] * 50 + [-0.9] * 50, True),
        ([-0.9] * 50 + [-1.0] * 50, False),  # less than a quarter of the best
    ],
)
def test_a_loss_is_named_by_its_size(values, is_a_loss):
    assert is_lost(values, 10) == is_a_loss


def test_a_collapse_says_what_the_reward_was(tmp_path):
    runs.write_history(tmp_path, range(30), reward=[0.8] * 15 + [0.0] * 15)
    [(_, _, warning)] = verdict(read_run(tmp_path))
    assert warning == "It was 0.800 at step 1."


@pytest.mark.parametrize("count", [15, 60, 300])
def test_noise_is_rarely_a_loss(count):
    """
    Of 300 flat series with the noise of 128 completions, around a half and around 0, and of 300 slow waves (AR 0.9) of
    a tenth of the mean.
    """
    rng = np.random.default_rng(0)
    of_a_mean = max(3, count // 10)
    called = {"noise": 0, "waves": 0, "around 0": 0}
    for _ in range(300):
        drawn = rng.normal(size=count + 50)
        noise = drawn[50:]
        smooth = pd.Series(drawn).ewm(alpha=0.1).mean()
        waves = smooth[50:] / 0.23  # of deviation 1
        called["noise"] += is_lost(0.5 + 0.044 * noise, of_a_mean)
        called["waves"] += is_lost(0.5 + 0.05 * waves, of_a_mean)
        called["around 0"] += is_lost(noise, of_a_mean)
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
    values = [1.0] * 15 + [last] * 15
    found = of_history(tmp_path, **{name: values})
    assert found.keys() == {rule}
    assert found[rule].startswith("! ") == warns


def test_contrast_is_that_of_sampled_groups(tmp_path):
    """TRL's own number is that of the groups that dynamic sampling has chosen."""
    logged = {
        "frac_reward_zero_std": 0.0,
        "dynamic_sampling/no_contrast_before": 0.9,
    }
    said = of_history(tmp_path, **logged)["Contrast"]
    assert said.startswith("! At the end, 90%")


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.0, 0.1], "For 5.0% of completions (at most 10.0% in a step), "),
        ([0.1, 0.1], "! For 10.0% of completions (at most 10.0% in a step), "),
    ],
)
def test_mismatches_are_named_if_there_are_any(tmp_path, shares, expected):
    """However few values were logged."""
    runs.write_history(tmp_path, range(2), **{"credit/mismatched_completions": shares})
    assert by_rule(tmp_path)["Mismatch"].startswith(expected)


def test_no_mismatch_is_not_named(tmp_path):
    runs.write_history(tmp_path, range(2), **{"credit/mismatched_completions": [0.0, 0.0]})
    assert "Mismatch" not in by_rule(tmp_path)


@pytest.mark.parametrize(("share", "warns"), [(0.85, True), (0.75, False)])
def test_credit_between_the_sides_is_that_of_whole_batches(tmp_path, share, warns):
    """A step without losers counts for nothing."""
    low, high = share - 0.1, share + 0.1
    logged = {
        "credit/coefficient_mean_positive": [0.8, 1.2, 9.0],
        "credit/coefficient_mean_negative": [1.1, 0.9, UNKNOWN],
        "credit/between_sides_variance": [low, high, 0.0],
    }
    runs.write_history(tmp_path, range(3), **logged)
    said = by_rule(tmp_path)["Credit"]
    assert said.startswith("! ") == warns
    assert "winners 1.00 (0.80 to 1.20), losers 1.00 (0.90 to 1.10)." in said
    assert f"variance, {share:.0%} ({low:.0%} to {high:.0%}) lies" in said


def frame(texts, coefficients, side=1, log_probs=-0.1) -> pd.DataFrame:
    """Tokens of completions, all of shape (completions, T), as a run has them."""
    shape = np.shape(texts)
    columns = {
        "completion": np.arange(len(texts))[:, None],
        "side": side,
        "text": texts,
        "coefficient": coefficients,
        "log_prob": log_probs,
    }
    return pd.DataFrame({name: np.broadcast_to(one, shape).ravel() for name, one in columns.items()})


def planted(count=6, effect=0.0, unlikely=0.0, **changes) -> str | None:
    """What is said of tokens of which kind 0, and improbable ones, get more than others."""
    rng = np.random.default_rng(0)
    kinds = np.tile(np.arange(200) % 20, (count, 1))
    is_rare = rng.random(kinds.shape) < 0.3
    is_first = kinds == 0
    noise = rng.normal(0, 0.05, kinds.shape)
    coefficients = 1.2 + effect * is_first + unlikely * is_rare + noise
    log_probs = np.where(is_rare, -2.0, -0.1)
    tokens = frame(kinds.astype(str), coefficients, log_probs=log_probs, **changes)
    return named_effects(tokens)


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
    assert planted(**options) == expected


def test_sides_are_told_apart():
    """A kind that gets more in winners and less in losers, and one that does in losers alone."""
    kinds = np.tile(np.arange(50) % 10, (80, 1))
    sides = np.repeat([[1], [-1]], 40, axis=0)
    coefficients = 1 + 0.2 * sides * (kinds == 1) + 0.1 * (sides < 0) * (kinds == 2)
    texts = np.char.add(" ", kinds.astype(str))
    log_probs = np.where(kinds == 1, UNKNOWN, -0.1)  # of what is not known, nothing is said
    assert named_effects(frame(texts, coefficients, sides, log_probs)) == (
        "more credit in winners for “·1” (+0.18); "
        "more blame in losers for “·2” (+0.11); less blame in losers for “·1” (-0.19)"
    )


def test_the_largest_effects_are_named():
    """Of both signs, whatever their order in a text."""
    kinds = np.tile(np.arange(50) % 10, (80, 1))
    by_kind = np.array([0.0, -0.2, 0.3, 0.2, -0.3, 0.1, -0.1, 0.08, -0.08, 0.0])
    assert named_effects(frame(kinds.astype(str), by_kind[kinds])) == (
        "more credit in winners for “2” (+0.30), “3” (+0.20), “5” (+0.10); "
        "less credit in winners for “4” (-0.30), “1” (-0.20), “6” (-0.10)"
    )


@pytest.mark.parametrize(("count", "is_named"), [(LEAST_TOKENS - 1, False), (LEAST_TOKENS, True)])
def test_rare_kinds_are_not_named(count, is_named):
    is_rare = np.arange(400) >= 400 - count
    texts = np.where(is_rare, "b", "a")
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.01, 400)
    coefficients = 1 + 0.5 * is_rare + noise
    said = named_effects(frame([texts], [coefficients])) or ""
    assert ("“b”" in said) == is_named


def skewed(rng):
    """A few tokens get nearly all, by chance."""
    shape = (40, 50)
    share = rng.choice([0.2, 0.02])
    kinds = rng.integers(0, 40, shape)
    coefficients = rng.choice([0.0, 100.0], shape, p=[1 - share, share])
    return kinds, coefficients


def uneven(rng):
    """Completions differ by much."""
    shape = (20, 100)
    kinds = rng.integers(0, 5, shape)
    of_token = rng.normal(1, 1, shape)
    of_completion = rng.normal(0, 1, (20, 1))
    return kinds, of_token + of_completion


def slow(rng):
    """Moving averages of noise, and kinds whose tokens stand side by side."""
    noise = rng.normal(size=(4, 209))
    windows = np.lib.stride_tricks.sliding_window_view(noise, 10, axis=1)
    coefficients = windows.sum(axis=-1)
    kinds = rng.integers(0, 10, (4, 25))
    return np.repeat(kinds, 8, axis=1), coefficients


@pytest.mark.parametrize("draw", [skewed, uneven, slow])
def test_coefficients_that_do_not_depend_on_tokens_name_no_kind(draw):
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(12):
        kinds, coefficients = draw(rng)
        tokens = frame(kinds.astype(str), coefficients)
        found = effects(tokens).set_index("kind")
        mean = coefficients.mean(axis=1, keepdims=True)
        within = coefficients - mean
        of_0 = within[kinds == 0]
        assert found.distance["“0”"] == pytest.approx(of_0.mean())
        called += found.is_clear.any()
    assert called <= 1
