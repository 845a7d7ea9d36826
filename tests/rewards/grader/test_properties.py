"""A property of the grader over any text. `judge` is called in this process: it is what workers run."""

from hypothesis import given, settings
from hypothesis import strategies as st

from delta_trl.rewards.grader.comparison import judge
from delta_trl.rewards.grader.normalization import normalize


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from(r"0123456789xy\{}()[]^_+-*/=<>,.!|% $abc"), max_size=40))
def test_the_normal_form_is_normal_and_equals_itself(text):
    form = normalize(text)
    assert judge(text, text) in ("right", "unusable gold")
    assert normalize(form) == form or judge(form, normalize(form)) in ("right", "unusable gold")
