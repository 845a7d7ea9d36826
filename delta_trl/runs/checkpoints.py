"""Which checkpoint to resume from, and which ones a run can be resumed from exactly."""

import re
from pathlib import Path

from accelerate.logging import get_logger
from transformers import TrainerCallback
from trl import GRPOConfig

from .folder import is_complete


logger = get_logger(__name__)


def last_complete_checkpoint(output_dir: str | Path, every: float = 1) -> Path | None:
    """
    The newest checkpoint under `output_dir` that was written to its end, or `None`. Between rollout batches, which are
    `every` so many steps, if there is one: elsewhere the rest of a rollout batch would be dropped.
    """
    checkpoints = {}
    for path in Path(output_dir).glob("checkpoint-*"):
        step = re.fullmatch(r"checkpoint-(\d+)", path.name)
        if step and is_complete(path):
            checkpoints[int(step[1])] = path
    if not checkpoints:
        return None
    newest = max(checkpoints)
    between = max((step for step in checkpoints if not step % every), default=None)
    if between is None:
        logger.warning(
            f"checkpoint-{newest} was saved inside a rollout batch of {every:g} optimiser steps, the rest of which is "
            "dropped: the run will differ from an uninterrupted one."
        )
    elif between < newest:
        logger.warning(
            f"Going on from checkpoint-{between}: checkpoint-{newest} was saved inside a rollout batch of {every:g} "
            "optimiser steps, the rest of which would be dropped. Name it to go on from there all the same."
        )
    return checkpoints[newest if between is None else between]


def resolve_resume(value: bool | str | None, output_dir: str | Path, every: float = 1) -> Path | None:
    """
    The checkpoint that `resume_from_checkpoint` means: `True` the last complete one under `output_dir` (`None` if
    there is none yet), a path that very checkpoint, `None` or `False` none. `every` as in `last_complete_checkpoint`.

    Raises:
        ValueError: If a named checkpoint is missing or incomplete.
    """
    if value is None or str(value).lower() == "false":
        return None
    if str(value).lower() == "true":
        return last_complete_checkpoint(output_dir, every)
    path = Path(value)
    if not is_complete(path):
        raise ValueError(
            f"resume_from_checkpoint={str(value)!r}: not a complete checkpoint (no whole trainer_state.json in it). "
            f"Use `true` for the last complete one under {str(output_dir)!r}."
        )
    return path


def keeps_best(args: GRPOConfig) -> bool:
    """Whether a recipe's run keeps its best checkpoint; by avg@k, if `args` name no measure (GRPO's loss is none)."""
    keeps = args.eval_strategy != "no" and args.save_strategy != "no"
    if keeps and args.metric_for_best_model in (None, "loss"):
        args.metric_for_best_model, args.greater_is_better = "avg_at_k", True
    return keeps


class SaveBestCallback(TrainerCallback):
    """Saves a checkpoint after every evaluation that is the best so far, by `metric_for_best_model`, which
    `save_total_limit` then spares. `Trainer` alone can only keep what happens to be saved at that step."""

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        value = metrics.get(f"eval_{args.metric_for_best_model.removeprefix('eval_')}")
        sign = 1 if args.greater_is_better else -1
        if value is not None and (state.best_metric is None or sign * value > sign * state.best_metric):
            control.should_save = True
