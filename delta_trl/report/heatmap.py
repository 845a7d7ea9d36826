"""
Tokens shaded by a number, mostly their coefficient: in notebooks, and on the pages of reports and audits.

The appearance of a token is decided here alone: its shade, its visible text, and the text on hover.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from .text import visible


SHADES = 10  # on either side of the middle
# Blue and orange are told apart with every common colour-vision deficiency. Mixed into the background, they leave text
# readable on white and on black.
ABOVE, BELOW = (38, 118, 184), (224, 122, 10)
MAX_OPACITY = 0.6
SMALLEST_SPREAD = 0.05


def shade(value: float, full: float, middle: float = 1.0) -> str:
    """
    The style class of a value: `a1` … `a10` above `middle`, `b1` … `b10` below. Empty close to `middle`, and if not
    finite. `full` is the distance that gets the full colour.
    """
    if not math.isfinite(value):
        return ""
    level = min(SHADES, round(abs(value - middle) / full * SHADES))
    return f"{'a' if value > middle else 'b'}{level}" if level else ""


def spread(distances: Sequence[float]) -> float:
    """The distance from the middle that gets the full colour: the 99th percentile, rounded up to 0.05."""
    distances = np.abs(np.asarray(distances, dtype=float))
    distances = distances[np.isfinite(distances)]
    if not len(distances):
        return SMALLEST_SPREAD
    percentile = np.quantile(distances, 0.99, method="higher")
    return max(1, math.ceil(round(percentile / SMALLEST_SPREAD, 3))) * SMALLEST_SPREAD


def describe(coefficient: float, log_prob: float = math.nan, entropy: float = math.nan) -> str:
    """The text on hover over a token. Unknown values are left out, except for the coefficient."""
    parts = [f"coefficient {coefficient:.3f}" if math.isfinite(coefficient) else "coefficient not known"]
    if math.isfinite(log_prob):
        probability = math.exp(log_prob)
        parts.append(f"probability {probability:.3f}" if probability > 0.95 else f"probability {probability:.2g}")
    if math.isfinite(entropy):
        parts.append(f"entropy {entropy:.2f}")
    return ", ".join(parts)


def token_html(token: str, classes: str, title: str, tag: str = "span") -> str:
    """The HTML of a token in an element of class `tokens`; `classes` as [`shade`] gives them."""
    return f'<{tag} class="{classes}" title="{escape(title)}">{escape(visible(token))}</{tag}>'


def shades_css(selector: str) -> str:
    """Style rules that give every class of [`shade`] its colour; `selector` is what stands before the class."""
    return "\n".join(
        f"{selector}{side}{k} {{ background: rgb({r} {g} {b} / {MAX_OPACITY * k / SHADES:.2f}) }}"
        for side, (r, g, b) in (("a", ABOVE), ("b", BELOW))
        for k in range(1, SHADES + 1)
    )


STYLE = Path(__file__).with_name("tokens.css").read_text(encoding="utf-8") + shades_css(".tokens .")


def legend(full: float, relative: bool = False) -> str:
    """HTML of the colour scale: of coefficients, which are not negative, or of distances from a mean if `relative`."""
    steps = [k for k in range(-SHADES, SHADES + 1, 2) if relative or 1 + k / SHADES * full >= 0]
    less, more = ("less", "more") if relative else ("less credit or blame", "more")
    low, high = (
        f"{k / SHADES * full:+.2f}" if relative else f"{1 + k / SHADES * full:.2f}" for k in steps[:: len(steps) - 1]
    )
    cells = "".join(f'<span class="{shade(k, SHADES, middle=0)}">&nbsp;</span>' for k in steps)
    return (
        f'<span class="tokens legend">{less} {low} '
        f'<span class="scale" aria-hidden="true">{cells}</span> {high} {more}</span>'
    )


@dataclass
class TokenHeatmap:
    """Shaded tokens as notebooks display them; `html` is the same as a string, without scripts."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def token_heatmap(tokens: Sequence[str], coefficients: Sequence[float]) -> TokenHeatmap:
    """
    Tokens shaded by their coefficient, blue above 1 and orange below; the value shows on hover.

    Args:
        tokens (`Sequence[str]` of length T): Text of each token. May be anything: it is escaped.
        coefficients (`Sequence[float]` or tensor of shape `(T,)`): Their coefficients.

    Returns:
        [`TokenHeatmap`]: Displayed by notebooks; `.html` is a self-contained fragment.

    Raises:
        ValueError: If there are not as many coefficients as tokens.

    Example:

    ```python
    >>> from delta_trl.report import token_heatmap

    >>> token_heatmap(["2", "+", "2", "=", "4"], [0.9, 0.8, 0.9, 1.0, 1.2])
    ```
    """
    coefficients = [float(c) for c in coefficients]
    if len(tokens) != len(coefficients):
        raise ValueError(
            f"token_heatmap: expected one coefficient per token, got {len(tokens)} tokens and {len(coefficients)} "
            "coefficients."
        )
    full = spread([c - 1 for c in coefficients])
    spans = "".join(
        token_html(token, shade(c, full), describe(c)) for token, c in zip(tokens, coefficients, strict=True)
    )
    html = f'<style>{STYLE}</style><div class="tokens" dir="auto">{spans}</div><p>{legend(full)}</p>'
    return TokenHeatmap(html)
