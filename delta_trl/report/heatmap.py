"""
Tokens shaded by their coefficient, in notebooks and in the report.

The appearance of a token is decided here alone: its shade, its visible text, and its values on hover.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from .text import visible


SHADES = 10  # on either side of 1
# Blue and orange are told apart with every common colour-vision deficiency. Mixed into the background, they leave text
# readable on white and on black.
ABOVE = (38, 118, 184)
BELOW = (224, 122, 10)
MAX_OPACITY = 0.6
SMALLEST_SPREAD = 0.05

STYLE = Path(__file__).with_name("tokens.css").read_text(encoding="utf-8") + "\n".join(
    f".tokens .{side}{k} {{ background: rgb({r} {g} {b} / {MAX_OPACITY * k / SHADES:.2f}) }}"
    for side, (r, g, b) in (("a", ABOVE), ("b", BELOW))
    for k in range(1, SHADES + 1)
)


@dataclass(frozen=True)
class Scale:
    """
    What is shaded: coefficients around 1, or advantages around 0.

    Args:
        full (`float`): The distance from the centre that gets the full colour.
        name (`str`, *optional*, defaults to `"coefficient"`): What a value is called; or `"advantage"`.
    """

    full: float
    name: str = "coefficient"

    @classmethod
    def of(cls, values: Sequence[float], name: str = "coefficient") -> "Scale":
        """The full colour is for the 99th percentile of all distances, rounded up to 0.05."""
        distances = np.abs(np.asarray(values, dtype=float) - cls(1.0, name).centre)
        distances = distances[np.isfinite(distances)]
        if not len(distances):
            return cls(SMALLEST_SPREAD, name)
        percentile = np.quantile(distances, 0.99, method="higher")
        return cls(max(1, math.ceil(round(percentile / SMALLEST_SPREAD, 3))) * SMALLEST_SPREAD, name)

    @property
    def centre(self) -> float:
        return float(self.name == "coefficient")


def shade(value: float, scale: Scale) -> str:
    """The style class of a value: `a1` … `a10` above the centre, `b1` … `b10` below. Empty near it, and for NaN."""
    if not math.isfinite(value):
        return ""
    level = min(SHADES, round(abs(value - scale.centre) / scale.full * SHADES))
    return f"{'a' if value > scale.centre else 'b'}{level}" if level else ""


def describe(value: float, log_prob: float = math.nan, entropy: float = math.nan, name: str = "coefficient") -> str:
    """The values of a token in words. Unknown ones are left out, except for the coefficient or advantage."""
    parts = [f"{name} {value:.3f}" if math.isfinite(value) else f"{name} not known"]
    if math.isfinite(log_prob):
        probability = math.exp(log_prob)
        parts.append(f"probability {probability:.3f}" if probability > 0.95 else f"probability {probability:.2g}")
    if math.isfinite(entropy):
        parts.append(f"entropy {entropy:.2f}")
    return ", ".join(parts)


def tokens_html(tokens: Sequence[str], values: Sequence[float], scale: Scale, *others: Sequence[float]) -> str:
    """The HTML of tokens, to stand in an element of class `tokens`. `others` are log-probabilities and entropies."""
    return "".join(
        f'<span class="{shade(value, scale)}" title="{describe(value, *rest, name=scale.name)}">'
        f"{escape(visible(token))}</span>"
        for token, value, *rest in zip(tokens, values, *others, strict=True)
    )


def legend(scale: Scale) -> str:
    """HTML of the colour scale. Coefficients are not negative here, and neither are the ends of their scale."""
    values = [scale.centre + k / SHADES * scale.full for k in range(-SHADES, SHADES + 1, 2)]
    values = [value for value in values if value >= 0 or not scale.centre]
    cells = "".join(f'<span class="{shade(value, scale)}">&nbsp;</span>' for value in values)
    low, high = ("less credit or blame", "more") if scale.centre else ("advantage", "")
    return (
        f'<span class="tokens legend">{low} {values[0]:.2f} '
        f'<span class="scale" aria-hidden="true">{cells}</span> {values[-1]:.2f} {high}</span>'
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
    scale = Scale.of(coefficients)
    spans = tokens_html(tokens, coefficients, scale)
    return TokenHeatmap(f'<style>{STYLE}</style><div class="tokens" dir="auto">{spans}</div><p>{legend(scale)}</p>')
