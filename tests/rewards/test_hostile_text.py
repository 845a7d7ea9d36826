"""Text that controls a terminal or reorders the text around it is never printed unchanged."""

import logging

import pytest

from delta_trl.rewards.code import code_reward
from delta_trl.rewards.failures import check_rewards


HOSTILE = "\x1b[2J\x07\x9b\r\b\x7f\u202e\u2066\u200b\u2028\U000e0041\ud800\ue000"


def test_errors_and_warnings_are_printable(caplog):
    """Of a reward that returns a text, and of tests that cannot be run and say so in their own words."""
    with pytest.raises(TypeError) as raised:
        check_rewards("mine", [HOSTILE], [HOSTILE])
    assert str(raised.value).isprintable()
    with caplog.at_level(logging.WARNING):
        assert code_reward(["x = 1"], ["{\x1b[2J"]) == [None]
        assert code_reward(["x = 1"], [{"test": "import no_such_\u202emodule"}]) == [None]
    assert len(caplog.records) >= 2
    for record in caplog.records:
        line = record.getMessage().replace("\n", "")
        assert line.isprintable()
