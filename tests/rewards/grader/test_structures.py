"""Groups, rings and fields by name, against their factors."""

from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from delta_trl.rewards.grader.structures import MAX_PARTS, read_structures, same_structures


def cyclic(*orders: int) -> str:
    return r" \times ".join(rf"\mathbb{{Z}}_{{{n}}}" for n in orders)


def same(gold: str, answer: str) -> bool:
    read = read_structures(gold)
    assert read is not None
    return same_structures(read, answer)


PRIME_POWERS = st.lists(st.sampled_from([2, 3, 4, 5, 7, 8, 9]), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(PRIME_POWERS, PRIME_POWERS)
def test_finite_groups_are_equal_if_their_prime_powers_are(first, second):
    assert same(cyclic(*first), cyclic(*second)) == (sorted(first) == sorted(second))


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from([4, 3, 5, 7]), min_size=1))
def test_coprime_orders_multiply(orders):
    assert same(cyclic(prod(orders)), cyclic(*orders))
    assert not same(cyclic(prod(orders)), cyclic(*orders, 2))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2 * MAX_PARTS), st.integers(1, 2 * MAX_PARTS))
def test_powers(m, n):
    assert same(rf"(\mathbb{{Z}}_6)^{{{m}}}", rf"({cyclic(2, 3)})^{{{n}}}") == (m == n)
    if n <= MAX_PARTS:
        assert same(rf"\mathbb{{Z}}_2^{{{m}}}", cyclic(*[2] * n)) == (m == n)
