"""The names of pytest that tests in the sandbox may use do what pytest's own do."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delta_trl.sandbox.jail import pytest_names


FLOATS = st.sampled_from([0.5, 1e-13, 1 + 5e-7, 1 + 2e-6, 1e6 + 0.5, float("inf")])
NUMBERS = st.integers(-3, 3) | FLOATS
VALUES = NUMBERS | st.lists(NUMBERS, max_size=2) | st.tuples(NUMBERS)
LISTS = st.lists(NUMBERS, min_size=1, max_size=2)
TOLERANCES = st.fixed_dictionaries(
    {},
    optional={
        "rel": st.just(1e-3),
        "abs": st.sampled_from([1e-9, 0.6]),
    },
)


@example(1 + 5e-7, 1, {"abs": 1e-9})  # then no relative one
@example(1e-13, 0, {})
@given(VALUES, VALUES, TOLERANCES)
def test_approx(actual, expected, tolerances):
    theirs = actual == pytest.approx(expected, **tolerances)
    assert (actual == pytest_names.Approx(expected, **tolerances)) == theirs


@given(LISTS.map(np.array), LISTS)
def test_approx_of_arrays(actual, expected):
    array = np.array(expected)
    theirs = actual == pytest.approx(array)
    assert (actual == pytest_names.Approx(array)) == theirs
    assert (actual == pytest_names.Approx(expected)) == theirs


def test_approx_of_an_array_of_several_rows():
    array = np.array([[1.0, 2.0], [3.0, 4.0]])
    for approx in (pytest.approx, pytest_names.Approx):
        assert array + 1e-7 == approx(array)
        assert array + 1e-3 != approx(array)


def test_an_array_is_not_near_a_number():
    """To pytest an empty one is: no item of it differs."""
    assert np.zeros(0) == pytest.approx(2.5)
    assert np.zeros(0) != pytest_names.Approx(2.5)


def fail(error, text):
    raise error(text)


@pytest.mark.parametrize("raises", [pytest.raises, pytest_names.raises])
def test_raises(raises):
    with raises(ValueError, match="n.") as caught:
        fail(ValueError, "one")
    assert caught.type is ValueError
    assert str(caught.value) == "one"
    caught = raises((KeyError, OSError), fail, OSError, text="one")
    assert str(caught.value) == "one"

    failures = (AssertionError, pytest.fail.Exception, TypeError)
    with pytest.raises(failures):
        raises(ValueError, str)
    with pytest.raises(failures):
        raises(ValueError, fail, ValueError, "one", match="two")
    with pytest.raises(KeyError), raises(ValueError):
        fail(KeyError, "one")


def test_parametrize():
    seen = []

    @pytest_names.parametrize("a, b", [(1, 2), (3, 4)], ids=["x", "y"])
    @pytest_names.parametrize("c", [5, 6])
    def check(a, b, c):
        seen.append((a, b, c))

    check()
    assert seen == [(1, 2, 5), (1, 2, 6), (3, 4, 5), (3, 4, 6)]

    @pytest_names.parametrize("pair", [(1, 2)])
    def check_pair(pair):
        seen.append(pair)

    check_pair()
    assert seen[-1] == (1, 2)
    with pytest.raises(ValueError, match="shorter"):
        pytest_names.parametrize("a, b, c", [(1, 2)])(check)()

    @pytest_names.parametrize(["a"], [(0,)])
    def fails(a):
        fail(AssertionError, a)

    with pytest.raises(AssertionError):
        fails()
