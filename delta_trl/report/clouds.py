"""The paper's token clouds: which token types get the most and the least credit on average."""

import unicodedata
from dataclasses import dataclass

from PIL import ImageFont
from wordcloud import WordCloud

from .run import TokenTypeTable
from .text import label


MAX_WORDS = 80
WIDTH, HEIGHT = 640, 320


@dataclass
class TokenType:
    """A token type: how often it was sampled by winners and losers, and its mean coefficient there and overall."""

    token: str
    count: int
    mean: float
    mean_positive: float | None
    mean_negative: float | None
    share_positive: float


@dataclass
class Word:
    """A word of a cloud and where it stands: `(x, y)` is the left end of its baseline."""

    type: TokenType
    x: int
    y: int
    size: int
    width: int
    strength: float  # 0 to 1, how far its mean is from the average


def frequent_types(types: TokenTypeTable, min_count: int) -> list[TokenType]:
    """Types that were sampled at least `min_count` times, the highest mean coefficient first."""
    result = []
    for token, (n_pos, n_neg), (sum_pos, sum_neg) in zip(types.tokens, types.counts, types.sums, strict=True):
        count = int(n_pos + n_neg)
        if count >= max(min_count, 1):
            mean_pos, mean_neg = (float(s / n) if n else None for s, n in ((sum_pos, n_pos), (sum_neg, n_neg)))
            mean = float((sum_pos + sum_neg) / count)
            result.append(TokenType(label(token), count, mean, mean_pos, mean_neg, float(n_pos / count)))
    return sorted(result, key=lambda t: -t.mean)


def average(types: TokenTypeTable) -> float:
    """Mean coefficient over all tokens with a contrast; those without one have less, so that it is often above 1."""
    return float(types.sums.sum() / max(types.counts.sum(), 1))


def cloud(types: list[TokenType], average: float) -> list[Word]:
    """Place words by how far their mean coefficient is from the average (not equal to it): the farther, the larger."""
    if not types:
        return []
    ranked = sorted(types, key=lambda t: -abs(t.mean - average))[:MAX_WORDS]
    shapes = {_shape(t): t for t in ranked}
    distances = {shape: abs(t.mean - average) for shape, t in shapes.items()}
    farthest = max(distances.values())
    layout = WordCloud(
        width=WIDTH, height=HEIGHT, prefer_horizontal=1.0, margin=4, random_state=0, min_font_size=11,
        max_font_size=72, relative_scaling=0.5, max_words=MAX_WORDS,
    ).generate_from_frequencies(distances)  # fmt: skip
    words = []
    for (shape, _), size, (y, x), _, _ in layout.layout_:
        t = shapes[shape]
        font = ImageFont.truetype(layout.font_path, size)
        _, top, width, _ = font.getbbox(shape, anchor="ls")  # from the baseline's left end
        words.append(Word(t, int(x), round(y - top), size, round(width), distances[shape] / farthest))
    return words


def _shape(t: TokenType) -> str:
    """
    Stand-in that takes up the token's space: wordcloud's font has Latin, Greek and Cyrillic only, and East Asian
    characters are twice as wide. Different tokens have different stand-ins, for they stay readable in it.
    """
    return "".join(c * 2 if unicodedata.east_asian_width(c) in "WF" else c for c in t.token)
