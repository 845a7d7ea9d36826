"""The options of token credit. Imports nothing heavy, for `train --help`."""

import pickle
from dataclasses import dataclass, field
from typing import Any

from .parser import Mapping, documented, read_mappings
from .values import VALUES, check_options


@documented
@dataclass
class CreditArguments:
    """
    What [`DeltaGRPOConfig`] adds to [`~trl.GRPOConfig`].

    Args:
        token_credit (`str`, *optional*, defaults to `"delta"`):
            How tokens are credited. A rule's name, or the dotted path of your own: `"delta"` is arXiv
            2605.21467; others of `credit.RULES` are its ablation `"within_side"`, the control `"side_mean"` or
            `"fipo"`; `"none"` is `GRPOTrainer`, bit for bit with `trim_padding` off and the same `epsilon_high`.
            Options may follow a colon, `delta:lambda_max=1.5`. In Python, `DeltaGRPOTrainer(token_credit=...)` also
            takes an instance of [`~credit.TokenCredit`].
        token_credit_kwargs (`dict`, *optional*):
            Options of `token_credit`. For example `{lambda_max: 1.5}`; another `--token_credit` on the command line
            drops those of the recipe.
        hidden_state_cache (`str`, *optional*, defaults to `"auto"`):
            Where hidden states are kept. They wait for the coefficients in `"device"` memory or in `"cpu"` memory.
            `"auto"` takes device memory if a tenth of it stays free, else main memory. Change it if memory runs out.
        trim_padding (`bool`, *optional*, defaults to `True`):
            Run micro-batches without padding: rows are packed into one sequence, or left-aligned and trimmed in models
            that cannot keep them apart. Losses are the same up to rounding. Where lengths differ, this takes a
            fraction of the time. Turn it off to compare bit for bit with `GRPOTrainer`. Text-only models.
        dynamic_sampling (`bool`, *optional*, defaults to `False`):
            Replace groups of equal rewards, as in DAPO. Groups of further prompts take their place. Verified rewards
            (`math_reward`, `code_reward`) are compared if there are any, else the sum of all. It costs generation:
            turn it on if many groups are all right or all wrong. See [`~trainer.dynamic_sampling.DynamicSampling`].
        dynamic_sampling_max_rounds (`int`, *optional*, defaults to `4`):
            Maximum number of extra generation rounds. After that, groups without contrast fill the batch. Raise it
            while most prompts are too hard; each round costs up to a batch of completions.
        log_token_credit (`int`, *optional*, defaults to `0`):
            Record token credit every n optimiser steps. For `delta-trl inspect`, at the next rollout batch: `0` or
            `False` never, `True` every step. The records are in `output_dir/token_credit`; the trackers in `report_to`
            get a table.
        log_token_credit_completions (`int`, *optional*, defaults to `16`):
            Most completions to record each time. Whole groups, those with winners and losers first; fewer than
            `num_generations` record the best and worst completions of one group. Raise it to read all of a batch, say
            to see whether a reward is cheated.

    Raises:
        ValueError: If an option is unknown or out of range.
    """

    token_credit: str = "delta"
    token_credit_kwargs: Mapping = field(default_factory=dict)
    hidden_state_cache: str = field(default="auto", metadata={"choices": VALUES["hidden_state_cache"]})
    trim_padding: bool = True
    dynamic_sampling: bool = False
    dynamic_sampling_max_rounds: int = 4
    log_token_credit: int = 0
    log_token_credit_completions: int = 16

    def __post_init__(self):
        read_mappings(self, "token_credit_kwargs")
        if isinstance(self.log_token_credit, bool):
            self.log_token_credit = int(self.log_token_credit)  # True is every step
        check_options(self)

    def __getstate__(self) -> dict[str, Any]:
        """What checkpoints hold of the arguments: of options that cannot be pickled, such as functions, their text."""
        options = {name: as_pickled(value) for name, value in self.token_credit_kwargs.items()}
        return {**vars(self), "token_credit_kwargs": options}


def as_pickled(value: Any) -> Any:
    """A value, or its text if it cannot be pickled."""
    try:
        pickle.dumps(value)
    except Exception:  # each kind of object fails in its own way
        return repr(value)
    return value
