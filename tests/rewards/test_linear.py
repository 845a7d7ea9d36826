r"""Grading in the trainer's process takes time in proportion to the text: it holds the GIL and has no deadline."""

import gc
import itertools
import time

import pytest

from delta_trl.rewards import copies
from delta_trl.rewards.code import extract_program
from delta_trl.rewards.grader.extraction import MAX_ANSWER_LENGTH, extract_answer
from delta_trl.rewards.reasoning import graded_texts
from delta_trl.sandbox import parse_tests


LENGTH = 100_000
SECONDS = 1.0
# What stands before and after a long run: it is at the beginning, at the end, or in the middle
AROUND = (
    ("", "x"),
    ("The answer is x+1", ""),
    ("\\boxed{1}\\text{", "\\boxed{2}"),
    ("```python\ndef f(n):", "\n    return n\n```"),
)
REPEATED = (
    *(" ", "\n", "\t", "\r\n", ",", ". ", "*", "_", "#", "$", "(", "{", "}", "\\", "\\\\", "\\[", "\\(", "<", "="),
    *("1", "a", "é", "\u3000", "'", '"', "a b", "a\n", "x=1\n", "-", "[", "|", "`", "```", "```\n", "```python\n"),
    *("\\boxed{", "\\boxed{1}", "\\boxed ", "\\boxed{1} or ", "\\boxed{1}\\boxed{2}", "\\text{", "\\text{or ", "or "),
    *("<answer>", "</answer>", "answer", "answer ", "the answer is ", "answer is\n", "answer:\n", "answer: .\n"),
    *("答案：", "final answer\n", ", and", "because ", "since ", "A (", "(A) ", "\\left(", "\\frac{", "$x$", "x+1\n"),
    *("<think>", "</think>", "<|end|>", "</s>", "</s> ", "[PYTHON]\n", "[DONE] ", "def f(n):\n", "class f:\n", "f = "),
    *("def f(", "async ", "pass\n", "...\n", '"""', '"""\n', "# a\n", "@f\n", "from a import b\n", "import a\n"),
    *("print(", "input()\n", "input ", "    return n\n"),
)  # fmt: skip
ASKED = parse_tests({"fn_name": "f", "inputs": [[1]], "outputs": [1]})
READS = parse_tests({"inputs": ["1"], "outputs": ["1"]})


def answer_and_prompt(text: str) -> bool:
    copies._formulas.cache_clear()  # a text that was read before takes no time
    return copies.is_copied(text[:MAX_ANSWER_LENGTH], "1", text)


ENTRY_POINTS = {
    "texts to grade": lambda text: graded_texts([text], [text], reasoning_opened=False),
    "the answer": extract_answer,
    "formulas of the prompt": answer_and_prompt,
    "the program that reads": lambda text: extract_program(text, READS),
    "the program that continues its prompt": lambda text: extract_program(text, ASKED, text),
}


def seconds(function, text: str) -> float:
    gc.disable()  # its passes over all objects take time that is not the function's
    start = time.thread_time()  # the processor's, on a machine that is busy
    function(text)
    took = time.thread_time() - start
    gc.enable()
    return took


@pytest.mark.parametrize("function", ENTRY_POINTS.values(), ids=ENTRY_POINTS)
def test_takes_time_in_proportion(function):
    slow = []
    for repeated, (before, after) in itertools.product(REPEATED, AROUND):
        times = LENGTH // len(repeated)
        of_fifth = seconds(function, before + repeated * (times // 5) + after)
        # What grows with the square takes a 25th of the time for a fifth
        if of_fifth < SECONDS / 25:
            continue
        # Again, as the machine may have paused; what is in proportion takes half as long for half of it.
        took = seconds(function, before + repeated * times + after)
        of_half = seconds(function, before + repeated * (times // 2) + after)
        out_of_proportion = took > SECONDS / 5 and took > 3 * of_half
        if took > SECONDS or out_of_proportion:
            slow.append(f"{before!r}, {repeated!r}, {after!r}: {took:.2f} s, for half of it {of_half:.2f} s")
    assert not slow, "\n".join(slow)


def test_boxes_in_boxes_are_not_copied_once_for_each():
    depth = 20_000
    text = "\\boxed{" * depth + "}" * depth
    assert seconds(extract_answer, text) < SECONDS / 5
