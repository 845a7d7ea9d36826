"""The verdict's sentences follow from the numbers. Where these are too few or unclear, there is none."""

import json

import numpy as np
import pytest

from delta_trl.report import read_run
from delta_trl.report.tokens import side_means, token_table
from delta_trl.report.verdict import compared, ends, verdict

from . import runs


def read(path, **logged):
    """A run that has logged these lists of values."""
    length = max(map(len, logged.values()))
    history = [{"step": i + 1, **{k: v[i] for k, v in logged.items() if i < len(v)}} for i in range(length)]
    path.mkdir(parents=True, exist_ok=True)
    (path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return read_run(path)


def sentences(run, min_count=20) -> list[str]:
    return [("! " if s.warning else "") + s.text for s in verdict(run, token_table(run), min_count)]


def noisy(start, end, n=30, noise=0.02, seed=0):
    return (np.linspace(start, end, n) + np.random.default_rng(seed).normal(0, noise, n)).tolist()


def test_reward(tmp_path):
    assert "The reward rose from 0.3" in sentences(read(tmp_path, reward=noisy(0.3, 0.8)))[0]
    assert "! The reward fell from 0.7" in sentences(read(tmp_path, reward=noisy(0.8, 0.3)))[0]
    assert "no clear change" in sentences(read(tmp_path, reward=noisy(0.5, 0.5)))[0]
    rose, fell_back, *_ = sentences(read(tmp_path, reward=noisy(0.2, 0.9) + noisy(0.9, 0.5)))
    assert "rose" in rose
    assert fell_back.startswith("! It had been higher: 0.8")
    unchanged, fell_back, *_ = sentences(read(tmp_path, reward=noisy(0.2, 0.9) + noisy(0.9, 0.2)))
    assert "no clear change" in unchanged
    assert fell_back.startswith("! It had been higher: 0.8")
    assert len(sentences(read(tmp_path, reward=noisy(0.8, 0.3)))) == 1  # that it had been higher is said already
    evaluations = {"eval_reward": [0.1, 0.6, 0.4]}  # of TRL's own trainer, which knows no avg@k
    for measure in ("mean reward", "avg@k"):
        (text,) = sentences(read(tmp_path, reward=noisy(0.3, 0.8), **evaluations))[1:]
        expected = f"In evaluation {measure} was 0.100 at step 1 and 0.400 at step 3; the highest was 0.600 at step 2."
        assert text == expected
        evaluations = {"eval_avg_at_k": [0.1, 0.6, 0.4], "eval_reward": [0.2, 0.7, 0.5]}
    for values, said in (([0.1, 0.4], "0.100 at step 1 and 0.400 at step 2."), ([0.4], "0.400, at step 1.")):
        assert sentences(read(tmp_path, eval_reward=values))[1] == f"In evaluation mean reward was {said}"


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


def test_a_trend_is_no_noise():
    """The error is that of the ends' means, not of the values' distance from the mean of all."""
    error = np.mean([ends(np.array(noisy(0.0, 1.0, 100, 0.05, seed))).error for seed in range(20)])
    assert error == pytest.approx(0.05 / np.sqrt(10), rel=0.1)
    assert ends(np.arange(5.0)) is None


def test_too_little_to_say(tmp_path):
    assert sentences(read(tmp_path, reward=[0.2, 0.9, 0.3])) == [
        "3 values of the reward, 0.200 to 0.300: too little for a verdict on training."
    ]
    one = "One value of the reward, 0.200: too little for a verdict on training."
    assert sentences(read(tmp_path, reward=[0.2])) == [one]
    assert sentences(read(tmp_path, loss=[0.1])) == ["No training log is here, so there is no verdict on training."]


def test_warnings(tmp_path):
    fine = {
        "entropy": [0.5] * 6,
        "completions/mean_length": [300] * 6,
        "completions/clipped_ratio": [0.0] * 6,
        "frac_reward_zero_std": [0.2] * 6,
        "clip_ratio/low_mean": [0.01] * 6,
        "clip_ratio/high_mean": [0.01] * 6,
        "credit/neutral": [0.0] * 6,
        "grad_norm": [0.3] * 6,
    }
    text = sentences(read(tmp_path, reward=[0.5] * 30, **fine))[-1]
    assert text == (
        "Nothing to warn of in entropy, completion length, cut-off completions, groups without contrast, clip ratios "
        "and gradient norm."
    )
    assert sentences(read(tmp_path, entropy=[0.5] * 6))[-1] == "Nothing to warn of in entropy."
    for changes, expected in [
        ({"entropy": np.linspace(0.6, 0.05, 30).tolist()}, "! The entropy collapsed, from 0.581 to 0.069 nats."),
        ({"entropy": np.linspace(0.2, 1.5, 30).tolist()}, "! The entropy blew up, from 0.245 to 1.455 nats."),
        ({"completions/mean_length": [400.0] * 15 + [100.0] * 15}, "! Completions shrank from 400 to 100 tokens."),
        ({"completions/mean_length": [400.0] * 15 + [900.0] * 15}, "! Completions grew from 400 to 900 tokens."),
        ({"completions/clipped_ratio": [0.0] * 91 + [0.3] * 9}, "! At the end, 27 % of completions are cut off"),
        ({"frac_reward_zero_std": [0.7] * 30}, "! At the end, 70 % of groups have equal rewards and train nothing."),
        ({"clip_ratio/low_mean": [0.12] * 30}, "! The clip range stops 13 % of all tokens' updates."),  # with `high`
        ({"credit/neutral": [1.0, 0.0] * 15}, "! In 50 % of rollout batches there was nothing to credit"),
        ({"grad_norm": [0.003] * 29 + [0.06]}, "! The gradient norm reached 0.06 at step 30, 20 times its median."),
        ({"loss": [0.1, float("nan")]}, "! loss was not finite at one logged step, first at step 2."),
    ]:
        texts = sentences(read(tmp_path, **{"reward": [0.5] * 30, **fine, **changes}))
        assert sum(text.startswith("! ") for text in texts) == 1, texts
        assert any(text.startswith(expected) for text in texts), texts


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ({"entropy": [1.0] * 3 + [0.25] * 3}, None),
        ({"entropy": [1.0] * 3 + [3.0] * 3}, None),
        ({"entropy": [0.0] * 3 + [1.0] * 3}, None),  # no multiple of 0
        ({"completions/mean_length": [400.0] * 3 + [200.0] * 3}, None),
        ({"completions/mean_length": [200.0] * 3 + [400.0] * 3}, None),
        ({"completions/mean_length": [0.0] * 3 + [400.0] * 3}, None),
        ({"grad_norm": [0.5] * 5 + [5.0]}, None),
        ({"grad_norm": [0.5] * 5 + [5.1]}, "reached 5.1 at step 6"),
        ({"completions/clipped_ratio": [0.1]}, "10 % of completions are cut off"),
        ({"frac_reward_zero_std": [0.5]}, "50 % of groups"),
        ({"clip_ratio/high_mean": [0.1]}, "10 % of all tokens"),
        ({"credit/neutral": [0.25]}, "In 25 % of rollout batches"),
    ],
)
def test_at_a_threshold(tmp_path, logged, expected):
    warnings = [text for text in sentences(read(tmp_path, **logged)) if text.startswith("! ")]
    assert len(warnings) == (expected is not None)
    assert expected is None or expected in warnings[0]


@pytest.mark.parametrize(
    ("share", "spread", "expected"),
    [
        (0.93, 0.15, "93 % of the credit's variance lies between the sides (mean of 2 logged values; a winner's "
         "token gets 1.10 times the credit, a loser's 0.93 times the blame): it is mostly a reweighting of "
         "winners against losers"),
        (0.5, 0.15, "it both reweights"),
        (0.05, 0.15, "it mostly tells tokens of one side apart"),
        (0.8, 0.01, "it is mostly a reweighting"),
        (0.2, 0.01, "it mostly tells tokens of one side apart"),
        (0.93, 0.004, "Token credit changes little: the coefficients' standard deviation is 0.004"),
    ],
)  # fmt: skip
def test_share_between_the_sides(tmp_path, share, spread, expected):
    numbers = {"between_sides_variance": share, "coefficient_std": spread}
    numbers |= {"coefficient_mean_positive": 1.1, "coefficient_mean_negative": 0.93}
    run = read(tmp_path, **{f"credit/{name}": [value] * 2 for name, value in numbers.items()})
    (found,) = [s for s in verdict(run, token_table(run), 20) if expected in s.text]
    assert found.plot == ("Coefficient spread" if spread < 0.01 else "Variance between the sides")


def test_recorded_tokens_stand_in_for_the_log(tmp_path):
    rows = [
        runs.completion(["a", "b"], coefficients=[1.3, 1.1]),
        runs.completion(["a", "b"], coefficients=[0.7, 0.9], advantage=-1.0),
    ]
    runs.write_completions(tmp_path, rows)
    expected = (
        "80 % of the credit's variance lies between the sides (of the recorded tokens; a winner's token gets 1.20"
    )
    assert sentences(read_run(tmp_path))[1].startswith(expected)  # 0.04 of 0.05
    assert sentences(read(tmp_path, **{"credit/coefficient_std": [0.3]}))[1].startswith(expected)  # too little to use
    runs.write_completions(tmp_path, rows[:1])  # one side alone
    assert not any("variance" in text for text in sentences(read_run(tmp_path)))


def test_what_stands_out(tmp_path):
    """Unlikely tokens of winners get 0.2 less; the side's own level is not what is compared."""
    rng = np.random.default_rng(0)
    rows = []
    for step, (side, level) in ((s, one) for s in (0, 10) for one in ((1.0, 1.2), (-1.0, 0.8))):
        probabilities = rng.uniform(0, 1, 200)
        drift = 0.1 * step / 10
        coefficients = level + drift + rng.normal(0, 0.01, 200) - 0.2 * (side > 0) * (probabilities < 0.5)
        rows.append(
            runs.completion(
                [" a", " b"] * 100,
                step=step,
                advantage=side,
                reward=float(side > 0),
                coefficients=(coefficients + np.tile([0.05, -0.05], 100)).tolist(),
                log_probs=np.log(probabilities).tolist(),
                token_ids=[0, 1] * 100,
            )
        )
    runs.write_completions(tmp_path, rows)
    runs.write_token_types(tmp_path, rows)
    run = read_run(tmp_path)
    texts = sentences(run)
    (text,) = (text for text in texts if text.startswith("What stands out"))
    assert text.endswith(
        "tokens with a probability under 0.5 get, against the rest of their side, 0.20 less credit in winners."
    )
    assert "Against the mean of their side, more for “·a” (+0.05); less for “·b” (-0.05)." in texts
    assert any("more for" in text for text in sentences(run, min_count=400))
    assert not any("token type" in text or "more for" in text for text in sentences(run, min_count=401))
    table = token_table(run)
    for side in (1, -1):
        for step in (0, 10):
            assert table.relative[(table.sides == side) & (table.steps == step)].mean() == pytest.approx(0, abs=1e-6)
    assert side_means(run)[10, -1] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize(("length", "side", "name"), [(100, 1.0, "credit in winners"), (900, -1.0, "blame in losers")])
def test_the_later_half_is_that_of_a_completion(tmp_path, length, side, name):
    """However long others are."""
    rng = np.random.default_rng(0)
    rise = np.arange(length) >= length / 2
    rows = [
        runs.completion(
            ["x"] * length, advantage=side, coefficients=(1 + 0.2 * rise + rng.normal(0, 0.01, length)).tolist()
        ),
        runs.completion(["x"] * 300, advantage=-side, coefficients=rng.normal(1, 0.001, 300).tolist()),
    ]
    runs.write_completions(tmp_path, rows)
    assert f"tokens in the later half of their completion get, against its first, 0.20 more {name}." in " ".join(
        sentences(read_run(tmp_path))
    )


def test_long_completions_with_more_credit_are_no_later_tokens(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        runs.completion(["x"] * length, advantage=side, coefficients=rng.normal(mean, 0.01, length).tolist())
        for length, mean in ((400, 1.05), (100, 0.95))
        for side in (1.0, -1.0)
    ]
    runs.write_completions(tmp_path, rows)
    assert not any("later half" in text for text in sentences(read_run(tmp_path)))


def test_equal_coefficients_have_nothing_that_stands_out(tmp_path):
    rng = np.random.default_rng(0)
    for step in (0, 10):
        rows = [
            runs.completion(["x"] * 300, advantage=a, step=step, coefficients=[1 + 0.1 * a + step / 70] * 300,
                            log_probs=(-rng.gamma(1, 1, 300)).tolist())
            for a in (1.0, -1.0)
        ]  # fmt: skip
        runs.write_completions(tmp_path, rows)
    assert not any("stands out" in text for text in sentences(read_run(tmp_path)))


@pytest.mark.parametrize(("count", "said"), [(19, False), (20, True)])
def test_a_probability_of_a_half_is_not_low(tmp_path, count, said):
    coefficients = [0.8] * count + [1.0] * 20
    log_probs = np.log([0.1] * count + [0.5] * 20).tolist()
    runs.write_completions(
        tmp_path, [runs.completion(["a"] * (count + 20), coefficients=coefficients, log_probs=log_probs)]
    )
    assert (
        any(
            "under 0.5 get, against the rest of their side, 0.20 less" in text
            for text in sentences(read_run(tmp_path))
        )
        == said
    )


def test_the_middle_token_is_in_neither_half(tmp_path):
    """Of 41 tokens, the 20 behind the middle one get 0.2 less than the 20 before it."""
    coefficients = [1.0] * 20 + [1.21] + [0.8] * 20
    runs.write_completions(tmp_path, [runs.completion(["a"] * 41, coefficients=coefficients)])
    assert any("of their completion get, against its first, 0.20 less" in t for t in sentences(read_run(tmp_path)))


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ({"a": 0.06, "b": 0.05, "c": 0.04, "d": 0.03, "e": -0.18},
         "Against the mean of their side, more for “a” (+0.06), “b” (+0.05), “c” (+0.04); less for “e” (-0.18)."),
        ({"a": 0.18, "b": -0.03, "c": -0.04, "d": -0.05, "e": -0.06},
         "Against the mean of their side, more for “a” (+0.18); less for “e” (-0.06), “d” (-0.05), “c” (-0.04)."),
        ({"a": 0.015, "b": 0.015, "c": -0.03}, "Against the mean of their side, less for “c” (-0.03)."),
        ({"a": 0.03, "b": -0.015, "c": -0.015}, "Against the mean of their side, more for “a” (+0.03)."),
        ({"a": 0.01, "b": -0.01},
         "No token type is 0.02 or more from the mean of its side, of those sampled 20 times."),
    ],
)  # fmt: skip
def test_token_types(tmp_path, distances, expected):
    row = runs.completion([*distances] * 20, coefficients=[1.2 + distance for distance in distances.values()] * 20)
    runs.write_completions(tmp_path, [row])
    runs.write_token_types(tmp_path, [row])
    assert expected in sentences(read_run(tmp_path))


def test_two_runs(tmp_path):
    a, b, c = (read(tmp_path / name, reward=noisy(0.3, end, seed=s)) for s, (name, end) in
               enumerate([("a", 0.8), ("b", 0.81), ("c", 0.6)]))  # fmt: skip
    (close,) = compared([a, b], ["a", "b"])
    assert close.text.startswith("The rewards are too close to tell apart in the end: a 0.7")
    (apart,) = compared([c, a], ["c", "a"])
    assert apart.text.startswith("The reward of a is higher in the end: c 0.")
    assert "another seed" in apart.text
    assert compared([a, read(tmp_path / "d", reward=[1.0])], ["a", "d"]) == []


def test_two_runs_that_cannot_be_compared_as_they_end(tmp_path):
    whole = noisy(0.2, 0.8, n=100)
    a, b = read(tmp_path / "a", reward=whole), read(tmp_path / "b", reward=whole[:40])
    (equal,) = compared([a, b], ["a", "b"])
    assert equal.text.startswith("The rewards are too close to tell apart at step 40, where one run ends: a 0.4")
    (higher,) = compared([a, read(tmp_path / "c", reward=noisy(0.8, 0.8, n=40))], ["a", "c"])
    assert higher.text.startswith("The reward of c is higher at step 40, where one run ends: a 0.4")
    a.settings, b.settings = {"rewards": {"math_reward": 1.0}}, {"rewards": {"math_reward": 0.5}}
    (different,) = compared([a, b], ["a", "b"])
    assert "different rewards" in different.text


def test_the_reward_is_the_policy_s_with_dynamic_sampling(tmp_path):
    before = noisy(0.2, 0.8, n=60)
    run = read(tmp_path / "d", reward=noisy(0.5, 0.5, n=60), **{"dynamic_sampling/reward_before": before})
    assert "The reward rose from 0.2" in sentences(run)[0]
    (other,) = compared([run, read(tmp_path / "p", reward=noisy(0.2, 0.7, n=60))], ["dynamic", "plain"])
    assert other.text.startswith("The reward of dynamic is higher in the end: dynamic 0.7")


def test_dynamic_sampling(tmp_path):
    means = {"no_contrast_before": [0.5, 0.7], "no_contrast": [0.0, 0.2]}
    means |= {"tokens_per_trained_token": [2.0, 3.0], "reward_before": [0.2, 0.3]}
    run = read(tmp_path, reward=[0.5, 0.5], **{f"dynamic_sampling/{name}": values for name, values in means.items()})
    assert (
        "Dynamic sampling left 10 % of groups without contrast instead of 60 %, for 2.50 generated tokens per trained "
        "one; before it, the mean reward was 0.250 (means of 2 logged values)."
    ) in sentences(run)
