import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from delta_trl.report.text import label, visible


# with lone surrogates, which Python's strings and JSON can hold
ANY_TEXT = st.text(st.characters(codec=None), max_size=100)


@given(ANY_TEXT)
def test_nothing_invisible_is_left(text):
    shown = visible(text)
    hidden = [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]
    assert set(hidden) <= set("\n\t\u200c\u200d")
    assert shown.count("\n") == text[: 63 if len(text) > 64 else None].count("\n")


def test_control_characters_are_shown_as_signs():
    assert visible("a\n\tb\r\x1b[31m\u202e") == "a⏎\n⇥\tb␍␛[31m⟨U+202E⟩"
    assert visible("x" * 100_000) == "x" * 63 + "… (100,000 characters)"
    assert visible("\u202e" + "x" * 300, limit=200) == "⟨U+202E⟩" + "x" * 198 + "… (301 characters)"
    assert visible("naïve 数学 עברית 👩\u200d🔬") == "naïve 数学 עברית 👩\u200d🔬"
    assert [label(t) for t in (" foo", "\n", "  ", "", "a b ")] == ["·foo", "⏎", "··", "(empty)", "a·b·"]
