"""Which values options may have: one table for all commands, and its check, which rules of token credit share."""

from typing import Any


Allowed = str | tuple  # an interval of numbers, "(0, 1]", after "whole" of whole ones; or choices
COUNT = "whole [1, inf)"
SHARE = "[0, 1]"
NOT_NEGATIVE = "[0, inf)"
POSITIVE = "(0, inf)"
# By the option's name; most are TRL's, which would go on with any number, or fail in its own code
VALUES: dict[str, Allowed] = {
    # batches and lengths
    "per_device_train_batch_size": COUNT,
    "per_device_eval_batch_size": COUNT,
    "gradient_accumulation_steps": COUNT,
    "steps_per_generation": COUNT,
    "generation_batch_size": COUNT,
    "num_generations": COUNT,
    "num_generations_eval": COUNT,
    "num_iterations": COUNT,
    "max_completion_length": COUNT,
    "max_prompt_length": COUNT,
    "batch_size": COUNT,
    "num_problems": COUNT,
    "num_prompts": COUNT,
    "prompts_per_batch": COUNT,
    "seeds": COUNT,
    # optimisation
    "learning_rate": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "adam_beta1": "[0, 1)",
    "adam_beta2": "[0, 1)",
    "adam_epsilon": NOT_NEGATIVE,
    "max_grad_norm": NOT_NEGATIVE,
    "warmup_steps": NOT_NEGATIVE,
    "num_train_epochs": NOT_NEGATIVE,
    "lora_r": COUNT,
    "lora_alpha": "whole (0, inf)",
    "lora_dropout": "[0, 1)",
    # the loss
    "beta": NOT_NEGATIVE,
    "epsilon": SHARE,
    "epsilon_high": NOT_NEGATIVE,
    "delta": POSITIVE,
    "top_entropy_quantile": SHARE,
    # sampling
    "temperature": POSITIVE,
    "top_p": "(0, 1]",
    "top_k": "whole [-1, inf)",
    "min_p": SHARE,
    "repetition_penalty": POSITIVE,
    "vllm_mode": ("server", "colocate"),
    "vllm_gpu_memory_utilization": "(0, 1]",
    "vllm_max_model_length": COUNT,
    "vllm_tensor_parallel_size": COUNT,
    "seed": "whole [0, inf)",
    # when something is done
    "logging_steps": POSITIVE,
    "eval_steps": POSITIVE,
    "save_steps": POSITIVE,
    "save_total_limit": COUNT,
    "num_completions_to_print": "whole [0, inf)",
    # of this package
    "hidden_state_cache": ("auto", "device", "cpu"),
    "dynamic_sampling_max_rounds": COUNT,
    "log_token_credit": "whole [0, inf)",
    "log_token_credit_completions": COUNT,
}

OFF = (None, False, 0, "no")
# Options that do nothing while another one is off, with that one
NEEDS = {
    "eval_steps": "eval_strategy",
    "num_generations_eval": "eval_strategy",
    "eval_dataset_name": "eval_strategy",
    "eval_dataset_config": "eval_dataset_name",
    "eval_dataset_format": "eval_dataset_name",
    "eval_column_mapping": "eval_dataset_name",
    "dynamic_sampling_max_rounds": "dynamic_sampling",
    "log_token_credit_completions": "log_token_credit",
    "lora_r": "use_peft",
    "lora_alpha": "use_peft",
    "lora_dropout": "use_peft",
    "lora_target_modules": "use_peft",
    "lora_modules_to_save": "use_peft",
    "vllm_mode": "use_vllm",
    "vllm_gpu_memory_utilization": "use_vllm",
    "vllm_max_model_length": "use_vllm",
    "vllm_kwargs": "use_vllm",
}


def without_effect(*parts: Any) -> list[str]:
    """What is set of `NEEDS` in some dataclasses, and has no effect, because what it needs is off in all of them."""
    values: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    for part in parts:
        values |= vars(part)
        for name, value in vars(part).items():
            if value not in (None, {}, getattr(type(part), name, None)):  # which has the default
                changed[name] = value
    return [
        f"{name}={changed[name]!r} has no effect without {needed}."
        for name, needed in NEEDS.items()
        if name in changed and values.get(needed, True) in OFF
    ]


def check_options(options: Any) -> None:
    """
    Check all options of an object, but those that are `None`, against `VALUES`, and against its own `allowed` where
    an option means something else there. Raises `ValueError` like [`check_values`].
    """
    allowed = {**VALUES, **getattr(options, "allowed", {})}
    checked = {name: expected for name, expected in allowed.items() if getattr(options, name, None) is not None}
    check_values(options, **checked)


def check_values(options: Any, **allowed: Allowed) -> None:
    """Raise `ValueError` for an attribute of an object that is not among its choices, or not in its interval."""
    for name, expected in allowed.items():
        value = getattr(options, name)
        if isinstance(expected, tuple):
            is_allowed = value in expected
            words = f"one of {', '.join(map(repr, expected))}"
        else:
            is_allowed = is_number(value, expected)
            words = in_words(expected)
        if not is_allowed:
            raise ValueError(f"{name}={value!r}: expected {words}.")


def is_number(value: Any, interval: str) -> bool:
    """Whether a value is a number in an interval, such as `"(0, 1]"` or `"whole [1, inf)"`."""
    kinds = (int,) if interval.startswith("whole") else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool):
        return False
    low, high = ends_of(interval)
    above = value > low if "(" in interval else value >= low
    below = value < high if ")" in interval else value <= high
    return above and below


def ends_of(interval: str) -> tuple[float, float]:
    low, high = interval.removeprefix("whole ")[1:-1].split(",")
    return float(low), float(high)


def in_words(interval: str) -> str:
    kind = "a whole number" if interval.startswith("whole") else "a number"
    low, high = ends_of(interval)
    if high == float("inf"):
        return f"{kind} {'>' if '(' in interval else '>='} {low:g}"
    return f"{kind} in {interval.removeprefix('whole ')}"
