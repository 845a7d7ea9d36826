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
    coefficients = [c for _, c in pairs]
    html = token_heatmap(tokens, coefficients).html
    body = html.split('dir="auto">')[1].split("</div>")[0]
    spans = re.findall(r'<span class="(?:[ab]\d+)?" title="coefficient (.*?)">([^<>]*)</span>', body)
    assert [value for value, _ in spans] == [f"{c:.3f}" for c in coefficients]
    assert [unescape(text) for _, text in spans] == list(map(visible, tokens))
    assert body.count("<") == 2 * len(tokens)


@pytest.mark.parametrize(
    ("coefficient", "shade"),
    [
        (0.5, "b10"),
        (0.8, "b10"),
        (0.9, "b5"),
        (1.0, ""),
        (1.005, ""),
        (1.1, "a5"),
        (1.2, "a10"),
        (9.0, "a10"),
        (math.nan, ""),
        (math.inf, ""),
    ],
)
def test_a_shade_grows_with_the_distance_from_the_neutral_value(coefficient, shade):
    assert Scale(0.2).shade(coefficient) == shade


@pytest.mark.parametrize(
    ("coefficients", "full"),
    [
        ([0.8, 1.0, 1.2], 0.2),
        ([1.0], 0.05),
        ([], 0.05),
        ([math.nan], 0.05),
        ([math.inf, 1.1], 0.1),
        ([1.0] * 979 + [1.3] * 20 + [9.0], 0.3),  # all but the largest hundredth
    ],
)
def test_the_largest_distance_has_the_full_shade(coefficients, full):
    assert Scale.of(coefficients).full == pytest.approx(full)


def test_of_advantages_0_is_neutral():
    advantages = Scale.of([-0.4, 0.0, 0.3], "advantage")
    shades = [advantages.shade(a) for a in (-0.4, -0.2, 0.0, 0.4)]
    assert shades == ["b10", "b5", "", "a10"]
    assert advantages.legend[::5] == pytest.approx([-0.4, 0, 0.4])


def test_every_shade_has_a_colour():
    """On which text is readable: test_page.py asks axe-core."""
    html = token_heatmap([], []).html
    found = re.findall(r":is\(\.a(\d+), \.b(\d+)\) \{ --opacity: ([\d.]+); \}", html)
    above, below, opacities = zip(*found, strict=True)
    assert list(map(int, above)) == list(range(1, 11))
    assert above == below
    deeper = [float(opacity) for opacity in opacities]
    assert deeper == sorted(set(deeper))


def test_what_is_not_known_is_left_out():
    assert describe("coefficient", 1.2, math.log(0.5), 0.7) == "coefficient 1.200, probability 0.5, entropy 0.70"
    assert describe("coefficient", 1.2, math.log(0.99), math.nan) == "coefficient 1.200, probability 0.99"
    assert describe("coefficient", 0.0, 0.0, 0.0) == "coefficient 0.000, probability 1, entropy 0.00"
    assert describe("coefficient", math.nan) == describe("coefficient", math.inf) == "coefficient not known"
    assert describe("advantage", -0.5) == "advantage -0.500"


def test_takes_tensors_and_shows_in_a_notebook():
    heatmap = token_heatmap(["<b>", "x"], torch.tensor([0.7, 2.5]))
    assert heatmap._repr_html_() == heatmap.html
    assert 'class="b2" title="coefficient 0.700">&lt;b&gt;</span>' in heatmap.html
    assert 'class="a10" title="coefficient 2.500">x</span>' in heatmap.html
    legend = heatmap.html.split("legend")[-1]
    assert re.findall(r"-?\d\.\d\d", legend) == ["0.00", "2.50"]  # the ends of the scale


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_values_is_refused(count):
    with pytest.raises(ValueError, match=f"{count} coefficients for 2 tokens"):
        token_heatmap(["a", "b"], [1.0] * count)
