"""Recorded token credit: the files hold what was trained on, also after a kill and a resume."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from delta_trl.data.records import COMPLETIONS, recorded_files, write_records
from delta_trl.trainer.token_log import choose_rows
from delta_trl.trainer.trackers import track

from ..corpus import tiny
from ..report import runs
from ..scoring.runs import cpmant, qwen
from ..trainers import (
    LORA,
    MISALIGNED,
    credit,
    logged,
    plain_forward,
    response_advantages,
    rollout_with_environment,
    valid_tokens,
)


MODES = {
    "scores of the rollout": {"token_credit": "random", "trainer_options": {"rollout_func": rollout_with_environment}},
    "scores of a pass of its own": {
        **credit(token_gradient="full"),
        "steps_per_generation": 2,
        "trainer_options": {"rollout_func": rollout_with_environment},
    },
    "reference model with LoRA": {"beta": 0.1, "mask_truncated_completions": True, "trainer_options": LORA},
}


def length(completions, **kwargs) -> list[float | None]:
    return [None if i == 1 else len(text) / 10 for i, text in enumerate(completions)]


def of_the_second_group(completions, **kwargs) -> list[float | None]:
    return [None] * 4 + [0.0, 1.0, 0.0, 1.0]


def kept(trainer) -> list[dict]:
    """The rollout batches that a trainer will generate, each with what was known at its time."""
    batches, rewarded = [], []
    calculate = trainer._calculate_rewards
    generate = trainer._generate_and_score_completions

    def note(inputs, prompts, completions, completion_ids):
        rewarded.append(completion_ids)
        return calculate(inputs, prompts, completions, completion_ids)

    def keep(inputs):
        batch = generate(inputs)
        with torch.no_grad():
            hidden, log_probs = plain_forward(trainer.model, batch)
            entropies = torch.distributions.Categorical(logits=trainer.model.lm_head(hidden)).entropy()
        known = {
            "ids": rewarded[-1],
            "log_probs": log_probs,
            "entropies": entropies,
            "coefficients": batch["token_coefficients"],
            "step": trainer.state.global_step,
            "texts": list(trainer._logs["completion"]),
            "prompts": [row["prompt"] for row in inputs],
            "rewards": [list(values) for values in trainer._logs["rewards"].values()],
        }
        batches.append(batch | known)
        return batch

    trainer._calculate_rewards = note
    trainer._generate_and_score_completions = keep
    return batches


def records(output_dir: Path) -> dict[int, list[dict]]:
    found = {}
    for step, file in recorded_files(output_dir).items():
        table = pq.read_table(file)
        assert table.schema.equals(COMPLETIONS)
        found[step] = table.to_pylist()
    return found


# --- what is recorded ---


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_records_hold_what_is_trained_on(make_trainer, tmp_path, options):
    tiny.model().save_pretrained(tmp_path / "model")  # where TRL finds the reference model
    trainer = make_trainer(
        str(tmp_path / "model"),
        **{"max_steps": 2, **options},
        log_token_credit=1,
        log_token_credit_completions=1000,
        reward_funcs=[tiny.reward_letters, length],
        reward_weights=[1.0, 0.5],
    )
    batches = kept(trainer)
    trainer.train()
    recorded = records(tmp_path / "run")
    assert recorded.keys() == {batch["step"] for batch in batches}
    numbers = ["coefficients", "advantages"]
    if options.get("token_credit") != "random":
        numbers += ["log_probs", "entropies"]
    for batch in batches:
        valid = valid_tokens(batch)
        advantages = response_advantages(batch).tolist()
        for i, (row, ids) in enumerate(zip(recorded[batch["step"]], batch["ids"], strict=True)):
            n = len(ids)
            first, second = (values[i] for values in batch["rewards"])
            turns = [1, 1, 0, 2, 2, 0, 3] if "tool_mask" in batch else [1] * n
            expected = {
                "step": batch["step"],
                "prompt_index": i // 4,
                "completion": batch["texts"][i],
                "token_ids": batch["completion_ids"][i][:n].tolist(),
                "turns": turns,
                "advantage": pytest.approx(advantages[i]),
                "reward": pytest.approx(np.nansum([first, 0.5 * second])),
                "rewards": [("reward_letters", first), ("length", None if i == 1 else second)],
            }
            assert {name: row[name] for name in expected} == expected
            assert "".join(row["tokens"]) == trainer.processing_class.decode(ids)
            assert row["prompt"].replace(" ", "") == batch["prompts"][i]
            for name in numbers:  # a tool's tokens, and completions that are masked, have none
                of_tokens = batch[name][i].masked_fill(~valid[i], np.nan)[:n]
                np.testing.assert_allclose(row[name], of_tokens, rtol=0, atol=1e-5)
            assert ("log_probs" in numbers) == (row["log_probs"] is not None)


@pytest.mark.parametrize(("config", "is_scored"), [(qwen, False), (cpmant, True)])
def test_unscorable_completions_have_no_reward(make_trainer, tmp_path, config, is_scored):
    """Nor are they scored, unless the model needs TRL's rows: TRL scores them all."""
    options = {**MISALIGNED, "log_token_credit": 1, "max_steps": 1, "reward_funcs": of_the_second_group}
    make_trainer(tiny.model(config()), **options).train()
    [rows] = records(tmp_path / "run").values()
    for row in rows[:4]:
        assert (row["reward"], row["advantage"]) == (None, 0.0)
        for name in ("log_probs", "entropies"):
            assert set(np.isfinite(row[name])) == {is_scored}
    for row, reward in zip(rows[4:], [0.0, 1.0, 0.0, 1.0], strict=True):
        assert row["reward"] == reward
        assert np.isfinite(row["log_probs"]).all()


@pytest.mark.parametrize(
    ("every", "options", "steps"),
    [
        (3, {"steps_per_generation": 2}, [0, 4, 6]),
        # two rollout batches in an optimiser step: the first of them
        (2, {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "max_steps": 3}, [0, 2]),
    ],
)
def test_credit_is_recorded_every_n_steps(make_trainer, tmp_path, every, options, steps):
    options = {"max_steps": 7, "per_device_train_batch_size": 4, "token_credit": "random", **options}
    make_trainer(**options, log_token_credit=every).train()
    assert list(records(tmp_path / "run")) == steps


def test_recording_does_not_change_training(make_trainer, tmp_path):
    def losses(**options):
        trainer = make_trainer(**options)
        trainer.train()
        return logged(trainer, "loss")

    without = losses()
    assert not records(tmp_path / "run")
    assert losses(log_token_credit=1) == without


GROUPS = [0.0, 0.0, 1.0, -1.0, 0.5, 0.5, -1.0, 1.0]
LARGE = [0.0] * 5 + [0.1, 1.0, -1.0, -0.1, 0.5]


@pytest.mark.parametrize(
    ("advantages", "size", "limit", "rows"),
    [
        # whole groups, those with winners and losers first
        (GROUPS, 2, 5, [2, 3, 6, 7]),
        (GROUPS, 2, 6, [0, 1, 2, 3, 6, 7]),
        # of a group that is larger than the limit, the best and the worst rows
        (LARGE, 5, 3, [6, 7, 9]),
        (LARGE, 5, 4, [6, 7, 8, 9]),
        (LARGE, 5, 5, [*range(5, 10)]),
    ],
)
def test_whole_groups_with_contrast_are_recorded_first(advantages, size, limit, rows):
    assert choose_rows(np.array(advantages), size, limit) == rows


# --- resuming ---


def test_resumed_run_records_the_same(make_trainer, tmp_path):
    options = {"steps_per_generation": 2, "max_steps": 5, "save_strategy": "steps", "save_steps": 2}
    options["log_token_credit"] = 3
    make_trainer(**options).train()
    expected = records(tmp_path / "run")
    assert list(expected) == [0, 4]  # 4 is trained again

    # a run that was killed later than its last checkpoint
    first = recorded_files(tmp_path / "run")[0]
    first.with_name("token_credit_00099.parquet").touch()
    make_trainer(**options).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-4"))
    assert str(records(tmp_path / "run")) == str(expected)  # which has NaN

    # a new run starts anew
    trainer = make_trainer(log_token_credit=1, max_steps=1)
    for _ in range(2):  # also the same trainer's
        trainer.train()
        assert list(records(tmp_path / "run")) == [0]

    # also one whose rule has nothing to record
    make_trainer(log_token_credit=1, max_steps=1, token_credit="none").train()
    assert not records(tmp_path / "run")


def test_records_are_in_order_of_steps(tmp_path):
    steps = [99_999, 100_000, 2]
    for step in steps:
        write_records([], tmp_path, step)
    assert list(recorded_files(tmp_path)) == sorted(steps)


# --- trackers ---


def test_shaded_tokens_for_trackers(monkeypatch):
    """Of W&B and trackio as far as they are used here: W&B is not installed."""
    logged = []
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(Html=str, log=logged.append))
    of_two_tokens = runs.completion(["a", "b"], coefficients=[0.5, 1.1])
    empty = runs.completion([])
    track([of_two_tokens, empty], 3, ["wandb", "trackio", "tensorboard"])
    entry, same = logged
    assert entry == same
    assert entry["train/global_step"] == 3
    assert entry["token_credit"].count('class="tokens"') == 2
    assert "coefficient 1.100" in entry["token_credit"]


def test_shaded_tokens_for_trackio(make_trainer, tmp_path):
    """A training that reports to it, and the page that it keeps."""
    make_trainer(
        report_to="trackio",
        project="p",
        log_token_credit=1,
        log_token_credit_completions=4,
        max_steps=1,
    ).train()
    [page] = Path(os.environ["TRACKIO_DIR"]).rglob("*.html")
    assert page.read_text().count('class="tokens"') == 4
