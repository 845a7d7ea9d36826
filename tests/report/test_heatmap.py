import math
import re
from html import unescape

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_trl.report import token_heatmap
from delta_trl.report.heatmap import Scale, describe
from delta_trl.report.text import visible

from .test_text import ANY_TEXT


@given(st.lists(st.tuples(ANY_TEXT, st.floats(0, 3)), max_size=20))
def test_all_tokens_are_there_escaped_and_in_order(pairs):
    tokens = [token for token, _ in pairs]
    html = token_heatmap(tokens, [c for _, c in pairs]).html
    body = html.split('dir="auto">')[1].split("</div>")[0]
    spans = re.findall(r'<span class="(?:[ab]\d+)?" title="coefficient (.*?)">([^<>]*)</span>', body)
    expected = [(f"{c:.3f}", visible(token)) for token, c in pairs]
    assert [(value, unescape(text)) for value, text in spans] == expected
    assert body.count("<") == 2 * len(tokens)


def test_a_shade_grows_with_the_distance_from_the_neutral_value():
    assert [Scale(0.2).shade(c) for c in (0.5, 0.8, 0.9, 1.0, 1.005, 1.1, 1.2, 9.0)] == [
        "b10", "b10", "b5", "", "", "a5", "a10", "a10",
    ]  # fmt: skip
    assert Scale(0.2).shade(float("nan")) == ""
    assert Scale.of([1.0]).full == Scale.of([]).full == Scale.of([float("nan")]).full == 0.05
    assert Scale.of([0.8, 1.0, 1.2]).full == pytest.approx(0.2)
    advantages = Scale.of([-0.4, 0.0, 0.3], "advantage")
    assert [advantages.shade(a) for a in (-0.4, -0.2, 0.0, 0.4)] == ["b10", "b5", "", "a10"]
    assert advantages.legend[::5] == pytest.approx([-0.4, 0, 0.4])


def test_every_shade_has_a_colour():
    """On which text is readable: test_page.py asks axe-core."""
    html = token_heatmap([], []).html
    opacities = re.findall(r":is\(\.a(\d+), \.b(\d+)\) \{ --opacity: ([\d.]+); \}", html)
    assert [(int(a), int(b)) for a, b, _ in opacities] == [(k, k) for k in range(1, 11)]
    deeper = [float(opacity) for *_, opacity in opacities]
    assert deeper == sorted(set(deeper))


def test_what_is_not_known_is_left_out():
    assert describe("coefficient", 1.2, math.log(0.5), 0.7) == "coefficient 1.200, probability 0.5, entropy 0.70"
    assert describe("coefficient", 1.2, math.log(0.99), math.nan) == "coefficient 1.200, probability 0.99"
    assert describe("coefficient", math.nan) == "coefficient not known"
    assert describe("advantage", -0.5) == "advantage -0.500"


def test_takes_tensors_and_shows_in_a_notebook():
    heatmap = token_heatmap(["<b>", "x"], torch.tensor([0.7, 2.5]))
    assert heatmap._repr_html_() == heatmap.html
    assert 'class="b2" title="coefficient 0.700">&lt;b&gt;</span>' in heatmap.html
    assert 'class="a10" title="coefficient 2.500">x</span>' in heatmap.html
    assert re.findall(r"-?\d\.\d\d", heatmap.html.split("legend")[-1]) == ["0.00", "2.50"]  # the ends of the scale
    with pytest.raises(ValueError, match="for 2 tokens"):
        token_heatmap(["a", "b"], [1.0])
