"""Numbers and times of day in words, against every one of them spelled out."""

from datetime import datetime, timedelta
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_trl.rewards.grader.words import number_of, same_time


ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = "third fourth fifth sixth seventh eighth ninth tenth".split()


def spelled(n: int) -> str:
    for factor, scale in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if n >= factor:
            low = f" and {spelled(n % factor)}" if n % factor else ""
            return f"{spelled(n // factor)} {scale}{low}"
    if n <= 20:
        return ONES[n]
    return TENS[n // 10 - 2] + (f"-{ONES[n % 10]}" if n % 10 else "")


def test_every_number_below_a_thousand():
    assert [number_of(spelled(n)) for n in range(1000)] == list(range(1000))


@given(st.integers(0, 10**9 - 1))
def test_numbers_as_people_spell_them(n):
    text = spelled(n)
    assert number_of(text) == number_of(text.replace(" and ", " ")) == number_of(text.title()) == n
    assert number_of(f"minus {text}") == -n


@given(st.integers(1, 99), st.sampled_from(list(enumerate(ORDINALS, start=3))))
def test_fractions(count, ordinal):
    denominator, name = ordinal
    plural = "s" if count > 1 else ""
    assert number_of(f"{spelled(count)} {name}{plural}") == Fraction(count, denominator)


@pytest.mark.parametrize(
    "text",
    ["twenty-ten", "twenty-zero", "zero hundred", "two three", "five thousand thousand", "hundred and", "", "and"],
)
def test_what_is_no_number(text):
    assert number_of(text) is None


def test_times_of_day():
    day = [datetime(2026, 1, 1) + timedelta(minutes=30 * i) for i in range(48)]
    for one, other in product(day, day):
        twelve = f"{int(one.strftime('%I'))}:{one.strftime('%M')} {'a.m.' if one.hour < 12 else 'PM'}"
        assert same_time(twelve, other.strftime("%I:%M %p")) == (one == other)
        clock = other.strftime("%H:%M")
        # 1:30 may leave out that it is in the afternoon, 13:30 need not say so
        may_be = one.hour == other.hour or (other.hour == (one.hour % 12 or 12) and one.minute == other.minute)
        assert same_time(twelve, clock) == (may_be and one.minute == other.minute)
        assert same_time(clock, twelve) == same_time(twelve, clock)
        assert same_time(one.strftime("%H:%M"), clock) == (one == other)
        if not one.minute:
            assert same_time(twelve.replace(":00", ""), clock) == same_time(twelve, clock)
    assert not same_time("12:60", "12:60")
    assert not same_time("25:00", "25:00")
