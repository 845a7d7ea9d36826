import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_trl.report.text import label, visible


# with lone surrogates, which Python's strings and JSON can hold
ANY_TEXT = st.text(st.characters(codec=None), max_size=100)


INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


@given(ANY_TEXT)
def test_nothing_invisible_is_left(text):
    shown = visible(text)
    hidden = {character for character in shown if unicodedata.category(character) in INVISIBLE}
    assert hidden <= set("\n\t\u200c\u200d")
    kept = text[:63] if len(text) > 64 else text
    assert shown.count("\n") == kept.count("\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\tb\r\x1b[31m\u202e\u00a0", "a⏎\n⇥\tb␍␛[31m⟨U+202E⟩⍽"),
        ("x" * 100_000, "x" * 63 + "… (100,000 characters)"),
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 63 + "… (65 characters)"),
        ("naïve 数学\u3000עברית 👩\u200d🔬", "naïve 数学\u3000עברית 👩\u200d🔬"),
    ],
    ids=["signs", "long", "just short enough", "just too long", "letters"],
)
def test_control_characters_are_shown_as_signs(text, shown):
    assert visible(text) == shown


def test_the_limit_counts_characters_of_the_text():
    text = "\u202e" + "x" * 300
    assert visible(text, limit=200) == "⟨U+202E⟩" + "x" * 198 + "… (301 characters)"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (" foo", "·foo"),
        ("\n\t", "⏎⇥"),
        ("  ", "··"),
        ("", "(empty)"),
        ("a b ", "a·b·"),
    ],
)
def test_a_label_shows_spaces(token, expected):
    assert label(token) == expected
