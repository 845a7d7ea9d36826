"""Configuration of [`DeltaGRPOTrainer`]: TRL's `GRPOConfig` plus what belongs to token credit."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformers import GenerationConfig
from trl import GRPOConfig

from ..arguments.lookup import check_known
from ..arguments.parser import documented, read_mappings
from ..credit import TokenCredit, make_rule


# of TRL 1.16
CHOICES = {
    "loss_type": ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "luspo", "sapo", "vespo"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}
CACHES = ("auto", "device", "cpu")

# Valid values. With others, TRL and transformers would fail in the middle of the first step, or not at all.
NOT_NEGATIVE = (lambda value: value >= 0), "0 or more"
POSITIVE = (lambda value: value > 0), "a number above 0"
SHARE = (lambda value: 0 <= value <= 1), "a number from 0 to 1"
POSITIVE_SHARE = (lambda value: 0 < value <= 1), "a number above 0, at most 1"
VALID: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("learning_rate", "weight_decay", "max_grad_norm", "beta", "epsilon_high"), NOT_NEGATIVE),
    **dict.fromkeys(("temperature", "repetition_penalty", "delta", "num_train_epochs", "num_iterations"), POSITIVE),
    **dict.fromkeys(("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"), POSITIVE),
    **dict.fromkeys(("sapo_temperature_neg", "sapo_temperature_pos", "ref_model_sync_steps"), POSITIVE),
    **dict.fromkeys(("epsilon", "min_p", "top_entropy_quantile", "ref_model_mixup_alpha"), SHARE),
    **dict.fromkeys(("top_p", "vllm_gpu_memory_utilization"), POSITIVE_SHARE),
    **dict.fromkeys(("adam_beta1", "adam_beta2"), ((lambda value: 0 <= value < 1), "0 or more, below 1")),
    "top_k": ((lambda value: value >= -1), "a number of tokens, or 0 (with vLLM also -1) for all"),
    "max_completion_length": ((lambda value: value > 0), "a number of tokens above 0"),
    # with 0, transformers takes one step
    "max_steps": ((lambda value: value != 0), "a number of optimiser steps above 0, or -1 for epochs"),
    "reward_weights": ((lambda values: all(map(math.isfinite, values))), "finite numbers"),
    **{name: ((lambda value, known=known: value in known), f"one of {', '.join(map(str, known))}")
       for name, known in CHOICES.items()},
}  # fmt: skip


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
            Where hidden states are kept. They wait for the coefficients in `"device"` memory or in `"cpu"` memory
            (pinned). `"auto"` takes device memory if a tenth of it stays free, else main memory. Change it if memory
            runs out.
        trim_padding (`bool`, *optional*, defaults to `True`):
            Run micro-batches without common padding. Each is only as wide as its own rows, and rows of similar length
            are put together within an optimiser step, unless the loss or the rule depends on which rows share a
            micro-batch. Losses are the same up to rounding. Where lengths differ, this takes a fraction of the time.
            Turn it off to compare bit for bit with `GRPOTrainer`. Text-only models.
        dynamic_sampling (`bool`, *optional*, defaults to `False`):
            Replace groups of equal rewards, as in DAPO. Nothing is learned from them; groups of further prompts take
            their place. It costs generation: turn it on if many groups are all right or all wrong. See
            [`~trainer.dynamic_sampling.DynamicSampling`].
        dynamic_sampling_max_rounds (`int`, *optional*, defaults to `4`):
            Most further rounds of generation for that. What is then missing of a rollout batch is filled with the
            groups there are.
        log_token_credit (`int`, *optional*, defaults to `0`):
            Record token credit every n optimiser steps. For `delta-trl inspect`, at the next rollout batch: `0` or
            `False` never, `True` every step. The records are in `output_dir/token_credit`; the trackers in `report_to`
            get a table.
        log_token_credit_completions (`int`, *optional*, defaults to `16`):
            Most completions to record each time. Whole groups, those with winners and losers first; fewer than
            `num_generations` record the best and worst completions of one group.
        log_token_credit_max_mb (`float`, *optional*, defaults to `200`):
            Room for recorded completions, in MB. Later ones that do not fit are left out.

    Raises:
        ValueError: If an option is unknown or out of range.
    """

    token_credit: str = "delta"
    token_credit_kwargs: dict[str, Any] | str | None = None
    hidden_state_cache: str = field(default="auto", metadata={"choices": CACHES})
    trim_padding: bool = True
    dynamic_sampling: bool = False
    dynamic_sampling_max_rounds: int = 4
    log_token_credit: int = 0
    log_token_credit_completions: int = 16
    log_token_credit_max_mb: float = 200

    def __post_init__(self):
        read_mappings(self, "token_credit_kwargs")
        if self.hidden_state_cache not in CACHES:
            raise ValueError(
                f"hidden_state_cache={self.hidden_state_cache!r}: expected one of {', '.join(map(repr, CACHES))}."
            )
        if type(self.dynamic_sampling_max_rounds) is not int or self.dynamic_sampling_max_rounds < 1:
            raise ValueError(
                f"dynamic_sampling_max_rounds={self.dynamic_sampling_max_rounds!r}: expected an integer >= 1."
            )
        if not isinstance(self.log_token_credit, int) or self.log_token_credit < 0:
            raise ValueError(f"log_token_credit={self.log_token_credit!r}: expected a number of steps >= 0.")
        self.log_token_credit = int(self.log_token_credit)  # True is every step
        if not isinstance(self.log_token_credit_completions, int) or self.log_token_credit_completions < 1:
            raise ValueError(
                f"log_token_credit_completions={self.log_token_credit_completions!r}: expected an integer >= 1."
            )
        if not self.log_token_credit_max_mb > 0:
            raise ValueError(f"log_token_credit_max_mb={self.log_token_credit_max_mb!r}: expected a number > 0.")
        self.make_rule()  # raises if there is no such rule

    def make_rule(self) -> TokenCredit:
        """The rule that `token_credit` and `token_credit_kwargs` name."""
        return make_rule(self.token_credit, self.token_credit_kwargs)


@documented
@dataclass
class DeltaGRPOConfig(CreditArguments, GRPOConfig):
    """
    [`~trl.GRPOConfig`] plus the options of [`CreditArguments`].

    Args:
        epsilon_high (`float`, *optional*, defaults to `0.28`):
            Upper clip bound, ε_high. Of the probability ratio, 1 plus this: 0.28 is DAPO's and the paper's; TRL's
            default is `epsilon`.
    """

    epsilon_high: float | None = 0.28

    def __post_init__(self):
        CreditArguments.__post_init__(self)
        if isinstance(self.reward_weights, (int, float)):
            self.reward_weights = [self.reward_weights]
        for name in self._VALID_DICT_FIELDS:
            if str(getattr(self, name)).startswith("{") and not _is_json(getattr(self, name)):
                read_mappings(self, name)  # YAML, which needs no quotes on the command line; JSON is TRL's to read
        if str(self.scale_rewards).lower() in ("true", "false"):  # from the command line
            self.scale_rewards = str(self.scale_rewards).lower() == "true"
        _check_values({name: getattr(self, name) for name in VALID})
        if self.top_k is not None and self.top_k < 0 and not self.use_vllm:
            raise ValueError(f"top_k={self.top_k}: expected 0 for all tokens; -1 is vLLM's.")
        # TRL sets `gradient_checkpointing`; newer transformers call it `activation_checkpointing` and would warn
        for old in ("gradient_checkpointing", "gradient_checkpointing_kwargs"):
            new = old.replace("gradient", "activation")
            if hasattr(self, new) and getattr(self, new) is None:
                setattr(self, new, getattr(self, old))
        GRPOConfig.__post_init__(self)
        if self.generation_kwargs:  # TRL has parsed it if it was a string
            _check_values(self.generation_kwargs)
            if not self.use_vllm:  # vLLM refuses unknown options itself
                check_known("generation_kwargs", self.generation_kwargs, vars(GenerationConfig()))


def _is_json(value: Any) -> bool:
    try:
        return isinstance(value, dict) or isinstance(json.loads(value), dict)
    except ValueError:
        return False


def _check_values(values: dict[str, Any]) -> None:
    for name, (is_valid, expected) in VALID.items():
        value = values.get(name)
        if value is not None and not is_valid(value):
            raise ValueError(f"{name}={value!r}: expected {expected}.")
