"""The data of a recipe, loaded and checked: what training and its dry run have in common."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, ProcessorMixin
from trl import GRPOConfig

from ..data.columns import check_columns, check_golds
from ..data.loading import drop_long_prompts, drop_rows_without_gold, load, local_format, prepare
from ..evaluation.model import ModelArguments
from ..trainer.checks import check_model, refuse_too_few_rows
from .recipe import RunArguments, UsageError, get_rewards


logger = logging.getLogger(__name__)


@dataclass
class Checked:
    """
    What a trainer gets, after all checks that need no weights.

    Attributes:
        rewards (`list[Callable]`): The reward functions.
        config (`PretrainedConfig`, *optional*): That of the model; `None` if it is not on this machine.
        datasets (`dict[str, Dataset]`): `train_dataset`, and `eval_dataset` if the run evaluates.
        warnings (`list[str]`): What the checks warn of.
        absent (`list[str]`): The model and the data that are not on this machine, and so are not checked.
    """

    rewards: list[Callable]
    config: Any = None
    datasets: dict[str, Dataset] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def load_checked(run_args: RunArguments, args: GRPOConfig, source: ModelArguments) -> Checked:
    """
    Load the data of a run, and make the checks of its options, data and model that need no weights.

    Args:
        run_args ([`RunArguments`]), args (`GRPOConfig`): The recipe's.
        source ([`~evaluation.model.ModelArguments`]): The model. With `local_files_only`, what is not on this machine
            is left out.

    Raises:
        ValueError, OSError, ImportError: For what does not fit together.
    """
    checked = Checked(get_rewards(run_args))
    model = source.model_name_or_path
    processor = None
    try:
        processor = source.processor()
        checked.config = source.config()
    except (OSError, ValueError):  # not on this machine, or broken
        if not source.local_files_only or Path(model).is_dir():
            raise
        checked.absent.append(model)
    for title, (of, split) in sources(run_args, args).items():
        name = of.dataset_name
        if source.local_files_only and not Path(name).exists() and not local_format(name):
            checked.absent.append(name)
            continue
        dataset = load_prepared(of, args, checked.rewards, split, processor)
        checked.datasets[title] = dataset
        if args.process_index == 0:  # grading takes time
            checked.warnings += check_golds(dataset, checked.rewards, name)
    if "train_dataset" in checked.datasets:
        refuse_too_few_rows(args, len(checked.datasets["train_dataset"]))
    if checked.config:
        checked.warnings += check_model(args, processor, checked.config, model, checked.datasets, checked.rewards)
    return checked


def load_prepared(
    run_args: RunArguments,
    args: GRPOConfig,
    rewards: list[Callable],
    split: str,
    processor: PreTrainedTokenizerBase | ProcessorMixin | None = None,
) -> Dataset:
    """
    Load a split, bring it into TRL's columns, and leave out rows that cannot be graded or, if the processor is given,
    have longer prompts than `max_prompt_length`. Raises `ValueError` like the functions of `data/loading.py`.
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
    dataset = drop_rows_without_gold(dataset, rewards, name)
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
