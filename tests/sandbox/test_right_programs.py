"""Right programs pass, in both tiers."""

import sys

import pytest

from delta_trl.rewards.code import CodeReward

from ..corpus.programs import NEEDS_TEMPORARY_DIRECTORY, RIGHT


@pytest.mark.parametrize(
    ("each_tier", "programs"),
    [("A", RIGHT + NEEDS_TEMPORARY_DIRECTORY), ("B", RIGHT[::3])],
    ids=["A", "B, a third of them"],
    indirect=["each_tier"],
)
def test_right_programs_pass(each_tier, programs):
    """All of them in one batch, as a trainer would have them graded."""
    if sys.prefix.startswith("/tmp/"):  # where programs have another temporary directory
        programs = [case for case in programs if case[0] != "right: file in /tmp"]
    logged = {}
    rewards = CodeReward(timeout=5, tier=each_tier, workers=2)(
        [f"```python\n{program}\n```" for _, program, _ in programs],
        [tests for _, _, tests in programs],
        log_extra=logged.__setitem__,
    )
    graded = zip(programs, rewards, logged["code_verdict"], strict=True)
    failed = [f"{name}: {verdict}" for (name, _, _), reward, verdict in graded if reward != 1.0]
    assert not failed, "\n".join(failed)
