"""What the main process decides. tests/distributed has several processes."""

import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.trainer.main_process import from_main_process


def fail(error: Exception):
    raise error


def test_a_decision_is_what_was_decided():
    assert from_main_process(lambda: None) is None
    assert from_main_process(lambda: ["a", 0]) == ["a", 0]


@pytest.mark.parametrize("error", [UsageError("no folder"), OSError("no space"), KeyError("step")], ids=repr)
def test_every_error_is_raised(error):
    with pytest.raises(type(error)):
        from_main_process(lambda: fail(error))
