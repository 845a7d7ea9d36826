"""Rows whose advantages are all 0 do not run in the loss, which trains the same."""

from functools import partial, wraps

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector
from trl import GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import Given
from delta_trl.scoring.rollout import SCORED
from delta_trl.scoring.rows import loss_reads_all_rows, prompts_stay_together, rows_of_loss

from ..corpus import tiny
from ..trainers import LORA, RAGGED, TRL, joined, logged, ragged, sharp, valid_tokens
from .runs import TRIMMED, Plain, cpmant, losses, qwen, qwen_moe, trained


LOSSES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "vespo", "luspo")


def reward_every(n: int):
    """A reward that tells the completions of every n-th prompt apart."""

    def reward(completion_ids, **kwargs):
        values = []
        for row, ids in enumerate(completion_ids):
            is_told_apart = row // 4 % n == n - 1  # four completions of each prompt
            values.append(float(sum(ids) % 2) if is_told_apart else 1.0)
        return values

    return reward


def run(make_trainer, kind: type[GRPOTrainer], n: int = 2, **options):
    """A trainer after two rollout batches, its weights, and the positions in each forward pass with a gradient."""
    trainer, weights, passes = run_and_see(make_trainer, kind, n, **options)
    return trainer, weights, areas(passes, has_gradient=True)


def areas(passes, has_gradient: bool) -> list[int]:
    found = []
    for of_loss, (rows, columns) in passes:
        if of_loss == has_gradient:
            found.append(rows * columns)
    return found


def run_and_see(make_trainer, kind: type[GRPOTrainer], n: int = 2, **options):
    """A trainer, its weights, and all forward passes."""
    defaults = {
        **RAGGED,
        **TRL,
        # one micro-batch for each optimiser step: TRL shares out its rows in another random order
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 1,
        "max_steps": 4,
        "optim": "sgd",
        "learning_rate": 0.02,
        "shuffle_dataset": False,
    }
    options = {**defaults, "trainer_class": kind, "reward_funcs": reward_every(n), **options}
    model = options.pop("model", sharp)()
    return trained(make_trainer, model, **options)


@pytest.mark.parametrize(("loss_type", "iterations"), [("dapo", 1), ("bnpo", 1), *((loss, 2) for loss in LOSSES)])
def test_weights_are_trls(make_trainer, loss_type, iterations):
    options = {"loss_type": loss_type, "num_iterations": iterations}
    ours, our_weights, _ = run(make_trainer, Plain, **options)
    theirs, their_weights, _ = run(make_trainer, GRPOTrainer, **options)
    torch.testing.assert_close(our_weights, their_weights, atol=1e-5, rtol=1e-5)

    def assert_logs_are_close(name: str, **tolerance) -> None:
        assert logged(ours, name) == pytest.approx(logged(theirs, name), **tolerance)

    assert_logs_are_close("loss", abs=1e-5)
    assert_logs_are_close("grad_norm", rel=1e-4)
    clips = {"cispo": ["cispo_clip_ratio"], "sapo": [], "vespo": []}
    for name in clips.get(loss_type, ["clip_ratio/low_mean", "clip_ratio/high_max"]):
        assert_logs_are_close(name, abs=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_one_row_runs_where_none_trains(make_trainer, masked):
    """So that every process makes a forward and a backward pass. The shortest may have no token."""
    trainer, weights, rows = run(make_trainer, Plain, n=1000, mask_truncated_completions=masked)
    assert torch.equal(weights, parameters_to_vector(sharp().parameters()))
    assert len(rows) == 4
    assert max(rows) < 12
    assert np.isfinite(logged(trainer, "entropy")).all()
    assert logged(trainer, "grad_norm") == [0.0] * 4


@pytest.mark.parametrize(
    ("dtype", "autocasts", "known", "expected"),
    [
        (torch.float32, False, ["old_per_token_logps", SCORED], [0, 2]),
        (torch.float32, True, ["old_per_token_logps", SCORED], [0, 2, 3]),  # as they were scored
        (torch.bfloat16, False, ["old_per_token_logps", SCORED], [0, 2, 3]),
        (torch.float16, False, ["old_per_token_logps", SCORED], [0, 2, 3]),
        (torch.bfloat16, False, ["old_per_token_logps"], [0, 1, 2, 3]),
        (torch.bfloat16, False, [SCORED], [0, 2]),  # there are no others to compare with
    ],
)
def test_a_row_whose_tokens_cancel_each_other_runs(make_trainer, dtype, autocasts, known, expected):
    """A rule may turn some tokens of a response against it. Without an advantage, the shortest runs."""
    trainer = make_trainer(tiny.model().to(dtype), bf16=autocasts)
    of_batch = {
        "advantages": torch.tensor([[1.0, -1.0], [0.0, 0.0], [0.5, 0.5], [0.0, 0.0]]),
        "old_per_token_logps": torch.zeros(4, 2),
        SCORED: torch.tensor([True, False, True, True]),
    }
    batch = {name: of_batch[name] for name in ("advantages", *known)}
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 0], [0, 1, 1, 1]])
    assert rows_of_loss(trainer, batch, mask).tolist() == expected
    batch["advantages"].zero_()
    assert rows_of_loss(trainer, batch, mask).tolist() == [2]


def test_entropy_is_that_of_the_rows_that_train(make_trainer):
    trainer, *_ = run(make_trainer, Plain, max_steps=1, learning_rate=0.0)
    batch = trainer._buffered_inputs[0]
    ids, mask = joined(batch, "ids"), joined(batch, "mask")
    T = batch["completion_ids"].size(1)
    score = GRPOTrainer._get_per_token_logps_and_entropies
    with torch.no_grad():
        _, entropies, _ = score(trainer, trainer.model, ids, mask, T, compute_entropy=True)
    valid = valid_tokens(batch)
    has_advantage = batch["advantages"] != 0
    mean_of_trained = entropies[valid & has_advantage[:, None]].mean().item()
    mean = entropies[valid].mean().item()
    assert logged(trainer, "entropy") == pytest.approx([mean_of_trained], rel=2e-5)
    assert abs(mean_of_trained - mean) > 3e-4


class OwnLoss(Plain):
    def _compute_loss(self, model, inputs):
        return super()._compute_loss(model, inputs)


class Patched(Plain):
    """Whose loss somebody has wrapped on the instance."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._compute_loss = partial(self._compute_loss)


class Below:
    """A mixin that stands between ours and TRL's."""

    def _get_per_token_logps_and_entropies(self, *args, **options):
        return super()._get_per_token_logps_and_entropies(*args, **options)


class Noise(nn.Module):
    """Draws random numbers in training, and is no dropout."""

    def forward(self, states):
        return states + 1e-3 * torch.randn_like(states) if self.training else states


def with_noise():
    model = sharp()
    model.model.norm = nn.Sequential(model.model.norm, Noise())
    return model


def with_dropout():
    model = tiny.model()
    model.model.layers[0].mlp.act_fn = nn.Sequential(model.model.layers[0].mlp.act_fn, nn.Dropout(0.1))
    return model


READERS = {  # the trainer, its options, and whether all rows run
    "plain": (Plain, {}, False),
    "beta": (Plain, {"beta": 0.1, "trainer_options": {**LORA, "rollout_func": ragged}}, True),
    "top entropies": (Plain, {"top_entropy_quantile": 0.5}, True),
    "entropy bonus": (Plain, {"entropy_coef": 0.1}, True),
    "bf16": (Plain, {"bf16": True}, False),
    "bf16, one step": (Plain, {"bf16": True, "num_iterations": 1}, False),  # without old ones, ratios are 1
    "dropout": (Plain, {"model": with_dropout}, True),
    "noise": (Plain, {"model": with_noise}, True),
    "own loss": (OwnLoss, {}, True),
    "wrapped loss": (Patched, {}, True),
    "scoring of a mixin": (type("Mixed", (Plain, Below, GRPOTrainer), {}), {}, True),
    "fipo": (DeltaGRPOTrainer, {"token_credit": "fipo", "config_class": DeltaGRPOConfig}, True),  # of micro-batches
}


@pytest.mark.parametrize(("kind", "options", "all_run"), READERS.values(), ids=READERS)
def test_all_rows_run_where_a_loss_reads_them(make_trainer, kind, options, all_run):
    *_, rows = run(make_trainer, kind, max_steps=1, **options)
    *_, every_row = run(make_trainer, kind, n=1, max_steps=1, **options)
    if all_run:
        assert rows == every_row
    else:
        assert sum(rows) < 0.7 * sum(every_row)


@pytest.mark.parametrize(
    ("config", "options", "reads_all", "depends_on_neighbours"),
    [
        (qwen, {}, False, False),
        (qwen, {"loss_type": "bnpo"}, False, True),
        (qwen, {"top_entropy_quantile": 0.5}, True, True),
        (qwen, {"entropy_coef": 0.1}, True, True),
        (qwen, {"beta": 0.1, **LORA}, True, False),
        (qwen_moe, {"router_aux_loss_coef": 0.1}, True, True),
        (qwen_moe, {"router_aux_loss_coef": 0.0}, False, False),
    ],
)
def test_what_a_loss_reads(make_trainer, config, options, reads_all, depends_on_neighbours):
    """Rows without an advantage, and which rows are in a micro-batch."""
    trainer = make_trainer(tiny.model(config()), **TRIMMED, **options)
    trainer.layouts.look()
    assert loss_reads_all_rows(trainer, trainer.layouts) is reads_all
    assert prompts_stay_together(trainer) is not depends_on_neighbours


def test_all_rows_run_where_trls_loss_is_patched(make_trainer, monkeypatch):
    @wraps(original := GRPOTrainer._compute_loss)
    def patched(self, model, inputs):
        return original(self, model, inputs)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", patched)
    *_, rows = run(make_trainer, Plain, max_steps=1)
    *_, every_row = run(make_trainer, Plain, n=1, max_steps=1)
    assert rows == every_row


def test_rows_left_out_have_a_ratio_of_1(make_trainer, monkeypatch):
    """
    Those of groups without contrast, which are not scored either, and those that a rule gives no credit. TRL's losses
    multiply it by an advantage of 0: it must be finite however unlikely the tokens are.
    """

    def none_of_odd_rows(completion_ids, **columns):
        return [[0.0] * len(ids) if row % 2 else None for row, ids in enumerate(completion_ids)]

    seen = losses(monkeypatch)
    rule = {"token_credit": Given(none_of_odd_rows), "config_class": DeltaGRPOConfig}
    run(make_trainer, DeltaGRPOTrainer, max_steps=2, **rule)
    log_ratios, advantages = seen[1]  # of the policy that has moved
    trains = advantages.any(dim=1)
    assert 0 < trains.sum() < len(trains) / 2
    assert log_ratios[trains].any()
    assert not log_ratios[~trains].any()


SMALL = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "steps_per_generation": 4,
    "max_steps": 2,
}
DELTA = {"token_credit": "delta", "config_class": DeltaGRPOConfig}


@pytest.mark.parametrize(("kind", "options"), [(Plain, {}), (DeltaGRPOTrainer, DELTA)], ids=["none", "delta"])
def test_in_16_bit_only_rows_that_train_run_and_ratios_are_1(make_trainer, monkeypatch, kind, options):
    """
    Micro-batches are those that were scored, in their order: bits may depend on the rows beside a row. In each are
    rows of both kinds.
    """
    options = {"bf16": True, "learning_rate": 0.0, **SMALL, **options}
    options |= {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    seen = losses(monkeypatch)
    *_, passes = run_and_see(make_trainer, kind, **options)
    few = areas(passes, has_gradient=True)
    assert few == areas(passes, has_gradient=False)
    assert len(set(few)) == len(few) == len(seen) == 4
    for log_ratios, _ in seen:
        assert not log_ratios.any()
    *_, every_row = run(make_trainer, kind, n=1, **options)
    assert len(few) == len(every_row)
    assert sum(few) < 0.7 * sum(every_row)


@pytest.mark.parametrize("iterations", [1, 2], ids=["aligned", "two steps"])
def test_rows_that_train_nothing_are_not_scored(make_trainer, iterations):
    """Neither where TRL asks for old log-probabilities, nor where only token credit scores."""
    options = {**DELTA, **SMALL, "num_iterations": iterations, "max_steps": 1}
    *_, passes = run_and_see(make_trainer, DeltaGRPOTrainer, **options)
    scored = areas(passes, has_gradient=False)
    *_, passes = run_and_see(make_trainer, DeltaGRPOTrainer, n=1, **options)
    all_scored = areas(passes, has_gradient=False)
    assert len(scored) == 4  # one for each micro-batch
    assert len(all_scored) == 4
    assert sum(scored) < 0.7 * sum(all_scored)


def test_all_rows_are_scored_where_they_may_depend_on_each_other(make_trainer):
    options = {**DELTA, **SMALL, "num_iterations": 2, "max_steps": 1, "model": lambda: sharp(cpmant())}
    *_, passes = run_and_see(make_trainer, DeltaGRPOTrainer, **options)
    *_, where_all_train = run_and_see(make_trainer, DeltaGRPOTrainer, n=1, **options)
    assert areas(passes, has_gradient=False) == areas(where_all_train, has_gradient=False)
