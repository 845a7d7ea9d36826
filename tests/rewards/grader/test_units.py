"""Every name in the table of units."""

import pytest

from delta_trl.rewards.grader.comparison import judge
from delta_trl.rewards.grader.units import TABLE


ROWS = [row.split() for row in TABLE.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_the_names_of_a_unit_are_one_unit(row):
    names = [name for name in row[2:] if name != "*"]
    for name in names:
        assert judge(rf"2\text{{ {names[0]}}}", rf"2\text{{ {name}}}") == "right"
        assert judge(rf"2\text{{ {names[0]}}}", rf"3\text{{ {name}}}") == "wrong"
        assert judge(r"2\text{ m}^7", rf"2\text{{ {name}}}") == "wrong"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"36\text{ km/h}", r"10\text{ m/s}"),
        (r"2\text{ hours}", r"120\text{ min}"),
        (r"1\text{ mile}", r"1.609344\text{ km}"),
        (r"1\text{ week}", r"7\text{ days}"),
        (r"3\text{ feet}", r"1\text{ yard}"),
        (r"1\text{ foot}", r"12\text{ inches}"),
        (r"1\text{ ton}", r"1000\text{ kg}"),
        (r"16\text{ oz}", r"1\text{ lb}"),
        (r"1\text{ century}", r"1200\text{ months}"),
        (r"1\text{ decade}", r"10\text{ years}"),
        (r"1\text{ MW}", r"1000\text{ kilowatt}"),
        (r"1\text{ GHz}", r"1000\text{ megahertz}"),
        (r"5\text{ µm}", r"5000\text{ nm}"),
        (r"1\text{ dm}", r"10\text{ centimeters}"),
        (r"50\text{ cents}", r"0.5\text{ dollars}"),
    ],
)
def test_units_convert(gold, answer):
    assert judge(gold, answer) == "right"
    assert judge(gold, answer.replace("1", "2").replace("5", "6").replace("7", "8")) == "wrong"
