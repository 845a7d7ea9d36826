import numpy as np
import pytest

from delta_trl.rewards import multiple_choice_reward


@pytest.mark.parametrize(
    ("gold", "completion", "score"),
    [
        ("B", r"\boxed{B}", 1.0),
        ("B", r"\boxed{\text{(B)}}", 1.0),
        ("B", r"\boxed{b}", 1.0),
        ("B", "Answer: B", 1.0),
        ("B", "Answer: (B) The second law", 1.0),
        ("B", "The correct answer is **(B)**.", 1.0),
        ("B", "<answer>B</answer>", 1.0),
        ("(B)", r"\boxed{\textbf{(B)}\ 12}", 1.0),
        (1, r"\boxed{B}", 1.0),
        ("B", r"<think>\boxed{B}</think> \boxed{C}", 0.0),
        ("B", r"\boxed{A} \boxed{B}", 0.0),
        ("B", r"\boxed{A, B}", 0.0),
        ("B", r"\boxed{ABCD}", 0.0),
        ("B", "The answer is not B.", 0.0),
        ("B", r"\boxed{Because}", 0.0),
        ("B", "", 0.0),
        ("Z", r"\boxed{Z}", None),
        ("", r"\boxed{B}", None),
        (None, r"\boxed{B}", None),
        (99, r"\boxed{B}", None),
        (np.int64(1), r"\boxed{B}", 1.0),
        (float("nan"), r"\boxed{B}", None),
    ],
)
def test_choices(gold, completion, score):
    assert multiple_choice_reward([completion], [gold]) == [score]


def test_columns():
    columns = {}
    assert multiple_choice_reward(["Answer: A", r"\boxed{C}"], ["A", "Z"], log_extra=columns.__setitem__) == [
        1.0,
        None,
    ]
    assert columns == {"gold": ["A", "[unusable]"], "chosen": ["A", "C"]}


@pytest.mark.parametrize("gold", [1.0, ["B"]])
def test_what_is_no_letter_is_refused(gold):
    with pytest.raises(TypeError, match="`solution` 1 of 1 is"):
        multiple_choice_reward([r"\boxed{B}"], [gold])
