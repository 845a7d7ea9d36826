"""Text from completions, safe to look at: no invisible characters, and none that reorder the text around them."""

import unicodedata


TOKEN_LIMIT = 64  # characters of a token that are shown

# The spelling of some scripts and of emoji needs joiners.
_JOINERS = "\u200c\u200d"
_ONE_LINE = str.maketrans(" ", "·", "\n\t")
_NAMED = {"\n": "⏎\n", "\t": "⇥\t", "\u00a0": "⍽"}


def visible(text: str, limit: int = TOKEN_LIMIT) -> str:
    """
    `text` with control characters and direction marks replaced by visible signs, cut at `limit` characters.

    Line breaks are kept, with ⏎ before them. A text that is cut ends with its full length:
    `aaaa… (100,000 characters)`.
    """
    cut = text[: limit - 1] if len(text) > limit else text
    # `isprintable` is False for every control, format, surrogate and private character and for unusual spaces
    shown = cut if cut.isprintable() else "".join(map(_visible_character, cut))
    return shown if cut is text else f"{shown}… ({len(text):,} characters)"


def label(token: str) -> str:
    """A token by itself, on one line: as [`visible`], with · for spaces."""
    return visible(token).translate(_ONE_LINE) or "(empty)"


def _visible_character(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ␀ ␁ …
    if unicodedata.category(character) in ("Zs", "Cn"):  # other spaces; what this Python's Unicode does not know yet
        return character
    return f"⟨U+{code:04X}⟩"
