import pytest

from delta_trl.sandbox import Sandbox, SandboxUnavailableError


@pytest.fixture(scope="session", params=["A", "B"])
def sandbox(request):
    """A sandbox in each tier."""
    with Sandbox(tier=request.param, workers=2) as sandbox:
        try:
            sandbox.run("")
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        yield sandbox
