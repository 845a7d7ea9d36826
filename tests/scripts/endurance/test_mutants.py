"""Mutants."""

from pathlib import Path

from scripts.endurance.mutants import killed_before, mutate


def test_what_was_killed_is_found_again(tmp_path: Path):
    """On another line; not what has changed, nor what survived."""
    source = "def f(x):\n    return x + 1\n"
    rows = [{"file": "f.py", "killed": place != 1, **mutate(source, place)[1]} for place in range(3)]
    for text, expected in ((f"\n\n{source}", [0, 2]), (source.replace("1", "2"), [])):
        (tmp_path / "f.py").write_text(text)
        assert sorted(killed_before(tmp_path, rows)) == [("f.py", place) for place in expected]
