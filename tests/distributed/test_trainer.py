"""The whole trainer on two gloo processes under DDP, FSDP2 and ZeRO, against one process: same coefficients."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from delta_trl.arguments.errors import UsageError
from delta_trl.files import MANIFEST, missing_part, read_json
from delta_trl.scoring.stand_in import PACKED

from ..trainer.test_own_rule import check_run, write_recipe
from . import worker
from .launch import accelerate_launch


pytestmark = pytest.mark.processes
WORKER = "tests/distributed/worker.py"


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The results of one process: by scenario, and of dynamic sampling. And its folder."""
    folder = tmp_path_factory.mktemp("single")
    worker.main(folder, "single")
    return read_results(folder, "single"), read_results(folder, "sampled")["0"], folder


def read_results(folder, mode) -> dict[str, dict]:
    return {path.stem.partition("-")[2]: json.loads(path.read_text()) for path in folder.glob(f"{mode}-*.json")}


@pytest.mark.parametrize("mode", ["ddp", "fsdp2", pytest.param("zero2", marks=pytest.mark.slow), "zero3"])
def test_two_processes_equal_one(tmp_path, single, mode):
    """Also after an optimiser step, with LoRA, with a reference model, and with ranks that have nothing to add."""
    if mode == "ddp":
        write_recipe(tmp_path)
    one, sampled, folder = single
    (tmp_path / "of_one").symlink_to(folder / "broken")
    accelerate_launch(f"cpu_{mode}", WORKER, tmp_path, mode)
    two = read_results(tmp_path, mode)
    check_guards(tmp_path, folder, mode)
    by_rank = read_results(tmp_path, "sampled")
    assert_sampled_alike(by_rank["0"], by_rank["1"], sampled)
    if mode == "fsdp2":  # which would cast log-probabilities to the parameters' precision
        found = two.pop("bf16")
        log_probs = torch.tensor([value for row in found["records"][0] for value in row["log_probs"]])
        assert (log_probs != log_probs.bfloat16()).any()
        # of a policy that is its reference, which TRL shards after `create_accelerator_and_postprocess`
        assert found["logs"][0]["kl"] == pytest.approx(0.0, abs=1e-8)
    more = worker.WHOLE_PARAMETERS if mode != "zero3" else ()
    assert two.keys() == {*worker.SCENARIOS, *more}
    for scenario, ours in two.items():
        assert_same(ours, one[scenario], scenario)
    if mode == "ddp":
        check_run(tmp_path / "run")
        assert read_results(tmp_path, "layouts") == {"0": [PACKED, None], "1": [PACKED, None]}
        # the manifest waits for the process that is late
        written = read_json(tmp_path / "full" / "checkpoint-2" / MANIFEST)
        assert {"rng_state_0.pth", "rng_state_1.pth"} <= written.keys()
        # resumed on one process
        trainer = worker.make(tmp_path, worker.save_model(tmp_path), "full", 1)
        trainer.train(resume_from_checkpoint=str(tmp_path / "full" / "checkpoint-2"))
        assert_same(worker.results(trainer), one["full"], "full")


SHARDING = {"fsdp2": "FSDP2, SHARDED_STATE_DICT", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}


def check_guards(folder, folder_of_one, mode):
    """Nothing is lost silently, and no process says anything else than the others."""
    found, of_other = (read_results(folder, f"{mode}_broken")[rank] for rank in "01")
    assert found == of_other
    assert re.search("5 updates in a row, up to step 6.*broken/checkpoint-5", found["skipped"])
    assert found["skipped_updates"] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert missing_part(folder / "broken" / "checkpoint-5") is None
    assert found["overflow"].startswith("Step 1: the weights are not finite, and were not saved.")
    assert not list((folder / "overflow").glob("checkpoint-*"))
    # the model is whole, however it was divided
    ours, expected = (load_file(where / "broken-model" / "model.safetensors") for where in (folder, folder_of_one))
    assert ours.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-5, rtol=0)
    if mode in SHARDING:
        assert f"saved with sharding None, while this run has {SHARDING[mode]}" in found["other"]
        trainer = worker.make_broken(folder_of_one, folder_of_one / "model-0", 1)
        with pytest.raises(UsageError, match=f"saved with sharding {SHARDING[mode]}, while this run has None"):
            trainer.train(resume_from_checkpoint=str(folder / "broken" / "checkpoint-5"))


def assert_same(ours: dict, expected: dict, scenario: str, tolerance: float = 1e-5):
    """Losses, and what was recorded: the same rows in the same order, with the same coefficients."""
    if scenario.startswith("exact"):
        tolerance = max(tolerance, 2e-3)  # the difference quotient divides rounding by a small step
    losses, expected_losses = ([entry["loss"] for entry in one["logs"]] for one in (ours, expected))
    assert losses == pytest.approx(expected_losses, abs=tolerance), scenario
    assert len(ours["records"]) == len(expected["records"]) == 2
    for rows, expected_rows in zip(ours["records"], expected["records"], strict=True):
        assert len(rows) == worker.PROMPTS * worker.RESPONSES
        for row, expected_row in zip(rows, expected_rows, strict=True):
            for name, value in expected_row.items():
                allowed = tolerance if name == "coefficients" else 10 * tolerance
                assert row[name] == pytest.approx(value, abs=allowed, nan_ok=True), name


def assert_sampled_alike(ours: dict, other: dict, expected: dict):
    """Dynamic sampling: the same groups, in training and in the logs, also after resuming."""
    for logs in (expected["whole"], ours["resumed"], other["whole"]):
        for entry, expected_entry in zip(ours["whole"], logs, strict=True):
            timed = {name for name in expected_entry if re.search("time|seconds", name)}
            for name in expected_entry.keys() - timed:
                assert entry[name] == pytest.approx(expected_entry[name], abs=1e-4), name
    for rows, expected_rows in zip(ours["tables"], expected["tables"], strict=True):
        for row, expected_row in zip(rows, expected_rows, strict=True):
            assert row == pytest.approx(expected_row, abs=1e-4, nan_ok=True)


def test_the_scenarios_have_varied_coefficients_and_empty_rows(single):
    """Else the comparison could compare nothing: coefficients that vary, rows without tokens, rounds that differ."""
    one, sampled, _ = single
    assert len({entry["dynamic_sampling/prompts"] for entry in sampled["whole"]}) > 1
    for scenario in worker.SCENARIOS:
        rows = [row["coefficients"] for rollout in one[scenario]["records"] for row in rollout]
        empty = sum(np.isnan(row).all() for row in rows)
        assert empty == {"empty_rank": 16, "all_masked": 32}.get(scenario, 0)
        if scenario != "all_masked":
            coefficients = np.concatenate(rows)
            assert np.nanmin(coefficients) < 0.9 < 1.1 < np.nanmax(coefficients)
    for rows in one["contrast_on_one_rank"]["records"]:
        assert [row["advantage"] for row in rows].count(0) == 8
