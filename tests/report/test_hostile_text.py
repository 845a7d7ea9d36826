# ruff: noqa: E501 (a table)
"""Text that controls a terminal or reorders the text around it is never printed unchanged."""

import logging
import unicodedata

import pytest

from delta_trl.commands.terminal import harmless
from delta_trl.rewards.code import code_reward
from delta_trl.rewards.failures import check_rewards


HOSTILE = [
    "\x1b[2J\x1b[31m", "\x1b]52;c;bm8=\x07", "\x1b]8;;http://x\x1b\\\\link\x1b]8;;\x1b\\\\", "\x9b2J", "\x9d0;title\x9c",
    "good\rbad", "good\b\b\b\bbad", "\x07\x0b\x0c\x7f", "\u202egnp.exe\u202c", "\u2066\u2067\u2068\u2069", "\u061c\u200e\u200f",
    "zero\u200bwidth\ufeff", "\u2028\u2029\x85", "\U000e0041\U000e007f", "\ud800", "\ue000", "[bold red]markup[/]", ":boom:",
]  # fmt: skip
JOINERS = "\u200c\u200d"


def acting(text: str) -> set[str]:
    """Characters that a terminal acts on, or that show nothing of themselves."""
    kinds = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    return {one for one in text if unicodedata.category(one) in kinds and one not in "\n" + JOINERS}


def test_progress_lines():
    for text in (*HOSTILE, "".join(HOSTILE)):
        assert not acting(harmless(text))
        assert not acting(harmless([{"role": text, "content": text}]))


def test_errors_and_warnings(caplog):
    """Of a reward that returns a text, and of tests that cannot be run and say so in their own words."""
    text = "".join(HOSTILE)
    with pytest.raises(TypeError) as raised:
        check_rewards("mine", [text], [text])
    assert not acting(str(raised.value))
    with caplog.at_level(logging.WARNING):
        assert code_reward(["x = 1"], ["{\x1b[2J"]) == [None]
        assert code_reward(["x = 1"], [{"test": "import no_such_\u202emodule"}]) == [None]
    assert len(caplog.records) >= 2
    assert not any(acting(record.getMessage()) for record in caplog.records)
