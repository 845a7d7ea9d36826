"""The dataset of a recipe, with what its rewards need."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from datasets import Dataset

from ..data.columns import check_columns
from ..data.loading import drop_rows_without_gold, load, prepare
from ..trainer.config import DeltaGRPOConfig
from .recipe import RunArguments, UsageError


def load_prepared(run_args: RunArguments, rewards: list[Callable], split: str) -> Dataset:
    """
    Load a split, bring it into TRL's columns and leave out rows that cannot be graded. Raises `ValueError` and
    `OSError` like the functions of `data/loading.py`.
    """
    name = run_args.dataset_name
    dataset = prepare(
        load(name, run_args.dataset_config, split, run_args.dataset_format),
        column_mapping=run_args.column_mapping,
        prompt_template=run_args.prompt_template,
        system_prompt=run_args.system_prompt,
        conversational=run_args.conversational,
        name=name,
    )
    check_columns(dataset, rewards, run_args.reward_funcs, name)
    return drop_rows_without_gold(dataset, rewards, name)


def evaluation_source(run_args: RunArguments, args: DeltaGRPOConfig) -> RunArguments | None:
    """
    The arguments with the evaluation set in place of the training set; `None` if the run does not evaluate. Raises
    `UsageError` if there is nothing to evaluate on.
    """
    if args.eval_strategy == "no":
        return None
    if not run_args.eval_dataset_name:
        if Path(run_args.dataset_name).is_file():
            raise UsageError(
                f"eval_strategy={args.eval_strategy.value!r}, but dataset_name={run_args.dataset_name!r} is a file, "
                "which has no split to evaluate on: give `eval_dataset_name`."
            )
        return run_args
    fields = ("dataset_name", "dataset_config", "dataset_format", "column_mapping")
    return replace(run_args, **{name: getattr(run_args, f"eval_{name}") for name in fields})
