"""Correct programs pass, in both tiers."""

import pytest

from delta_trl.rewards.code import CodeReward

from ..corpus.benign import BENIGN, NEEDS_TEMPORARY_DIRECTORY


@pytest.fixture(scope="module")
def verdicts(tier):
    """All of them in one batch, as a trainer would have them graded."""
    logged = {}
    CodeReward(timeout=5, tier=tier, workers=2)(
        [f"```python\n{program}\n```" for _, program, _ in BENIGN],
        [tests for _, _, tests in BENIGN],
        log_extra=logged.__setitem__,
    )
    return dict(zip([name for name, _, _ in BENIGN], logged["code_verdict"], strict=True))


@pytest.mark.parametrize("name", [name for name, _, _ in BENIGN])
def test_passes(verdicts, name):
    verdict = verdicts[name]
    passed, total = verdict.removeprefix("passed ").split(" of ") if verdict.startswith("passed") else (verdict, None)
    assert passed == total


@pytest.mark.parametrize(("name", "program", "tests"), NEEDS_TEMPORARY_DIRECTORY)
def test_passes_where_there_is_a_temporary_directory(tier, name, program, tests):
    if tier != "A":
        pytest.skip("tier A only")
    assert CodeReward(tier=tier, workers=2)([program], [tests]) == [1.0]
