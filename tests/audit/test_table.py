"""The table of an audit: what it says, and what is told apart."""

import re

from delta_trl.audit.table import describe


def side(auc: float, interval: list[float], p: float, chance: str) -> dict:
    return {"auc": auc, "interval": interval, "p": p, "chance": chance}


def test_numbers_of_both_sides():
    above = side(0.812, [0.712, 0.912], 0.0005, "above")
    below = side(0.213, [0.113, 0.313], 0.001, "below")
    at_chance = side(0.55, [0.45, 0.65], 0.5, "")
    rules = {
        "good": {"losers": above, "winners": below},
        "none": {"losers": at_chance},
        "few": {"losers": at_chance | {"interval": None}},
    }
    one = {
        "rules": rules,
        "prompts": 1000,
        "completions": 2,
        "mean_reward": 0.5,
        "left_out": {"too long": 3, "unlabelled": 1000},
    }

    text = describe({"mine": one})

    left_out = "left out: 3 too long; left out: 1,000 unlabelled"
    assert text.startswith(f"## mine\n\n1,000 prompts, 2 completions, mean reward 0.500; {left_out}.\n\n|")
    rows = dict(re.findall(r"^\| (\w+) +\| *(.*?) *\|$", text, re.MULTILINE))
    assert re.split(r" +\| +", rows["good"]) == [
        "▲ 0.812 (0.712 to 0.912), < 0.001",
        "▼ 0.213 (0.113 to 0.313), 0.001",
    ]
    assert re.split(r" +\| *", rows["none"]) == ["0.550 (0.450 to 0.650), 0.500", ""]
    assert "too few prompts" in rows["few"]
