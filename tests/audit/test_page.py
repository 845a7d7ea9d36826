import re

from hypothesis import given
from hypothesis import strategies as st

from delta_trl.audit.page import _example


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
