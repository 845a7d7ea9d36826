import pytest

from delta_trl.rewards import math_reward


@pytest.mark.parametrize(
    ("gold", "completion", "reward"),
    [
        (r"\sqrt{2}", r"It is $\boxed{\sqrt{2}}$.", 1.0),
        (r"\sqrt{2}", r"It is $\boxed{\sqrt{3}}$.", 0.0),
        (r"so \boxed{\frac{1}{2}}", [{"role": "assistant", "content": r"\boxed{0.5}"}], 1.0),
        ("", r"\boxed{1}", None),
    ],
)
def test_first_of_all(gold, completion, reward):
    assert math_reward([completion], [gold]) == [reward]
