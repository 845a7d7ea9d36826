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
