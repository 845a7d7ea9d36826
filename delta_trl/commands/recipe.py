"""The arguments of training, which recipes and command lines set, and their checks."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from trl import ModelConfig

from ..arguments.errors import UsageError
from ..arguments.options import Options
from ..arguments.parser import StrictParser, documented, read_mappings
from ..data.formats import FORMATS
from ..rewards import get_reward
from ..trainer.config import CreditArguments, DeltaGRPOConfig
from .help import HelpAll, short_help
from .terminal import TERMINALS


@documented
@dataclass
class RunArguments:
    """
    The data and rewards of a run. Options that TRL's scripts have, too, mean the same there.

    Args:
        dataset_name (`str`): Hub id, or a `.json`, `.jsonl` or `.parquet` file. Or a folder of such files.
        dataset_config (`str`, *optional*): Configuration of a hub dataset.
        dataset_format (`str`, *optional*):
            Schema of a public dataset. In place of `column_mapping`, see docs/datasets.md.
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
        system_prompt (`str`, *optional*): System message of chats.
        conversational (`bool`, *optional*, defaults to `False`):
            Turn text prompts into chats, as the user's message. Set it for models that were trained on chats.
        max_prompt_length (`int`, *optional*):
            Leave out rows with longer prompts, in tokens. Set it if prompt and completion exceed the model's
            context.
        reward_funcs (`list[str]` or `dict[str, float]`):
            Names of rewards, or paths of your own. A path is dotted, `my_rewards.shorter`. In a recipe also with
            their weights, `{math_reward: 1, my_rewards.shorter: 0.2}`, in place of `reward_weights`.
        reward_kwargs (`dict`, *optional*): Options by reward name. `{math_reward: {timeout: 3}}`.
        overwrite_output_dir (`bool`, *optional*, defaults to `False`):
            Remove the run that `output_dir` holds. Without it, such a folder is refused.
        terminal (`str`, *optional*, defaults to `"lines"`):
            Print a line per rollout batch, or as TRL does. `trl` prints TRL's dicts and tables.
    """

    dataset_name: str | None = None
    dataset_config: str | None = None
    dataset_format: str | None = field(default=None, metadata={"choices": tuple(FORMATS)})
    dataset_train_split: str = "train"
    eval_dataset_name: str | None = None
    eval_dataset_config: str | None = None
    eval_dataset_format: str | None = field(default=None, metadata={"choices": tuple(FORMATS)})
    eval_column_mapping: dict | str | None = None
    dataset_test_split: str = "test"
    column_mapping: dict | str | None = None
    prompt_template: str | None = None
    system_prompt: str | None = None
    conversational: bool = False
    max_prompt_length: int | None = None
    reward_funcs: list[str] | None = None
    reward_kwargs: dict | str | None = None
    overwrite_output_dir: bool = False
    terminal: str = field(default="lines", metadata={"choices": TERMINALS})

    def __post_init__(self):
        read_mappings(self, "column_mapping", "eval_column_mapping", "reward_kwargs")
        if isinstance(self.reward_funcs, str):
            self.reward_funcs = [self.reward_funcs]
        for prefix in ("", "eval_"):
            form, mapping = f"{prefix}dataset_format", f"{prefix}column_mapping"
            if getattr(self, form) and getattr(self, mapping):
                raise UsageError(f"Set either `{form}` or `{mapping}`: a format names its own columns.")
        for name in ("eval_dataset_config", "eval_dataset_format", "eval_column_mapping"):
            if getattr(self, name) and not self.eval_dataset_name:
                raise UsageError(f"`{name}` goes with `eval_dataset_name`, which is not set.")
        if any(not isinstance(name, str) for name in self.reward_funcs or ()):
            raise UsageError(
                f"reward_funcs={self.reward_funcs}: expected names, or a mapping of names to weights. Options go into "
                "reward_kwargs."
            )
        unknown = set(self.reward_kwargs) - set(self.reward_funcs)
        if unknown:
            raise UsageError(
                f"reward_kwargs names {sorted(unknown)}, which are not among reward_funcs: {self.reward_funcs}."
            )


def get_rewards(run_args: RunArguments) -> list[Callable]:
    """The reward functions of a recipe. Raises `ValueError` or `ImportError` as `get_reward` does."""
    return [get_reward(name, **(run_args.reward_kwargs.get(name) or {})) for name in run_args.reward_funcs]


def weigh_rewards(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe whose `reward_funcs` maps names to weights, with lists of both. Raises `UsageError`."""
    weights = recipe["reward_funcs"]
    for name, weight in weights.items():
        if not isinstance(weight, (int, float)) or isinstance(weight, bool):
            raise UsageError(
                f"reward_funcs: the weight of {name!r} is {weight!r}: expected a number. Options go into "
                "reward_kwargs."
            )
    if recipe.get("reward_weights") is not None:
        raise UsageError("Set either the weights in `reward_funcs` or `reward_weights`.")
    return {**recipe, "reward_funcs": list(weights), "reward_weights": list(map(float, weights.values()))}


class RecipeParser(StrictParser):
    """The parser of training recipes."""

    def __init__(self, config_class: type[DeltaGRPOConfig] = DeltaGRPOConfig):
        super().__init__([RunArguments, config_class, ModelConfig], prog="delta-trl train")
        self.add_argument("--help-all", "--help_all", action=HelpAll, help="show all of TRL's options, too, and exit")

    def format_help(self) -> str:
        data, credit = ([one.name for one in fields(group)] for group in (RunArguments, CreditArguments))
        return short_help(self, {"data and rewards": data, "token credit": [*credit, "epsilon_high"]})

    def parse(self, options: Options) -> tuple[RunArguments, DeltaGRPOConfig, ModelConfig]:
        recipe, flags = options.recipe, options.flags
        if isinstance(recipe.get("reward_funcs"), dict) and "reward_funcs" not in flags:
            recipe = weigh_rewards(recipe)
        if flags.get("token_credit") not in (None, [recipe.get("token_credit", "delta")]):
            recipe = {name: value for name, value in recipe.items() if name != "token_credit_kwargs"}  # another rule's
        arguments = super().parse(Options(recipe, flags))
        given, weights = arguments[0].reward_funcs, arguments[1].reward_weights
        if given and weights is not None and len(weights) != len(given):
            raise UsageError(
                f"reward_weights={weights}: expected {len(given)}, one for each of reward_funcs ({given})."
            )
        return arguments
