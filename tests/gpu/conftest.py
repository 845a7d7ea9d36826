"""Tests with a `device` run twice: on a CPU, and on a GPU, marked `gpu`."""

import pytest
import torch


CUDA = pytest.param(
    "cuda:0",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")],
    id="cuda",
)


@pytest.fixture(params=["cpu", CUDA])
def device(request) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(params=[CUDA])
def gpu(request) -> torch.device:
    """For what has no meaning on a processor."""
    return torch.device(request.param)


@pytest.fixture
def on_gpu(device) -> bool:
    return device.type == "cuda"


@pytest.fixture
def make(make_trainer, on_gpu):
    """`make_trainer` on the device."""
    return lambda *args, **options: make_trainer(*args, **{"use_cpu": not on_gpu, **options})
