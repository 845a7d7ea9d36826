"""The dataset of a recipe, with what its rewards need."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, ProcessorMixin
from trl import GRPOConfig

from ..data.columns import check_columns
from ..data.loading import drop_long_prompts, drop_rows_without_gold, load, local_format, prepare
from .recipe import RunArguments, UsageError


logger = logging.getLogger(__name__)


def load_prepared(
    run_args: RunArguments,
    args: GRPOConfig,
    rewards: list[Callable],
    split: str,
    processor: PreTrainedTokenizerBase | ProcessorMixin | None = None,
) -> Dataset:
    """
    Load a split, bring it into TRL's columns, and leave out rows that cannot be graded or, if the processor is given,
    have longer prompts than `max_prompt_length`. Raises `ValueError` like the functions of `data/loading.py`, and for
    a column that TRL would hand to the model as pictures, if the processor is that of a text model.
    """
    name = run_args.dataset_name
    if local_format(name) and split.partition("[")[0] not in ("train", "test"):
        raise UsageError(f"{name} is a file, which has no split {split!r}: name the file with the rows that you mean.")
    dataset = prepare(
        load(name, run_args.dataset_config, split, run_args.dataset_format),
        column_mapping=run_args.column_mapping,
        prompt_template=run_args.prompt_template,
        system_prompt=run_args.system_prompt,
        conversational=run_args.conversational,
        name=name,
    )
    for warning in check_columns(dataset, rewards, run_args.reward_funcs, name):
        logger.warning(warning)
    dataset = drop_rows_without_gold(dataset, rewards, name)
    pictures = {"image", "images"} & set(dataset.column_names)
    if pictures and isinstance(processor, PreTrainedTokenizerBase):
        raise UsageError(
            f"{name}: TRL takes the column {pictures.pop()!r} for pictures, which the model does not read. Rename it."
        )
    if processor is None or run_args.max_prompt_length is None:
        return dataset
    tokenizer = getattr(processor, "tokenizer", processor)
    return drop_long_prompts(dataset, tokenizer, run_args.max_prompt_length, name, args.chat_template_kwargs)


def sources(run_args: RunArguments, args: GRPOConfig) -> dict[str, tuple[RunArguments, str]]:
    """
    The arguments and splits from which `train_dataset` is loaded, and `eval_dataset` if the run evaluates. Raises
    `UsageError` if there is nothing to evaluate on.
    """
    train = {"train_dataset": (run_args, run_args.dataset_train_split)}
    if args.eval_strategy == "no":
        if run_args.eval_dataset_name:
            logger.warning("eval_dataset_name is not used: eval_strategy is 'no'. Set it to 'steps' or 'epoch'.")
        return train
    evaluated = run_args
    if run_args.eval_dataset_name:
        fields = ("dataset_name", "dataset_config", "dataset_format", "column_mapping")
        evaluated = replace(run_args, **{name: getattr(run_args, f"eval_{name}") for name in fields})
    elif Path(run_args.dataset_name).is_file():
        raise UsageError(
            f"eval_strategy={args.eval_strategy.value!r}, but dataset_name={run_args.dataset_name!r} is a file, "
            "which has no split to evaluate on: give `eval_dataset_name`."
        )
    return train | {"eval_dataset": (evaluated, run_args.dataset_test_split)}
