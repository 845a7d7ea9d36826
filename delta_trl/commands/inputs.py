"""What a trainer takes from a recipe: data and rewards, with all checks that need no weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig

from ..data.loading import load, local_format, prepare
from ..data.preflight import preflight, run_checks
from ..evaluation.model import ModelArguments
from ..trainer.checks import checks_of_options, reader_of_run, refuse_too_few_rows
from .recipe import RunArguments, UsageError, get_rewards


# PEFT's names of options, and a recipe's. Modules that a pattern or PEFT's default stands for are not compared
OF_LORA = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
    "target_modules": "lora_target_modules",
}


@dataclass
class Inputs:
    """
    What a trainer takes from a recipe.

    Attributes:
        rewards (`list[Callable]`): The reward functions.
        datasets (`dict[str, Dataset]`): `train_dataset`, and `eval_dataset` if the run evaluates.
        config (`PretrainedConfig`): The model's; `None` if it is absent.
        adapter (`PeftConfig`): That of the adapter that the run goes on with, if there is one, and it is not absent.
        warnings (`list[str]`): Of the checks.
        absent (`list[str]`): The model, its adapter and the data that are not on this machine.
    """

    rewards: list[Callable]
    datasets: dict[str, Dataset]
    config: Any
    adapter: Any
    warnings: list[str]
    absent: list[str]


def read_inputs(run_args: RunArguments, args: GRPOConfig, source: ModelArguments, new_adapter: Any = None) -> Inputs:
    """
    Load and check what a recipe names. Leaves out rows that cannot be graded, or have longer prompts than
    `max_prompt_length`.

    Args:
        run_args ([`RunArguments`]), args (`GRPOConfig`): The recipe.
        source ([`~evaluation.model.ModelArguments`]):
            Its model. With `local_files_only`, what is not on this machine is no error.
        new_adapter (`PeftConfig`, *optional*): What the recipe's options of LoRA would make.

    Raises:
        ValueError, OSError, ImportError: For what cannot be loaded, or does not fit together.
    """
    rewards = get_rewards(run_args)
    datasets = {}
    warnings = run_checks(checks_of_options(args, run_args.reward_funcs, run_args), refuses=True)
    absent: list[str] = []

    def unless_absent(name: str, load: Callable[[], Any]) -> Any:
        try:
            return load()
        except (OSError, ValueError):  # not on this machine, or broken
            if not source.local_files_only or Path(name).is_dir():
                raise
            absent.append(name)
        return None

    path = source.adapter_name_or_path
    adapter = unless_absent(path, source.adapter_config) if path else None
    if path and adapter:
        warnings += source.warnings_of(adapter)
        if new_adapter:
            refuse_other_options(path, adapter, new_adapter)
    model = source.model_name_or_path
    reader = unless_absent(model, lambda: reader_of_run(args, model, source.processor(), source.config()))
    for title, (of, split) in sources(run_args, args).items():
        name = of.dataset_name
        if source.local_files_only and not local_format(name) and not Path(name).exists():
            absent.append(name)
            continue
        checked = preflight(
            load_prepared(of, split),
            name,
            rewards,
            run_args.reward_funcs,
            reader,
            refuses=True,
            grades=args.process_index == 0,
            max_prompt_length=run_args.max_prompt_length,
        )
        if title == "train_dataset":
            refuse_too_few_rows(args, len(checked.dataset))
        warnings += checked.warnings
        datasets[title] = checked.dataset
    return Inputs(rewards, datasets, reader and reader.config, adapter, warnings, absent)


def refuse_other_options(name: str, adapter: Any, new_adapter: Any) -> None:
    """Raise `UsageError` if the adapter with which a run goes on has other options of LoRA than the recipe."""
    for option, of_recipe in OF_LORA.items():
        asked = getattr(new_adapter, option)
        trained = getattr(adapter, option, None)
        if asked != trained and not (option == "target_modules" and isinstance(asked, str | None)):
            raise UsageError(
                f"{of_recipe}={asked!r}, but adapter_name_or_path={name!r} has {trained!r}, and goes on with it. Set "
                "the same, or use_peft: false without any option of LoRA."
            )


def load_prepared(run_args: RunArguments, split: str) -> Dataset:
    """Load a split, and bring it into TRL's columns. Raises `ValueError` like the functions of `data/loading.py`."""
    return prepare(
        load(run_args.dataset_name, run_args.dataset_config, split, run_args.dataset_format),
        column_mapping=run_args.column_mapping,
        prompt_template=run_args.prompt_template,
        system_prompt=run_args.system_prompt,
        conversational=run_args.conversational,
        name=run_args.dataset_name,
    )


def sources(run_args: RunArguments, args: GRPOConfig) -> dict[str, tuple[RunArguments, str]]:
    """
    The arguments and splits from which `train_dataset` is loaded, and `eval_dataset` if the run evaluates. Raises
    `UsageError` if there is nothing to evaluate on.
    """
    split = run_args.dataset_train_split
    if Path(run_args.dataset_name).is_file() and split.partition("[")[0] != "train":
        raise UsageError(
            f"dataset_train_split={split!r}, but dataset_name={run_args.dataset_name!r} is a file, which is all of "
            "one split. Leave it out; a part of the file is 'train[:500]'."
        )
    train = {"train_dataset": (run_args, split)}
    if args.eval_strategy == "no":
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
