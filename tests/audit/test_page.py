import re

from hypothesis import given
from hypothesis import strategies as st

from delta_trl.audit.page import SHOWN, _example, _examples, verdict


@given(st.integers(1, 300), st.data())
def test_a_window_around_the_first_mark(length, data):
    """Of a long completion it says how many tokens it leaves out."""
    marked = data.draw(st.integers(0, length - 1))
    line = {"unit": list(range(length)), "marked": [marked], "tokens": [f"t{i}" for i in range(length)], "prompt": "p",
            "reward": 0.0, "advantage": -1.0, "scores": {"rule": [float(i) for i in range(length)]}}  # fmt: skip
    example = _example(line, ["rule"])
    html = str(example["rows"][0]["tokens"])
    shown = [int(i) for i in re.findall(r">t(\d+)<", html)]
    assert f">t{marked}</mark>" in html
    assert [*range(example["before"]), *shown, *range(length - example["after"], length)] == list(range(length))
    assert len(shown) == length or example["before"] or example["after"]


def rule(auc=0.5, p=0.5, difference=(-0.1, 0.1), prompts=10, side="losers") -> dict:
    return {
        side: {"auc": auc, "interval": (0.4, 0.6), "p": p, "prompts": prompts},
        "gradient": {"difference_interval": difference},
    }


def test_only_what_is_hardly_chance_is_spoken_of():
    rules = {
        "uniform": {"gradient": {"difference_interval": (0, 0)}},
        "good": rule(0.7, 0.001, (0.1, 0.2)),
        "best": rule(0.8, 0.05, (0.0, 0.2)),
        "chance": rule(0.6, 0.06),
        "bad": rule(0.3, 0.03, (-0.2, -0.1)),
        "worst": rule(0.2, 0.001, None),
        "none": rule(0.4, 0.2, (-0.2, 0.0)),
    }
    assert verdict(rules) == [
        "Rank the tokens at which losers went wrong high: best (0.80), good (0.70).",
        "Rank them low, against their purpose: worst (0.20), bad (0.30).",
        "One rollout batch's gradient lies closer to the reference than uniform credit's under good, and farther "
        "under bad.",
    ]
    winners = {"uniform": {}, "some": rule(side="winners", difference=None)}
    assert verdict(winners) == [
        "Rank the tokens of winners at which siblings failed high: none.",
        "One rollout batch's gradient lies closer to the reference than uniform credit's under no rule, and farther "
        "under none.",
    ]
    few = "Losers of 9 prompts have labels: too few to say what finds the tokens at which losers went wrong."
    assert verdict({"some": {"losers": rule(0.9, prompts=9)["losers"]}}) == [few]


def example(scores, units=None, marked=(0,), **changes) -> dict:
    tokens = [f"t{i}" for i in range(len(scores))]
    line = {"unit": units or list(range(len(scores))), "marked": list(marked), "tokens": tokens, "prompt": "p",
            "reward": 0.0, "advantage": -1.0, "scores": {"rule": scores}}  # fmt: skip
    return line | changes


def test_shades_are_by_the_rank_of_the_mean_score_of_a_unit():
    """Units of 1, 2 and 1 tokens with the means 5, 1 and 3: ranks 5/6, 1/6 and 1/2, squared in tenths 7, 0 and 2."""
    (row,) = _example(example([5.0, 0.0, 2.0, 3.0], units=[0, 1, 1, 4], marked=[1]), ["rule"])["rows"]
    assert re.findall('<(mark|span) class="(.*?)" title="score (.*?)">', str(row["tokens"])) == [
        ("span", "a7", "5"), ("mark", "", "0"), ("mark", "", "2"), ("span", "a2", "3"),
    ]  # fmt: skip
    assert not row["equal"]
    (row,) = _example(example([1.0, 1.0]), ["rule"])["rows"]
    assert row["equal"]
    assert 'class="a' not in str(row["tokens"])


def test_examples_are_evenly_over_the_audit():
    for count, expected in ((0, []), (3, [0, 1, 2]), (7, [0, 1, 3, 5]), (8, [0, 2, 4, 6])):
        lines = [example([1.0], prompt=str(i)) for i in range(count)]
        assert [int(one["prompt"]) for one in _examples({"losers": lines}, ["rule"])["losers"]] == expected
    assert SHOWN == 4
