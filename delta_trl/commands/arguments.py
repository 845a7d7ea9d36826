"""The options of `delta-trl explain` and `compare`. Imports nothing heavy, for `--help`."""

from dataclasses import dataclass, field

from ..arguments.parser import documented
from ..evaluation.model import ModelArguments


@documented
@dataclass(kw_only=True)
class ExplainArguments(ModelArguments):
    """
    Options of `delta-trl explain`, with those of [`ModelArguments`].

    Args:
        data (`str`):
            JSON lines such as {"prompt": "2+3=", "completion": "5", "reward": 1.0}. A prompt may be a list of chat
            messages, a reward null where it is unknown. Completions of the same prompt are a group: their rewards
            become advantages as in GRPO. With `token_ids` and `turns`, as a run records them, a tool's text gets no
            credit: tokens whose turn is 0.
        output_dir (`str`):
            Where the records and the report go. They replace those that this command wrote there before; the folder
            of a training run is refused.
        token_credit (`str`, *optional*, defaults to `"delta"`):
            One rule, with options after a colon: `delta:token_gradient=lm_head` or `your_module.YourRule`.
        batch_size (`int`, *optional*, defaults to `4`): Completions in a forward pass.
    """

    data: str
    output_dir: str
    token_credit: str = field(default="delta", metadata={"aliases": ["--rule"]})
    batch_size: int = 4


@documented
@dataclass
class CompareArguments:
    """
    Does a rule of token credit help on this recipe? Trains with the rule, without token credit, with the same weight
    per side, and with the rule's weights at random tokens; then compares them in pairs of the same seed. All options
    of `delta-trl train` hold for all arms; --eval_NAME is the option NAME of `delta-trl eval`. Called again, the
    command goes on.

    Args:
        arms (`list[str]`, *optional*): Rules in place of these four, as in `none delta:lambda_max=1.5`.
        seeds (`int`, *optional*, defaults to `3`): Number of seeds, from the recipe's on.
        launcher (`str`, *optional*, defaults to `""`): As in "accelerate launch --config_file FILE".
        benchmarks (`list[str]`, *optional*): What `delta-trl eval` samples after each run.
    """

    arms: list[str] | None = None
    seeds: int = 3
    launcher: str = ""
    benchmarks: list[str] = field(default_factory=list)
