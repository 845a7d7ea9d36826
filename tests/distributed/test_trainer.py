"""The whole trainer on two gloo processes under DDP, FSDP2 and ZeRO, against one process: same coefficients."""

import json
import sys

import pytest

from . import own_rules, worker
from .launch import accelerate_launch, run


pytestmark = pytest.mark.processes
TOLERANCE = 1e-5
WORKER = "tests/distributed/worker.py"


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The results of one process, by scenario."""
    folder = tmp_path_factory.mktemp("single")
    run([sys.executable, WORKER, folder, "single"])
    return results(folder, "single")


def results(folder, mode) -> dict[str, dict]:
    return {path.stem.partition("-")[2]: json.loads(path.read_text()) for path in folder.glob(f"{mode}-*.json")}


@pytest.mark.parametrize("mode", ["ddp", "fsdp2", "zero2", "zero3"])
def test_two_processes_equal_one(tmp_path, single, mode):
    """Also after an optimiser step, with LoRA, with a reference model, and with ranks that have nothing to add."""
    if mode == "ddp":
        own_rules.write_recipe(tmp_path)
    accelerate_launch(mode, WORKER, tmp_path, mode)
    two = results(tmp_path, mode)
    if mode == "ddp":
        own_rules.check_run(tmp_path / "run")
        # a checkpoint is whole once its last file is there: only after every process has written its part
        assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(json.loads((tmp_path / "present.json").read_text()))
    if mode == "fsdp2":  # which would cast log-probabilities to the parameters' precision
        for rank in range(2):
            seen = json.loads((tmp_path / f"precision-{rank}.json").read_text())
            assert seen["log_probs"] == [["torch.float32", True]]
            assert seen["first_kl"] == pytest.approx(0.0, abs=1e-8)  # of a policy that is its reference
    more = worker.WHOLE_PARAMETERS if mode != "zero3" else ()
    assert two.keys() == {*worker.SCENARIOS, *more}
    for scenario, ours in two.items():
        expected = single[scenario]
        # the difference quotient divides rounding by a small step
        tolerance = 2e-3 if scenario.startswith("exact") else TOLERANCE
        assert ours["losses"] == pytest.approx(expected["losses"], abs=tolerance), scenario
        assert len(ours["rollouts"]) == len(expected["rollouts"]) == 2
        for rows, expected_rows in zip(ours["rollouts"], expected["rollouts"], strict=True):
            assert rows.keys() == expected_rows.keys(), scenario
            for key, coefficients in rows.items():
                assert coefficients == pytest.approx(expected_rows[key], abs=tolerance), (scenario, key)
        assert_same_records(ours, expected, tolerance)
    if mode == "ddp":  # resumed on one process
        trainer = worker.make(tmp_path, worker.save_model(tmp_path), "full", 1)
        trainer.train(resume_from_checkpoint=str(tmp_path / "full" / "checkpoint-2"))
        assert_same_records(worker.recorded(tmp_path / "full"), single["full"], TOLERANCE)


def assert_same_records(ours: dict, expected: dict, tolerance: float):
    """Recorded token credit: the same rows in the same order, the same averages."""
    assert len(ours["records"]) == len(expected["records"]) == 2
    for rows, expected_rows in zip(ours["records"], expected["records"], strict=True):
        assert len(rows) == len(expected_rows) == worker.PROMPTS * worker.RESPONSES
        for row, expected_row in zip(rows, expected_rows, strict=True):
            for name, value in expected_row.items():
                is_number = name in ("advantage", "coefficients", "log_probs", "entropies")
                assert row[name] == (pytest.approx(value, abs=10 * tolerance) if is_number and value else value), name


def extra_passes(result) -> set[float]:
    return {entry["credit/extra_forward_passes"] for entry in result["logs"] if "credit/seconds" in entry}


def test_the_scenarios_are_what_they_say(single):
    """Else the comparison could compare nothing: coefficients that vary, rows without tokens, extra passes."""
    for scenario in worker.SCENARIOS:
        rows = [row for rollout in single[scenario]["rollouts"] for row in rollout.values()]
        values = [value for row in rows for value in row]
        empty = sum(not row for row in rows)
        assert len(rows) == 32
        assert empty == {"empty_rank": 16, "all_masked": 32}.get(scenario, 0)
        if scenario != "all_masked":
            assert max(values) > 1.1
            assert min(values) < 0.9
        assert extra_passes(single[scenario]) == {float(scenario in worker.ALIGNED)}
    losses = [tuple(single[scenario]["losses"]) for scenario in worker.SCENARIOS]
    assert len(set(losses)) == len(losses)


@pytest.mark.parametrize(
    "options",
    [
        {"per_device_train_batch_size": 16},  # one optimiser step per rollout batch, a pass of our own
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"per_device_train_batch_size": 4, "steps_per_generation": 4},  # four, the hidden states of TRL's pass
        {"per_device_train_batch_size": 8, "steps_per_generation": 2, "num_iterations": 2},
        {"per_device_train_batch_size": 2, "steps_per_generation": 8, "gradient_accumulation_steps": 2},
    ],
    ids=lambda options: ", ".join(f"{key} {value}" for key, value in options.items()),
)
@pytest.mark.parametrize("scenario", ["full", "lora"])
def test_how_a_rollout_is_split_does_not_matter(tmp_path, single, scenario, options):
    trainer = worker.make(
        tmp_path, worker.save_model(tmp_path), scenario, 1, **{"num_iterations": 1, "max_steps": 1, **options}
    )
    trainer.train()
    rows, expected = trainer.rollouts[0], single[scenario]["rollouts"][0]
    assert rows.keys() == expected.keys()
    for key, coefficients in rows.items():
        assert coefficients == pytest.approx(expected[key], abs=TOLERANCE)
