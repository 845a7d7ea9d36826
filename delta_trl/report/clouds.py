"""The paper's token clouds: which token types get the most and the least credit on average."""

import unicodedata
from dataclasses import dataclass

from PIL import ImageFont
from wordcloud import WordCloud

from .run import TokenTypeTable
from .text import label


MAX_WORDS = 60
WIDTH, HEIGHT = 480, 270
SMALLEST, LARGEST = 14, 52
FULL = 0.1  # least distance from the average that gets the largest size: small distances look small


@dataclass
class TokenType:
    """A token type: how often it was sampled, and its mean coefficient, overall and among winners and losers."""

    token: str
    count: int
    mean: float
    mean_winners: float | None
    mean_losers: float | None
    share_winners: float  # share of its tokens that winners sampled
    off_side: float  # mean distance from the mean of the side


@dataclass
class Word:
    """A word of a cloud and its position: `(x, y)` is the left end of its baseline."""

    type: TokenType
    x: int
    y: int
    size: int
    width: int
    strength: float  # 0 to 1: distance of its mean from the average, as a share of `full`


def frequent_types(types: TokenTypeTable, min_count: int) -> list[TokenType]:
    """Types that were sampled at least `min_count` times, the highest mean coefficient first."""
    result = []
    columns = (types.tokens, types.counts, types.sums, types.off_side().tolist())
    for token, (n_won, n_lost), (sum_won, sum_lost), off_side in zip(*columns, strict=True):
        count = int(n_won + n_lost)
        if count >= max(min_count, 1):
            mean_won, mean_lost = (float(s / n) if n else None for s, n in ((sum_won, n_won), (sum_lost, n_lost)))
            mean = float((sum_won + sum_lost) / count)
            result.append(TokenType(label(token), count, mean, mean_won, mean_lost, float(n_won / count), off_side))
    return sorted(result, key=lambda t: -t.mean)


def average(types: TokenTypeTable) -> float:
    """Mean coefficient over all tokens with a contrast. Often above 1, since those without one have less."""
    return float(types.sums.sum() / max(types.counts.sum(), 1))


def farthest(types: list[TokenType], average: float) -> float:
    """The largest distance of a mean coefficient from the average."""
    return max((abs(t.mean - average) for t in types), default=0.0)


def cloud(types: list[TokenType], average: float, full: float) -> list[Word]:
    """
    Choose and place words: those whose mean coefficient is farthest from the average. Their size grows with this
    distance, which must not be 0 for all, and is the largest at `full`.
    """
    if not types:
        return []
    ranked = sorted(types, key=lambda t: -abs(t.mean - average))[:MAX_WORDS]
    shapes = {_shape(t): t for t in ranked}
    strengths = {shape: min(abs(t.mean - average) / full, 1.0) for shape, t in shapes.items()}
    # whole numbers: wordcloud rounds every size before it computes the next one from it
    sizes = {shape: round(SMALLEST + (LARGEST - SMALLEST) * strength) for shape, strength in strengths.items()}
    layout = WordCloud(
        width=WIDTH, height=HEIGHT, prefer_horizontal=1.0, margin=4, random_state=0, min_font_size=10,
        max_font_size=max(sizes.values()), relative_scaling=1, max_words=MAX_WORDS,
    ).generate_from_frequencies(sizes)  # fmt: skip
    words = []
    for (shape, _), size, (y, x), _, _ in layout.layout_:
        t = shapes[shape]
        font = ImageFont.truetype(layout.font_path, size)
        _, top, width, _ = font.getbbox(shape, anchor="ls")  # from the baseline's left end
        words.append(Word(t, int(x), round(y - top), size, round(width), strengths[shape]))
    return words


def _shape(t: TokenType) -> str:
    """
    A text as wide as the token: wordcloud's font has only Latin, Greek and Cyrillic, and East Asian characters are
    twice as wide. Different tokens have different texts.
    """
    return "".join(c * 2 if unicodedata.east_asian_width(c) in "WF" else c for c in t.token)
