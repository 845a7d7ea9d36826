"""
Tokens shaded by their coefficient, in notebooks and in the report.

The appearance of a token is decided here and in `tokens.css`: its shade, its visible text, and its values on hover.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .templates import render
from .text import visible


SHADES = 10  # on either side of the centre
SMALLEST_SPREAD = 0.05
CENTRES = {"coefficient": 1.0, "advantage": 0.0}  # values without a colour
LOWEST = {"coefficient": 0.0, "advantage": -math.inf}  # values that there are
LEGEND = 11  # values


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
        """The full colour is for the 99th percentile of all distances."""
        distances = np.abs(np.asarray(values, dtype=float) - CENTRES[name])
        finite = distances[np.isfinite(distances)]
        percentile = np.quantile(np.append(finite, 0.0), 0.99, method="higher")
        return cls(max(SMALLEST_SPREAD, float(percentile)), name)

    def shade(self, value: float) -> str:
        """The style class of a value: `a1` … `a10` above the centre, `b1` … `b10` below. Empty near it and for NaN."""
        if not math.isfinite(value):
            return ""
        distance = value - CENTRES[self.name]
        level = min(SHADES, round(abs(distance) / self.full * SHADES))
        if level == 0:
            return ""
        side = "a" if distance > 0 else "b"
        return f"{side}{level}"

    @property
    def legend(self) -> list[float]:
        """Values from one end of the scale to the other."""
        centre = CENTRES[self.name]
        lowest = max(centre - self.full, LOWEST[self.name])
        return np.linspace(lowest, centre + self.full, LEGEND).tolist()


def describe(name: str, value: float, log_prob: float = math.nan, entropy: float = math.nan) -> str:
    """A token's value with its name, in words, and the other values that are known."""
    parts = [f"{name} not known"]
    if math.isfinite(value):
        parts = [f"{name} {value:.3f}"]
    if math.isfinite(log_prob):
        probability = math.exp(log_prob)
        parts.append(f"probability {probability:.3g}")
    if math.isfinite(entropy):
        parts.append(f"entropy {entropy:.2f}")
    return ", ".join(parts)


def shaded_tokens(
    tokens: Sequence[str], values: Sequence[float], scale: Scale, *others: Sequence[float]
) -> list[tuple[str, str, str]]:
    """
    For each token its style class, its values in words and its visible text, for the templates. `others` are
    log-probabilities and entropies.
    """
    shown = []
    for token, value, *rest in zip(tokens, values, *others, strict=True):
        words = describe(scale.name, value, *rest)
        shown.append((scale.shade(value), words, visible(token)))
    return shown


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
    values = [float(c) for c in coefficients]
    if len(values) != len(tokens):
        raise ValueError(f"{len(values)} coefficients for {len(tokens)} tokens: expected one for each.")
    scale = Scale.of(values)
    shaded = shaded_tokens(tokens, values, scale)
    return TokenHeatmap(render("heatmap.html.j2", tokens=shaded, scale=scale))
