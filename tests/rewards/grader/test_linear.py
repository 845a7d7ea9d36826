r"""Grading in the trainer's process takes time in proportion to the text: it holds the GIL and has no deadline."""

import time

import pytest

from delta_trl.rewards.grader.extraction import MAX_ANSWER_LENGTH, extract_answer
from delta_trl.rewards.math import is_copied


LENGTH = 10_000
SECONDS = 0.2
PREFIXES = ("", "x+1", "The answer is 1", "#### ", "$", "<answer>", "\\boxed{1}", "\\boxed{1} it", "\\boxed{")
REPEATED = (
    *(" ", "\n", "\t", ",", ". ", "*", "_", "#", "$", "(", "{", "}", "\\", "\\\\", "\\[", "\\(", "<", "=", "1", "a"),
    *("a b", "\\boxed{", "\\boxed{1}", "\\boxed ", "\\boxed{1} or ", "\\boxed{1}\\boxed{2}", "<answer>", "</answer>"),
    *("<think>", "</think>", "answer", "answer ", "the answer is ", "answer:\n", "or ", ", and", "\\text{or "),
    *("\\left(", "\\frac{"),
)  # fmt: skip


def seconds(function, text: str) -> float:
    start = time.thread_time()  # the processor's, on a machine that is busy
    function(text)
    return time.thread_time() - start


@pytest.mark.parametrize(
    "function",
    [extract_answer, lambda text: is_copied(text[:MAX_ANSWER_LENGTH], "1", text)],
    ids=["the answer is found", "formulas of the prompt are found"],
)
def test_takes_time_in_proportion(function):
    slow = []
    for prefix in PREFIXES:
        for repeated in REPEATED:
            text = prefix + repeated * (LENGTH // len(repeated)) + "x"
            if seconds(function, text) < SECONDS / 5:
                continue
            # Again, as the garbage may have been collected; what is in proportion takes half as long for half of it.
            took, half = seconds(function, text), seconds(function, text[: len(text) // 2] + "x")
            if took > SECONDS or (took > SECONDS / 5 and took > 3 * half):
                slow.append(f"{prefix!r}, then {repeated!r}: {took:.2f} s, for half of it {half:.2f} s")
    assert not slow, "\n".join(slow)


def test_boxes_in_boxes_are_not_copied_once_for_each():
    depth = 20_000
    assert seconds(extract_answer, "\\boxed{" * depth + "}" * depth) < SECONDS
