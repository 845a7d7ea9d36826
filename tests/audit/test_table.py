"""The table of an audit: what it says, and what is told apart."""

import re

from delta_trl.audit.table import describe, verdict


def of_side(auc=0.5, chance="", prompts=10, **changes) -> dict:
    numbers = {"auc": auc, "interval": [auc - 0.1, auc + 0.1], "p": 0.01 if chance else 0.5, "chance": chance}
    return numbers | {"responses": 20, "prompts": prompts} | changes


def test_numbers_of_both_sides():
    rules = {"good": {"losers": of_side(0.812, "above"), "winners": of_side(0.213, "below")},
             "none": {"losers": of_side(0.55)}, "few": {"losers": of_side(interval=None)}}  # fmt: skip
    one = {"rules": rules, "prompts": 1000, "completions": 2, "mean_reward": 0.5, "left_out": {"too long": 3}}
    text = describe({"mine": one})
    assert text.startswith(
        "## mine\n\n1,000 prompts, 2 completions, mean reward 0.500; left out: 3 too long.\n\n- Rules"
    )
    rows = dict(re.findall(r"^\| (\w+) +\| *(.*?) *\|$", text, re.MULTILINE))
    assert re.split(r" +\| +", rows["good"]) == ["▲ 0.812 (0.71 to 0.91), 0.010", "▼ 0.213 (0.11 to 0.31), 0.010"]
    assert rows["none"].startswith("0.550 (")
    assert "too few prompts" in rows["few"]


def test_only_what_is_hardly_chance_is_spoken_of():
    rules = {"good": of_side(0.7, "above"), "best": of_side(0.8, "above"), "chance": of_side(0.6)}
    rules |= {"bad": of_side(0.3, "below"), "worst": of_side(0.2, "below")}
    above, below = verdict({rule: {"losers": numbers} for rule, numbers in rules.items()})
    assert above.endswith("above chance: best (0.80), good (0.70).")
    assert below.endswith("below chance: worst (0.20), bad (0.30).")
    (nothing,) = verdict({"some": {"winners": of_side(0.6)}})
    assert nothing.endswith("above chance: no rule.")
    (few,) = verdict({"some": {"losers": of_side(0.9, prompts=9)}})
    assert "Only 9 prompts" in few
