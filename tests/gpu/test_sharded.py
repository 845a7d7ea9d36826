"""FSDP2 and ZeRO in one process, against neither of them: the same coefficients, the same losses."""

import json
import sys
from importlib.util import find_spec

import pytest

from ..distributed.launch import run
from ..distributed.worker import WHOLE_PARAMETERS
from .conftest import CUDA


WORKER = "tests/gpu/worker.py"


@pytest.fixture(params=[pytest.param("cpu", marks=pytest.mark.slow), CUDA], scope="module")
def place(request) -> str:
    return request.param.partition(":")[0]


@pytest.fixture(scope="module")
def single(tmp_path_factory, place) -> dict:
    folder = tmp_path_factory.mktemp("single")
    run([sys.executable, WORKER, folder, "single", place])
    return results(folder, "single")


def results(folder, mode: str) -> dict[str, dict]:
    return {path.stem.partition("-")[2]: json.loads(path.read_text()) for path in folder.glob(f"{mode}-*.json")}


@pytest.mark.parametrize("mode", ["fsdp2", "zero2", "zero3"])
def test_one_process_shards_nothing(tmp_path, single, mode, place):
    if mode != "fsdp2" and not find_spec("deepspeed"):
        pytest.skip("deepspeed is not installed")
    config = f"accelerate_configs/{'cpu_' if place == 'cpu' else ''}{mode}.yaml"
    options = ["--config_file", config, "--num_processes", "1", "--mixed_precision", "no", "--main_process_port", "0"]
    run([sys.executable, "-m", "accelerate.commands.launch", *options, WORKER, tmp_path, mode, place])
    found = results(tmp_path, mode)
    assert set(found) == set(single) - (set(WHOLE_PARAMETERS) if mode == "zero3" else set())  # which are refused there
    for name, ours in found.items():
        tolerance = 5e-3 if name.startswith("exact") else 1e-4
        assert ours["losses"] == pytest.approx(single[name]["losses"], abs=tolerance), name
        for rows, expected in zip(ours["rollouts"], single[name]["rollouts"], strict=True):
            assert rows.keys() == expected.keys(), name
            for key, coefficients in rows.items():
                assert coefficients == pytest.approx(expected[key], abs=tolerance), (name, key)
