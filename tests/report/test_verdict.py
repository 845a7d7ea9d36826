"""The verdict's sentences follow from the numbers. Where these are too few or unclear, nothing is claimed."""

import numpy as np
import pandas as pd
import pytest

from delta_trl.report import read_run
from delta_trl.report.verdict import LEAST_TOKENS, change, effects, named_effects, verdict

from . import runs


def of_history(path, **logged) -> dict[str, str]:
    """The verdict on lists of logged values, by rule; warnings begin with "! "."""
    runs.write_history(path, range(len(next(iter(logged.values())))), **logged)
    return by_rule(path)


def of_rows(path, rows) -> dict[str, str]:
    runs.write_completions(path, rows)
    return by_rule(path)


def by_rule(path) -> dict[str, str]:
    return {name: "! " * bool(warning) + sentence for name, sentence, warning in verdict(read_run(path))}


def noisy(start, end, n=30, noise=0.02, seed=0):
    return (np.linspace(start, end, n) + np.random.default_rng(seed).normal(0, noise, n)).tolist()


def test_reward(tmp_path):
    """With dynamic sampling, the policy's."""
    before = {"dynamic_sampling/reward_before": noisy(0.2, 0.8, n=60)}
    assert of_history(tmp_path, reward=noisy(0.5, 0.5, n=60), **before)["Reward"].startswith("It rose: 0.2")
    risen_and_fallen = noisy(0.2, 0.9) + noisy(0.9, 0.5)
    assert of_history(tmp_path, reward=risen_and_fallen)["Reward"].startswith("! It rose")


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
    ("rule", "logged", "warns"),
    [
        ("Entropy", {"entropy": [1.0] * 3 + [0.25] * 3}, False),
        ("Entropy", {"entropy": [1.0] * 3 + [0.24] * 3}, True),
        ("Entropy", {"entropy": [1.0] * 3 + [3.0] * 3}, False),
        ("Entropy", {"entropy": [1.0] * 3 + [3.1] * 3}, True),
        ("Cut off", {"completions/clipped_ratio": [0.1] * 6}, True),
        ("Cut off", {"completions/clipped_ratio": [0.09] * 6}, False),
        ("Contrast", {"frac_reward_zero_std": [0.5] * 6}, True),
        ("Contrast", {"frac_reward_zero_std": [0.49] * 6}, False),
        # TRL's own number is that of the groups that dynamic sampling has chosen
        ("Contrast", {"frac_reward_zero_std": [0.0] * 6, "dynamic_sampling/no_contrast_before": [0.9] * 6}, True),
    ],
)
def test_warnings(tmp_path, rule, logged, warns):
    found = of_history(tmp_path, **logged)
    assert found[rule].startswith("! ") == warns
    assert found.keys() == {rule}


@pytest.mark.parametrize(("won", "lost", "share"), [(1.2, 0.8, "94%"), (1.06, 0.94, "59%"), (1.0, 1.0, "0%")])
def test_credit_between_the_sides(tmp_path, won, lost, share):
    """The standard deviation within sides is 0.05. The mean drifts over the steps, which counts for neither."""
    rng = np.random.default_rng(0)
    rows = []
    for step in range(4):
        for side, mean in ((1.0, won), (-1.0, lost)):
            noise = rng.normal(0, 0.05, 50)
            coefficients = mean + step / 4 + noise - noise.mean()
            rows.append(runs.completion(["a"] * 50, step=step, advantage=side, coefficients=coefficients.tolist()))
    rows.append(runs.completion(["a"], step=5, coefficients=[9.0]))  # no loser beside it
    said = of_rows(tmp_path, rows)["Credit"]
    assert f"{won + 0.375:.3f} in winners and {lost + 0.375:.3f} in losers; {share}" in said
    assert said.startswith("! ") == (share == "94%")


def test_skewed_weights_are_no_effect(tmp_path):
    """A few tokens get nearly all, by chance: a type that has one of them, or none, is not named for it."""
    rng = np.random.default_rng(0)
    for share in (0.2, 0.02):
        rows = [
            runs.completion(
                [f"w{j}" for j in rng.integers(0, 40, 50)], step=step, advantage=side,
                coefficients=rng.choice([0.0, 100.0], 50, p=[1 - share, share]).tolist(), log_probs=[-0.1] * 50,
            )
            for step in range(20)
            for side in (1.0, -1.0)
        ]  # fmt: skip
        assert "Tokens" not in of_rows(tmp_path, rows)


def planted(rng, effect, count, side=1.0, unlikely=0.0):
    """Rows in which type 0, and improbable tokens, get more than others."""
    rows = []
    for i in range(count):
        ids = np.arange(200) % 20
        rare = rng.random(200) < 0.3
        c = 1.2 + effect * (ids == 0) + unlikely * rare + rng.normal(0, 0.05, 200)
        rows.append(
            runs.completion(
                [f"w{j}" for j in ids], step=i % 3, advantage=side,
                coefficients=c.tolist(), log_probs=np.where(rare, -2.0, -0.1).tolist(),
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"effect": 0.06}, "more credit in winners for “w0” (+0.05)"),
        ({"effect": -0.06, "side": -1.0}, "less blame in losers for “w0” (-0.06)"),
        ({"effect": 0.0, "unlikely": -0.1, "side": -1.0}, "less blame in losers for a probability under 0.5 (-0.07)"),
    ],
)
def test_a_planted_effect_is_named(tmp_path, options, expected):
    text = of_rows(tmp_path, planted(np.random.default_rng(0), count=6, **options))["Tokens"]
    assert expected in text
    assert text.count("(") == 1  # and nothing else
    assert "Tokens" not in of_rows(tmp_path / "0", planted(np.random.default_rng(0), effect=0.0, count=6))


def test_small_and_rare_effects_are_not_named(tmp_path):
    rng = np.random.default_rng(0)
    assert "Tokens" not in of_rows(tmp_path / "small", planted(rng, effect=0.015, count=40))
    for n, said in ((LEAST_TOKENS - 1, False), (LEAST_TOKENS, True)):
        rare = np.arange(400) >= 400 - n
        row = runs.completion(
            np.where(rare, "b", "a").tolist(), log_probs=[-0.1] * 400,
            coefficients=(1 + 0.5 * rare + rng.normal(0, 0.01, 400)).tolist(),
        )  # fmt: skip
        assert ("“b”" in of_rows(tmp_path / str(n), [row]).get("Tokens", "")) == said


def test_coefficients_of_chance_name_no_kind(tmp_path):
    """Of coefficients that do not depend on tokens, though completions differ by much."""
    rng = np.random.default_rng(0)
    texts = rng.choice(list("abcde"), (20, 100))
    runs.write_completions(tmp_path, [runs.completion(row.tolist(), log_probs=[-0.1] * 100) for row in texts])
    tokens = read_run(tmp_path).tokens
    clear = 0
    for _ in range(100):
        tokens["coefficient"] = rng.normal(1, 1, 2000) + rng.normal(0, 1, 20)[tokens.completion]
        kinds = effects(tokens).set_index("kind")
        within = tokens.coefficient - tokens.groupby("completion").coefficient.transform("mean")
        assert kinds.distance["“a”"] == pytest.approx(within[tokens.text == "a"].mean())
        clear += kinds.is_clear.any()
    assert clear <= 4


def test_coefficients_that_change_slowly_name_no_kind():
    """Moving averages of noise, and kinds whose tokens stand side by side."""
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(30):
        frames = []
        for i in range(4):
            noise = np.convolve(rng.normal(size=209), np.ones(10), "valid")
            kinds = np.repeat(rng.integers(0, 10, 25), 8)
            frame = {"side": 1, "completion": i, "text": kinds.astype(str), "coefficient": noise, "log_prob": -0.1}
            frames.append(pd.DataFrame(frame))
        called += named_effects(pd.concat(frames, ignore_index=True)) is not None
    assert called <= 2


def test_unknown_coefficients_are_left_out(tmp_path):
    rows = planted(np.random.default_rng(0), 0.06, 6)
    for row in rows:
        row["coefficients"][:100:20] = row["advantages"][:100:20] = [None] * 5  # half of “w0”
    rows.append(runs.completion(["c"] * 30, coefficients=[None] * 30))
    rows.append(runs.completion([], advantage=-1.0))
    assert "“w0” (+0.06)" in of_rows(tmp_path, rows)["Tokens"]
