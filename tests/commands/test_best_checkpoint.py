import pytest
import torch
from transformers import TrainerControl, TrainerState, get_scheduler
from trl import GRPOConfig

from delta_trl.commands.best_checkpoint import SaveBestCallback, keeps_best


@pytest.mark.parametrize("greater", [True, False])
@pytest.mark.parametrize("best", [None, 0.0, 0.25, 2.0])
@pytest.mark.parametrize("value", [None, 0.0, 0.25, 0.3, 2.0, 3.0])
def test_the_best_so_far_is_saved(greater, best, value):
    args = GRPOConfig("none", use_cpu=True, bf16=False, metric_for_best_model="score", greater_is_better=greater)
    control, metrics = TrainerControl(), {} if value is None else {"eval_score": value}
    SaveBestCallback().on_evaluate(args, TrainerState(best_metric=best), control, metrics)
    better = value is not None and (best is None or (value > best if greater else value < best))
    assert control.should_save == better


@pytest.mark.parametrize("schedule", ["reduce_lr_on_plateau", "greedy"])
def test_a_schedule_that_follows_the_metric_knows_its_direction(schedule):
    options = {"eval_steps": 1, "eval_strategy": "steps", "save_strategy": "steps", "lr_scheduler_type": schedule}
    args = GRPOConfig("none", use_cpu=True, bf16=False, **options)
    assert keeps_best(args)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = get_scheduler(schedule, optimizer, 0, 8, args.lr_scheduler_kwargs | {"patience": 0})
    for accuracy in (0.1, 0.2, 0.3, 0.4):
        schedule.step(accuracy)
    assert optimizer.param_groups[0]["lr"] >= 1.0


@pytest.mark.parametrize("metric", [None, "loss", "own"])
@pytest.mark.parametrize(("evaluates", "saves"), [("steps", "steps"), ("steps", "no"), ("no", "steps")])
def test_the_reward_is_the_metric_unless_one_is_named(metric, evaluates, saves):
    options = {"eval_steps": 1, "eval_strategy": evaluates, "save_strategy": saves}
    args = GRPOConfig("none", use_cpu=True, bf16=False, metric_for_best_model=metric, **options)
    assert keeps_best(args) == (evaluates == saves)
    chosen = keeps_best(args) and metric != "own"
    assert (args.metric_for_best_model, args.greater_is_better) == (
        ("reward", True) if chosen else (metric, None if metric is None else metric != "loss")
    )
