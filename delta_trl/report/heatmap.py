"""Tokens shaded by their coefficient, in a notebook and in the report."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from .text import visible


SHADES = 10  # on either side of 1
# Blue and orange are told apart with every common colour-vision deficiency. Mixed into the background, they leave text
# readable on white and on black.
ABOVE, BELOW = (38, 118, 184), (224, 122, 10)
MAX_OPACITY = 0.6
STYLE = Path(__file__).with_name("tokens.css").read_text(encoding="utf-8") + "\n".join(
    f".tokens .{side}{k} {{ background: rgb({r} {g} {b} / {MAX_OPACITY * k / SHADES:.2f}) }}"
    for side, (r, g, b) in (("a", ABOVE), ("b", BELOW))
    for k in range(1, SHADES + 1)
)


class TokenHeatmap:
    """Shaded tokens, as notebooks display them, and terminals; `html` is the first of these as a string."""

    def __init__(self, html: str, text: Text):
        self.html = html
        self._text = text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        console = Console()
        with console.capture() as captured:
            console.print(self._text, soft_wrap=True)
        return captured.get().rstrip("\n")


def spread(coefficients: Sequence[float]) -> float:
    """The distance from 1 that gets the full colour: the 99th percentile, rounded up to 0.05."""
    distances = np.abs(np.asarray(coefficients, dtype=float) - 1)
    distances = distances[np.isfinite(distances)]
    if not len(distances):
        return 0.05
    percentile = np.quantile(distances, 0.99, method="higher")
    return max(1, math.ceil(round(percentile / 0.05, 3))) * 0.05


def shade(coefficient: float, full: float) -> str:
    """Style class of a coefficient: `a1` … `a10` above 1, `b1` … `b10` below, none near 1 or if not finite."""
    if not math.isfinite(coefficient):
        return ""
    level = min(SHADES, round(abs(coefficient - 1) / full * SHADES))
    return f"{'a' if coefficient > 1 else 'b'}{level}" if level else ""


def background(coefficient: float, full: float) -> str:
    """Background from black through blue above 1, orange below; white text stays readable on all of them."""
    level = shade(coefficient, full)
    if not level:
        return ""
    colour = ABOVE if level[0] == "a" else BELOW
    r, g, b = (round(part * 0.75 * int(level[1:]) / SHADES) for part in colour)
    return f"white on rgb({r},{g},{b})"


def legend(full: float, relative: bool = False) -> str:
    """HTML of the colour scale: of coefficients, or `relative` to their side's mean."""
    less, more = ("less", "more") if relative else ("less credit", "more credit")
    low, high = (f"−{full:.2f}", f"+{full:.2f}") if relative else (f"{1 - full:.2f}", f"{1 + full:.2f}")
    steps = [*range(-SHADES, 0, 2), 0, *range(2, SHADES + 1, 2)]
    cells = "".join(f'<span class="{shade(1 + full * k / SHADES, full)}">&nbsp;</span>' for k in steps)
    return (
        f'<span class="tokens legend">{less} {low} '
        f'<span class="scale" aria-hidden="true">{cells}</span> {high} {more}</span>'
    )


def token_heatmap(tokens: Sequence[str], coefficients: Sequence[float]) -> TokenHeatmap:
    """
    Tokens shaded by their coefficient, blue above 1 and orange below; the value shows on hover.

    Args:
        tokens (`Sequence[str]` of length T): Text of each token. May be anything: it is escaped.
        coefficients (`Sequence[float]` or tensor of shape `(T,)`): Their coefficients.

    Returns:
        [`TokenHeatmap`]: Displayed by notebooks and terminals; `.html` is a self-contained fragment without scripts.

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
    full = spread(coefficients)
    spans = "".join(
        f'<span class="{shade(c, full)}" title="coefficient {c:.3f}">{escape(visible(token))}</span>'
        for token, c in zip(tokens, coefficients, strict=True)
    )
    text = Text.assemble(
        *((visible(token), background(c, full)) for token, c in zip(tokens, coefficients, strict=True)),
        f"\ncoefficients from {1 - full:.2f} to {1 + full:.2f}, more credit than 1 blue, less orange",
    )
    html = f'<style>{STYLE}</style><div class="tokens" dir="auto">{spans}</div><p>{legend(full)}</p>'
    return TokenHeatmap(html, text)
