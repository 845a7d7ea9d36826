# ruff: noqa: E501 (tables)
r"""Grading in the trainer's process takes time in proportion to the text: it holds the GIL and has no deadline."""

import time

import pytest

from delta_trl.rewards.grader.extraction import MAX_ANSWER_LENGTH, extract_answer, extract_gold
from delta_trl.rewards.math import is_copied


LENGTH = 10_000
SECONDS = 0.2
PREFIXES = (
    *("", "The answer is 1", "The answer is ", "Answer: 1 or", "Therefore ", "#### ", "$", "\\[", "\\(", "<answer>"),
    *("\\boxed{1}", "\\boxed{1} it", "\\boxed", "\\boxed{", "\\fbox{1} or ", "<think>", "not ", "x = "),
)
REPEATED = (
    *(" ", "\n", "\t", "\u00a0", " \n", ",", ", ", " ,", ".", ". ", ";", ":", "!", "?", "*", "_", "`", "#", "$", "$$", "-"),
    *("—", "(", ")", "[", "]", "{", "}", "\\", "\\\\", "\\(", "\\)", "\\[", "\\]", "|", "^", "%", "\n%", "<", ">", "=", "’"),
    *("1", "1,", "1, ", "1 ", "1.", "x=", "x = ", "x=1 ", "a", "a ", "a b", "\\boxed{", "\\boxed{1}", "\\boxed ", "\\fbox"),
    *("\\boxed{1} or ", "\\boxed{1}\\boxed{2}", "\\boxed{x=1}, y=", "<answer>", "</answer>", "<answer>1", "<think>", "<!--"),
    *("</think>", "<!---->", "answer", "answer ", "Answer: ", "the answer is ", "answer:\n", "final result", "final "),
    *("or ", " or", "not ", "n't ", "is ", "it is ", "that ", "this is not ", "ignore ", "wait ", "so ", " so", " (so"),
    *("because", " because", ", and", " and not", "therefore ", "thus,", "hence:", "Therefore $", "maybe ", "if ", "=x="),
    *("\\text{", "\\text{or ", "\\frac{", "\\frac{1}{", "\\cdot ", "\\times", "\\pm", "\\%", "\\,", "\\! ", "5 million "),
    *("^{", "_{", "x^(", "sqrt(", "\\sqrt ", "\\left(", "1/2 ", "2 1/2 ", "\\mathbb{R}", "\\choose ", "1'000", "\\{ "),
)  # fmt: skip


def seconds(function, text: str) -> float:
    start = time.thread_time()  # the processor's, on a machine that is busy
    function(text)
    return time.thread_time() - start


def check(function, length: int, prefixes: tuple[str, ...]) -> None:
    slow = []
    for prefix in prefixes:
        for repeated in REPEATED:
            text = prefix + repeated * (length // len(repeated)) + "x"
            if seconds(function, text) < SECONDS / 5:
                continue
            # Again, as the garbage may have been collected; what is in proportion takes half as long for half of it.
            took, half = seconds(function, text), seconds(function, text[: len(text) // 2] + "x")
            if took > SECONDS or (took > SECONDS / 5 and took > 3 * half):
                slow.append(f"{prefix!r}, then {repeated!r}: {took:.2f} s, for half of it {half:.2f} s")
    assert not slow, "\n".join(slow)


@pytest.mark.parametrize(
    "prefixes", [("The answer is 1", "\\boxed{1}"), pytest.param(PREFIXES, marks=pytest.mark.slow)]
)
def test_the_answer_is_found(prefixes):
    check(extract_answer, LENGTH, prefixes)


def test_the_gold_is_found():
    check(extract_gold, LENGTH, ("", "1", "The answer is 1"))


def test_formulas_of_the_prompt_are_found():
    check(lambda text: is_copied(text[:MAX_ANSWER_LENGTH], "1", text), LENGTH, ("", "x+1"))
