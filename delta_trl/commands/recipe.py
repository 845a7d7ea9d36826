"""The options of training, which recipes and command lines set. Imports nothing heavy, for `train --help`."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments.errors import UsageError
from ..arguments.lookup import import_dotted
from ..arguments.parser import Mapping, documented, parse, read_mappings
from ..arguments.values import without_effect
from ..evaluation.model import ModelArguments


if TYPE_CHECKING:
    from trl import ModelConfig

    from ..trainer.config import DeltaGRPOConfig


@documented
@dataclass
class RunArguments:
    """
    The data and rewards of a run. All of TRL's GRPOConfig and ModelConfig are options, too, see
    https://huggingface.co/docs/trl/grpo_trainer. Those of token credit (token_credit, token_credit_kwargs,
    dynamic_sampling, log_token_credit, ...) are described in docs/token_credit.md. --dry_run [--num_processes N]
    plans the run.

    Args:
        dataset_name (`str`): Hub id, or a `.json`, `.jsonl`, `.csv` or `.parquet` file. Or a folder of such files.
        reward_funcs (`list[str]`): Names of rewards, or dotted paths of your own, `my_rewards.shorter`.
        reward_kwargs (`dict`, *optional*): Options by reward name. `{math_reward: {timeout: 3}}`.
        adapter_name_or_path (`str`, *optional*):
            Hub id or path of a PEFT adapter of the model, such as the `output_dir` of a run with `use_peft`. Training
            goes on with it, and with its own LoRA options.
        dataset_config (`str`, *optional*): Configuration of a hub dataset.
        dataset_format (`str`, *optional*):
            How rows become `prompt` and `solution` or `tests`. The name of a public dataset's schema (see
            docs/datasets.md), or the dotted path of a function from a row to a dict of columns.
        dataset_train_split (`str`, *optional*, defaults to `"train"`): Split to train on.
        eval_dataset_name (`str`, *optional*):
            Like `dataset_name`, for evaluation. Defaults to `dataset_name`, with its configuration, format and column
            mapping. If given, these are set by `eval_dataset_config` and its like alone.
        eval_dataset_config, eval_dataset_format, eval_column_mapping (*optional*):
            Of `eval_dataset_name`. Like those without `eval_`.
        dataset_test_split (`str`, *optional*, defaults to `"test"`): Split to evaluate on. Needs `eval_strategy`.
        column_mapping (`dict`, *optional*):
            New names of columns. `{question: prompt, answer: solution}`: training reads `prompt`, rewards the others.
        prompt_template (`str`, *optional*): Text around each prompt, with `{prompt}`.
        system_prompt (`str`, *optional*):
            Makes each prompt a chat that begins with this system message, in place of one that it has.
        conversational (`bool`, *optional*, defaults to `False`):
            Turn text prompts into chats, as the user's message. Set it for models that were trained on chats.
        max_prompt_length (`int`, *optional*):
            Leave out rows with longer prompts, in tokens. Set it if prompt and completion exceed the model's
            context.
        tools (`list[str]`, *optional*):
            Dotted paths of the functions that the model may call, or of lists of them: `my_tools.search`.
        environment_factory (`str`, *optional*):
            Dotted path of what makes an environment, as in TRL: a class, a function, or a dict of them by name.
    """

    dataset_name: str
    reward_funcs: list[str]
    reward_kwargs: Mapping = field(default_factory=dict)
    adapter_name_or_path: str | None = None
    dataset_config: str | None = None
    dataset_format: str | None = None
    dataset_train_split: str = "train"
    eval_dataset_name: str | None = None
    eval_dataset_config: str | None = None
    eval_dataset_format: str | None = None
    eval_column_mapping: Mapping = field(default_factory=dict)
    dataset_test_split: str = "test"
    column_mapping: Mapping = field(default_factory=dict)
    prompt_template: str | None = None
    system_prompt: str | None = None
    conversational: bool = False
    max_prompt_length: int | None = None
    tools: list[str] | None = None
    environment_factory: str | None = None

    def __post_init__(self):
        read_mappings(self, "column_mapping", "eval_column_mapping", "reward_kwargs")
        if unknown := set(self.reward_kwargs) - set(self.reward_funcs):
            raise UsageError(
                f"reward_kwargs names {sorted(unknown)}, which are not among reward_funcs: {self.reward_funcs}."
            )


def parse_recipe(
    args: list[str], config_class: "type[DeltaGRPOConfig] | None" = None
) -> "tuple[RunArguments, DeltaGRPOConfig, ModelConfig]":
    """
    The arguments of a training from a command line and the recipe that it names.

    Args:
        args (`list[str]`): The command line, as `["--config", "recipe.yaml", "--max_steps", "4"]`.
        config_class (`type`, *optional*): In place of [`DeltaGRPOConfig`], a subclass.

    Raises:
        UsageError: On an unknown option, or a value that does not fit.
    """
    from trl import ModelConfig

    from ..trainer.config import DeltaGRPOConfig

    if any(re.match("--token[_-]credit(=|$)", word) for word in args):
        args = ["--token_credit_kwargs", "{}", *args]  # the recipe's options are those of another rule
    kinds = [RunArguments, config_class or DeltaGRPOConfig, ModelConfig]
    run_args, training_args, model_args = parse(kinds, args, prog="delta-trl train")
    refuse_untrainable(run_args, training_args, model_args)
    target = model_args.lora_target_modules
    if isinstance(target, str) and target.isidentifier():  # TRL makes a text, a pattern, of a list of one name
        model_args.lora_target_modules = [target]
    return run_args, training_args, model_args


def refuse_untrainable(run_args: RunArguments, args: "DeltaGRPOConfig", model_args: "ModelConfig") -> None:
    """Raise `UsageError` for options with which nothing would be trained, or something else than is meant."""
    name = model_args.model_name_or_path
    if not name:
        raise UsageError("`model_name_or_path` is missing: set it in the recipe or as --model_name_or_path.")
    if Path(name, "adapter_config.json").is_file():
        raise UsageError(
            f"model_name_or_path={name!r} is an adapter. To go on with it, name its model there, and set "
            f"adapter_name_or_path={name!r}."
        )
    if of_lora := without_effect(model_args):
        remedy = "All weights would be trained. Set `use_peft: true`."
        if run_args.adapter_name_or_path:
            remedy = "The adapter has options of its own."
        raise UsageError(f"{' '.join(of_lora)} {remedy}")
    if args.max_steps <= 0 and args.num_train_epochs <= 0:
        raise UsageError(
            f"num_train_epochs={args.num_train_epochs:g}: nothing would be trained. Set it, or `max_steps`."
        )


def get_tools(run_args: RunArguments) -> list[Callable]:
    """The tools of a recipe. Raises `ValueError` or `ImportError` for a path that names none."""
    tools: list[Callable] = []
    for path in run_args.tools or ():
        found = import_dotted("tool", path, ())
        tools += found if isinstance(found, list | tuple) else [found]
    return tools


def get_environments(run_args: RunArguments) -> Any:
    """TRL's `environment_factory` of a recipe, or `None`. Raises `ValueError` or `ImportError` like `get_tools`."""
    path = run_args.environment_factory
    return import_dotted("environment_factory", path, ()) if path else None


def get_rewards(run_args: RunArguments) -> list[Callable]:
    """The reward functions of a recipe. Raises `ValueError` or `ImportError` as `get_reward` does."""
    from ..rewards import get_reward

    try:
        return [get_reward(name, **(run_args.reward_kwargs.get(name) or {})) for name in run_args.reward_funcs]
    except TypeError as error:  # an option of the wrong type
        raise ValueError(f"reward_kwargs={run_args.reward_kwargs}: {error}.") from error


def model_of_recipe(
    run_args: RunArguments, model_args: "ModelConfig", training_args: "DeltaGRPOConfig"
) -> ModelArguments:
    """The model of a recipe, from which the commands load its tokenizer, its config and its adapter."""
    return ModelArguments(
        model_name_or_path=model_args.model_name_or_path,
        adapter_name_or_path=run_args.adapter_name_or_path,
        model_revision=model_args.model_revision,
        trust_remote_code=training_args.trust_remote_code,
    )
