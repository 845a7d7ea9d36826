"""Keeps the best checkpoint of a run."""

from transformers import TrainerCallback
from trl import GRPOConfig


def keeps_best(args: GRPOConfig) -> bool:
    """Whether a run keeps its best checkpoint. Sets the reward as the metric if `args` name none or GRPO's loss."""
    keeps = args.eval_strategy != "no" and args.save_strategy != "no"
    if keeps and args.metric_for_best_model in (None, "loss"):
        args.metric_for_best_model, args.greater_is_better = "reward", True
        if args.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy"):  # they follow the metric
            args.lr_scheduler_kwargs = {"mode": "max", **(args.lr_scheduler_kwargs or {})}
    return keeps


class SaveBestCallback(TrainerCallback):
    """
    Saves a checkpoint after every evaluation that is the best so far, by `metric_for_best_model`. `save_total_limit`
    keeps this checkpoint. `Trainer` alone keeps the best one only if it happens to be saved at that step.
    """

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        value = metrics.get(f"eval_{args.metric_for_best_model.removeprefix('eval_')}")
        sign = 1 if args.greater_is_better else -1
        if value is not None and (state.best_metric is None or sign * value > sign * state.best_metric):
            control.should_save = True
