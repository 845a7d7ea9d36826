"""Piecewise functions as sets of a value and its condition."""

from hypothesis import assume, given
from hypothesis import strategies as st

from delta_trl.rewards.grader.cases import OTHERWISE, equal_cases, read_cases


CASES = st.dictionaries(st.sampled_from(["x<0", "x=0", "0<x<1", "x>1"]), st.sampled_from("abc"), min_size=1)


def equal(first: str, second: str) -> bool:
    return first == second


def pairs(cases: dict[str, str]) -> list[tuple[str, str]]:
    return [(value, condition) for condition, value in cases.items()]


@given(CASES, CASES, st.randoms(use_true_random=False))
def test_order_means_nothing(gold, answer, random):
    shuffled = pairs(answer)
    random.shuffle(shuffled)
    assert equal_cases(pairs(gold), shuffled, equal) == (gold == answer)


@given(CASES, CASES, st.data())
def test_one_condition_may_be_otherwise(gold, answer, data):
    rest = data.draw(st.sampled_from(sorted(answer)))
    assume(len(gold) == len(answer))
    other = [(value, OTHERWISE if condition == rest else condition) for value, condition in pairs(answer)]
    # the value of "otherwise" is that of the condition that the others leave
    left = set(gold) - (set(answer) - {rest})
    same = len(left) == 1 and {**answer, left.pop(): answer[rest]}.items() >= gold.items()
    assert equal_cases(pairs(gold), other, equal) == equal_cases(other, pairs(gold), equal) == same


def test_cases_are_read():
    text = r"f(x) = \begin{cases} x & \text{if } x \ge 0 \\ -x, & \text{otherwise.} \end{cases}"
    assert read_cases(text) == [("x", r"x \ge 0"), ("-x", OTHERWISE)]
    assert read_cases(r"\begin{cases} x = 1 \\ y = 2 \end{cases}") is None
