"""The page of an audit: what it says, which tokens it shows, and that text from models does nothing."""

import re

from hypothesis import given
from hypothesis import strategies as st

from delta_trl.audit.page import page, verdict


HOSTILE = ["<script>alert(1)</script>", "</dd><img src=x onerror=alert(1)>", "\u202edrawer"]


def line(length=3, marked=(0,), **changes) -> dict:
    tokens = [f"t{i}" for i in range(length)]
    found = {"unit": list(range(length)), "marked": list(marked), "tokens": tokens, "prompt": "p", "reward": 0.0,
             "advantage": -1.0, "scores": {"rule": [float(i) for i in range(length)]}}  # fmt: skip
    return found | changes


def of_side(auc=0.5, chance="", prompts=10, **changes) -> dict:
    numbers = {"auc": auc, "interval": [auc - 0.1, auc + 0.1], "p": 0.01 if chance else 0.5, "chance": chance}
    return numbers | {"responses": 20, "prompts": prompts} | changes


def rendered(rules, lines=(), name="mine") -> str:
    one = {"rules": rules, "prompts": 1, "completions": 2, "mean_reward": 0.5, "left_out": {"1 & 2": 3}}
    settings = {"model_name_or_path": "org/model", "rules": {"rule": "DelTA()"}, "seed": 0}
    return page({"settings": settings, "versions": {}, "benchmarks": {name: one}}, {name: list(lines)})


def test_what_is_below_chance_is_told_apart():
    html = rendered({"good": {"losers": of_side(0.812, "above")}, "bad": {"losers": of_side(0.213, "below")},
                     "none": {"losers": of_side(0.55)}, "few": {"losers": of_side(interval=None)}})  # fmt: skip
    cells = dict(re.findall(r'<th scope="row">(\w+)</th><td[^>]*>(.*?)</td>', html))
    assert cells["good"] == "▲ <b>0.812</b> (0.71 to 0.91), 0.010"
    assert cells["bad"].startswith("▼ below chance: <b>0.213")
    assert cells["none"].startswith("<b>0.550")
    assert "too few" in cells["few"]


def test_only_what_is_hardly_chance_is_spoken_of():
    rules = {"good": of_side(0.7, "above"), "best": of_side(0.8, "above"), "chance": of_side(0.6)}
    rules |= {"bad": of_side(0.3, "below"), "worst": of_side(0.2, "below")}
    above, below = verdict({rule: {"losers": numbers} for rule, numbers in rules.items()})
    assert above.endswith("above chance: best (0.80), good (0.70).")
    assert below.endswith("below chance: worst (0.20), bad (0.30).")
    (nothing,) = verdict({"some": {"winners": of_side(0.6)}})
    assert nothing.endswith("above chance: none.")
    (few,) = verdict({"some": {"losers": of_side(0.9, prompts=9)}})
    assert "Too few prompts, 9," in few


@given(st.integers(1, 300), st.data())
def test_a_window_around_the_first_mark(length, data):
    marked = data.draw(st.integers(0, length - 1))
    html = rendered({"rule": {"losers": of_side()}}, [line(length, [marked])])
    shown = [int(i) for i in re.findall(r">t(\d+)<", html)]
    assert f">t{marked}</mark>" in html
    assert shown == list(range(shown[0], shown[-1] + 1))
    assert ("<dd>… " in html, " …</dd>" in html) == (shown[0] > 0, shown[-1] < length - 1)


def test_shades_are_by_the_rank_of_the_mean_score_of_a_unit():
    """Units of 1, 2 and 1 tokens with the means 5, 1 and 3: ranks 5/6, 1/6 and 1/2, squared."""
    units = line(4, [1], unit=[0, 1, 1, 4], scores={"rule": [5.0, 0.0, 2.0, 3.0]})
    shades = re.findall(r'<(mark|span) style="--rank:(.*?)">', rendered({"rule": {"losers": of_side()}}, [units]))
    assert shades == [("span", "0.69"), ("mark", "0.03"), ("mark", "0.03"), ("span", "0.25")]
    alike = line(2, scores={"rule": [1.0, 1.0]})
    assert set(re.findall('--rank:(.*?)"', rendered({"rule": {"losers": of_side()}}, [alike]))) == {"0.00"}


def test_hostile_text_is_shown_and_does_nothing():
    text = "".join(HOSTILE)
    hostile = line(tokens=HOSTILE, prompt=text, scores={text: [1.0, 2, 3]})
    html = rendered({text: {"losers": of_side()}}, [hostile], text)
    assert html.count("&lt;script&gt;") > 3
    assert not re.findall("<(script|img)", html)
    assert "\u202e" not in "".join(re.findall("<dd>.*?</dd>", html))
