import os

import pytest

from delta_trl.rewards.code import get_sandbox
from delta_trl.sandbox import SandboxUnavailableError


def set_up(tier: str) -> str:
    """A tier, if it can be set up on this machine."""
    try:
        get_sandbox(2, tier).run("")
    except SandboxUnavailableError as error:
        if "CI" in os.environ:
            raise  # there, nobody reads what was skipped
        pytest.skip(str(error))
    return tier


@pytest.fixture(scope="session", params=["A", "B"])
def each_tier(request):
    """For tests of what differs between the tiers."""
    return set_up(request.param)


@pytest.fixture(scope="session")
def tier():
    """For tests of what both tiers share."""
    return set_up("A")


@pytest.fixture(scope="session")
def sandbox(tier):
    return get_sandbox(2, tier)


@pytest.fixture(scope="session")
def one_worker(tier):
    """A sandbox whose next run is on the worker of the last one."""
    return get_sandbox(1, tier)
