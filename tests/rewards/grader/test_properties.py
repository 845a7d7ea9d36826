"""Properties of the grader over generated expressions. `judge` is called in this process: it is what workers run."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from delta_trl.rewards.grader.comparison import judge
from delta_trl.rewards.grader.normalization import normalize


# Generated inputs are small enough for every check to finish; the first parse in a process fills antlr's caches.
few = settings(max_examples=10, deadline=None)
coefficients = st.integers(-12, 12).filter(lambda n: n not in (0, 1, -1))


@st.composite
def polynomials(draw):
    """Terms (coefficient, power of x, power of y) with distinct powers."""
    powers = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=4, unique=True))
    return [(draw(coefficients), *power) for power in powers]


def write(terms, power="^{%d}"):
    parts = []
    for coefficient, *powers in terms:
        factors = [name + power % exponent for name, exponent in zip("xy", powers, strict=True) if exponent]
        parts.append("".join([str(coefficient), *factors]))
    return "+".join(parts).replace("+-", "-")


@settings(max_examples=5, deadline=None)
@given(polynomials(), st.randoms(use_true_random=False))
def test_rewriting_a_polynomial_changes_nothing(terms, rng):
    gold = write(terms)
    shuffled = rng.sample(terms, len(terms))
    for answer in (write(shuffled), write(shuffled, power="^%d"), f"f(x,y) = {gold}", rf"\left( {gold} \right)"):
        assert judge(gold, answer) == "right", answer


@few
@given(polynomials(), st.data())
def test_changing_a_coefficient_changes_everything(terms, data):
    index = data.draw(st.integers(0, len(terms) - 1))
    change = data.draw(st.sampled_from([-1, 1, 10, 100]))
    coefficient, *powers = terms[index]
    wrong = [*terms[:index], (coefficient + change, *powers), *terms[index + 1 :]]
    assert judge(write(terms), write(wrong)) != "right"


@few
@given(st.integers(-(10**25), 10**25), st.integers(1, 9))
@example(10**18, 1)
def test_integers_of_any_length_are_exact(number, difference):
    for separator in (",", "{,}", "\\,", " ", "\u202f"):
        written = f"{number:,}".replace(",", separator)
        assert judge(str(number), written) == judge(written, str(number)) == "right", written
    assert judge(str(number), str(number + difference)) != "right"


@few
@given(st.integers(1, 10**6), st.integers(2, 10**4))
def test_fractions(numerator, denominator):
    gold = rf"\frac{{{numerator}}}{{{denominator}}}"
    assert judge(gold, f"{numerator}/{denominator}") == "right"
    assert judge(gold, rf"\dfrac{{{2 * numerator}}}{{{2 * denominator}}}") == "right"
    assert judge(gold, rf"-\frac{{{numerator}}}{{{denominator}}}") != "right"
    assert judge(gold, rf"\frac{{{numerator + 1}}}{{{denominator}}}") != "right"


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from(r"0123456789xy\{}()[]^_+-*/=<>,.!|% $abc"), max_size=40))
def test_the_normal_form_is_normal_and_equals_itself(text):
    form = normalize(text)
    assert judge(text, text) in ("right", "unusable gold")
    assert normalize(form) == form or judge(form, normalize(form)) in ("right", "unusable gold")
