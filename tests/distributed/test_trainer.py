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
    by_rank = read_results(folder, "sampled")
    return read_results(folder, "single"), by_rank["0"], folder


def read_results(folder, mode) -> dict[str, dict]:
    """By what follows the mode in the files' names: the scenario, or the rank."""
    results = {}
    for path in folder.glob(f"{mode}-*.json"):
        _, _, name = path.stem.partition("-")
        results[name] = json.loads(path.read_text())
    return results


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
    if mode == "fsdp2":
        check_bfloat16(two.pop("bf16"))
    more = worker.WHOLE_PARAMETERS if mode != "zero3" else ()
    assert two.keys() == {*worker.SCENARIOS, *more}
    for scenario, ours in two.items():
        assert_same(ours, one[scenario], scenario)
    if mode == "ddp":
        check_run(tmp_path / "run")
        found = read_results(tmp_path, "layouts")
        assert found == {"0": [PACKED, None], "1": [PACKED, None]}
        check_resuming_on_one_process(tmp_path, one["full"])


def check_bfloat16(found: dict):
    """FSDP2 would cast log-probabilities to the parameters' precision."""
    of_first_rollout, _ = found["records"]
    log_probs = torch.cat([torch.tensor(row["log_probs"]) for row in of_first_rollout]).nan_to_num()
    assert (log_probs != log_probs.bfloat16()).any()
    # of a policy that is its reference, which TRL shards after `create_accelerator_and_postprocess`
    first_step = found["logs"][0]
    assert first_step["kl"] == pytest.approx(0.0, abs=1e-8)


def check_resuming_on_one_process(folder, expected: dict):
    """From a checkpoint whose manifest waits for the process that is late."""
    checkpoint = folder / "full" / "checkpoint-2"
    written = read_json(checkpoint / MANIFEST)
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= written.keys()

    model = worker.save_model(folder)
    trainer = worker.make(folder, model, "full", processes=1)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert_same(worker.results(trainer), expected, "full")


SHARDING = {
    "fsdp2": "FSDP2, SHARDED_STATE_DICT",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
}


def check_guards(folder, folder_of_one, mode):
    """Nothing is lost silently, and no process says anything else than the others."""
    by_rank = read_results(folder, f"{mode}_broken")
    found = by_rank["0"]
    assert found == by_rank["1"]
    last_good = folder / "broken" / "checkpoint-5"
    assert re.search("5 updates in a row, up to step 6.*broken/checkpoint-5", found["skipped"])
    assert found["skipped_updates"] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert missing_part(last_good) is None
    assert found["overflow"].startswith("Step 1: the weights are not finite, and were not saved.")
    assert not list((folder / "overflow").glob("checkpoint-*"))
    # the model is whole, however it was divided
    model = "broken-model/model.safetensors"
    ours = load_file(folder / model)
    expected = load_file(folder_of_one / model)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    if mode in SHARDING:
        sharding = SHARDING[mode]
        assert f"saved with sharding None, while this run has {sharding}" in found["other"]
        model_of_one = folder_of_one / "model-0"
        trainer = worker.make_broken(folder_of_one, model_of_one, processes=1)
        with pytest.raises(UsageError, match=f"saved with sharding {sharding}, while this run has None"):
            trainer.train(resume_from_checkpoint=str(last_good))


def assert_same(ours: dict, expected: dict, scenario: str, tolerance: float = 1e-5):
    """Losses, and what was recorded: the same rows in the same order, with the same coefficients."""
    if scenario.startswith("exact"):
        tolerance = max(tolerance, 2e-3)  # the difference quotient divides rounding by a small step
    for entry, expected_entry in zip(ours["logs"], expected["logs"], strict=True):
        assert entry["loss"] == pytest.approx(expected_entry["loss"], abs=tolerance), scenario
    of_rollouts = list(zip(ours["records"], expected["records"], strict=True))
    assert len(of_rollouts) == 2
    for rows, expected_rows in of_rollouts:
        assert len(rows) == worker.PROMPTS * worker.RESPONSES
        for row, expected_row in zip(rows, expected_rows, strict=True):
            for name, value in expected_row.items():
                allowed = tolerance if name == "coefficients" else 10 * tolerance
                assert row[name] == pytest.approx(value, abs=allowed, nan_ok=True), name


def assert_sampled_alike(ours: dict, other: dict, expected: dict):
    """Dynamic sampling: the same groups, in training and in the logs, also after resuming."""
    whole = ours["whole"]
    assert_same_logs(whole, expected["whole"])
    assert_same_logs(whole, ours["resumed"])
    assert_same_logs(whole, other["whole"])
    for table, expected_table in zip(ours["tables"], expected["tables"], strict=True):
        for row, expected_row in zip(table, expected_table, strict=True):
            assert row == pytest.approx(expected_row, abs=1e-4, nan_ok=True)


def assert_same_logs(ours: list[dict], expected: list[dict]):
    """But for what is of time."""
    for entry, expected_entry in zip(ours, expected, strict=True):
        for name, value in expected_entry.items():
            if not re.search("time|seconds", name):
                assert entry[name] == pytest.approx(value, abs=1e-4), name


def test_the_scenarios_have_varied_coefficients_and_empty_rows(single):
    """Else the comparison could compare nothing: coefficients that vary, rows without tokens, rounds that differ."""
    one, sampled, _ = single
    numbers_of_prompts = {entry["dynamic_sampling/prompts"] for entry in sampled["whole"]}
    assert len(numbers_of_prompts) > 1
    empty_rows = {"empty_rank": 16, "all_masked": 32}
    for scenario in worker.SCENARIOS:
        first, second = one[scenario]["records"]
        rows = [row["coefficients"] for row in first + second]
        empty = sum(np.isnan(row).all() for row in rows)
        assert empty == empty_rows.get(scenario, 0)
        if scenario != "all_masked":
            coefficients = np.concatenate(rows)
            assert np.nanmin(coefficients) < 0.9
            assert np.nanmax(coefficients) > 1.1
    for rows in one["contrast_on_one_rank"]["records"]:
        advantages = [row["advantage"] for row in rows]
        assert advantages.count(0) == 8
