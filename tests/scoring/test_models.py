"""What scoring asks of a trainer and its options."""

from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import trl
from trl import GRPOTrainer
from trl.extras.profiling import profiling_decorator

from delta_trl import DeltaGRPOTrainer
from delta_trl.scoring.callables import is_foreign, runs_foreign_code
from delta_trl.scoring.models import autocast_dtype, has_images, trl_scores_rollouts
from delta_trl.scoring.rows import LOSS, trl_reads_scores


@pytest.mark.parametrize(
    ("accumulation", "generation", "iterations", "vllm", "corrects", "scores"),
    [
        (1, 1, 1, False, True, False),
        (4, 2, 1, False, True, False),
        (4, 4, 1, False, True, False),
        (2, 4, 1, False, True, True),
        (4, 4, 2, False, True, True),
        (8, 4, 2, False, True, False),
        (6, 4, 1, False, True, True),  # the policy moves while the second batch is in use
        (4, 4, 1, True, True, True),
        (4, 4, 1, True, False, False),
    ],
)
def test_trl_scores_a_rollout_batch_if_the_policy_moves_or_vllm_s_sampling_is_corrected(
    accumulation, generation, iterations, vllm, corrects, scores
):
    args = SimpleNamespace(
        gradient_accumulation_steps=accumulation,
        steps_per_generation=generation,
        num_iterations=iterations,
        use_vllm=vllm,
        vllm_importance_sampling_correction=corrects,
    )
    assert trl_scores_rollouts(args) is scores


def of_class(kind: type[GRPOTrainer], **attributes):
    """A trainer of which nothing is asked but its methods and these."""
    trainer = kind.__new__(kind)
    vars(trainer).update(attributes)
    return trainer


@pytest.mark.parametrize(("vllm", "corrects"), [(False, True), (True, False), (True, True)])
def test_scores_are_read_at_once_where_vllm_s_sampling_is_corrected(vllm, corrects):
    trainer = of_class(DeltaGRPOTrainer, use_vllm=vllm, vllm_importance_sampling_correction=corrects)
    assert trl_reads_scores(trainer) == (vllm and corrects)


def wrapped(function):
    @wraps(function)
    def run(*args, **options):
        return function(*args, **options)

    return run


def below_trls(function):
    """Anybody's, with a decorator of TRL's."""
    return profiling_decorator(wrapped(function))


def test_a_package_that_begins_as_trls_is_anybody_s():
    file = f"{Path(trl.__file__).parent}_more/trainer.py"
    space: dict = {}
    exec(compile("def step(self): ...", file, "exec"), space)
    assert is_foreign(space["step"])
    assert not is_foreign(GRPOTrainer.training_step)


@pytest.mark.parametrize("name", ["compute_loss", "_compute_loss", "_get_per_token_logps_and_entropies"])
@pytest.mark.parametrize("wrapper", [wrapped, partial, below_trls])
def test_each_method_that_reads_rows_may_be_anybody_s(monkeypatch, name, wrapper):
    """In a subclass, in a mixin below ours, on the instance, or on TRL's class itself."""
    theirs = {name: wrapper(getattr(GRPOTrainer, name))}
    subclass = type("Own", (DeltaGRPOTrainer,), theirs)
    below = type("Mixed", (DeltaGRPOTrainer, type("Below", (), theirs), GRPOTrainer), {})
    assert runs_foreign_code(of_class(subclass), LOSS)
    assert runs_foreign_code(of_class(below), LOSS)
    scores_itself = name == "_get_per_token_logps_and_entropies"
    assert trl_reads_scores(of_class(subclass, use_vllm=False)) is scores_itself
    assert runs_foreign_code(of_class(DeltaGRPOTrainer, **theirs), LOSS)
    assert not runs_foreign_code(of_class(subclass), LOSS - {name})
    assert not runs_foreign_code(of_class(DeltaGRPOTrainer, training_step=print), LOSS)
    monkeypatch.setattr(GRPOTrainer, name, theirs[name])
    assert runs_foreign_code(of_class(DeltaGRPOTrainer), LOSS)


@pytest.mark.parametrize(("setting", "dtype"), [("no", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_autocast_is_accelerates(setting, dtype):
    trainer = SimpleNamespace(accelerator=SimpleNamespace(mixed_precision=setting))
    assert autocast_dtype(trainer) is dtype


@pytest.mark.parametrize(
    ("batch", "has"),
    [
        ({"prompt_ids": 1, "batch_size": 2}, False),
        ({"pixel_values": None, "num_images": None}, False),
        ({"pixel_values": None, "num_images": [0, 1]}, True),
        ({"image_grid_thw": 1}, True),
    ],
    ids=str,
)
def test_a_batch_has_images_if_any_of_their_values_is_there(batch, has):
    assert has_images(batch) is has
