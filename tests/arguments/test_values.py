"""Which values options may have, and which options do nothing without another one."""

import math
from types import SimpleNamespace

import pytest
from trl import ModelConfig

from delta_trl.arguments.values import check_options, without_effect


COUNTS = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
    *("steps_per_generation", "generation_batch_size", "num_generations", "num_generations_eval", "num_iterations"),
    *("max_completion_length", "max_prompt_length", "batch_size", "num_problems", "num_prompts", "seeds", "lora_r"),
    *("vllm_max_model_length", "vllm_tensor_parallel_size", "save_total_limit", "lora_alpha"),
    *("dynamic_sampling_max_rounds", "log_token_credit_completions", "prompts_per_batch"),
)
NOT_NEGATIVE = (
    *("learning_rate", "weight_decay", "adam_epsilon", "max_grad_norm", "warmup_steps", "num_train_epochs"),
    *("beta", "epsilon_high"),
)
POSITIVE = ("delta", "temperature", "repetition_penalty", "logging_steps", "eval_steps", "save_steps")
# Options, what they may be, and what not
RANGES = [
    (COUNTS, [1, 7], [0, -1, 1.0, 1.5, True, "1"]),
    (("seed", "num_completions_to_print", "log_token_credit"), [0, 1], [-1, 0.5, False]),
    (("top_k",), [-1, 0, 50], [-2, 0.5]),
    (NOT_NEGATIVE, [0, 0.5, 3], [-1e-9, math.inf, math.nan, True]),
    (POSITIVE, [1e-9, 1, 3], [0, -1, math.inf]),
    (("adam_beta1", "adam_beta2", "lora_dropout"), [0, 0.99], [1, -0.1]),
    (("epsilon", "top_entropy_quantile", "min_p"), [0, 1], [1.01, -0.1]),
    (("top_p", "vllm_gpu_memory_utilization"), [0.01, 1], [0, 1.01]),
    (("vllm_mode",), ["server", "colocate"], ["serve", ""]),
    (("hidden_state_cache",), ["auto", "device", "cpu"], ["gpu", True]),
]


@pytest.mark.parametrize(("names", "allowed", "refused"), RANGES, ids=[names[0] for names, *_ in RANGES])
def test_values_are_taken_up_to_the_ends_of_their_ranges(names, allowed, refused):
    for name in names:
        for value in (None, *allowed):
            check_options(SimpleNamespace(**{name: value}))
        for value in refused:
            with pytest.raises(ValueError, match=f"^{name}={value!r}: expected "):
                check_options(SimpleNamespace(**{name: value}))


NEEDED = {
    ("eval_strategy", "no", "steps"): ("eval_steps", "num_generations_eval", "eval_dataset_name"),
    ("eval_dataset_name", None, "data"): ("eval_dataset_config", "eval_dataset_format", "eval_column_mapping"),
    ("dynamic_sampling", False, True): ("dynamic_sampling_max_rounds",),
    ("log_token_credit", 0, 1): ("log_token_credit_completions",),
    ("use_peft", False, True): (
        *("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save"),
    ),
    ("use_vllm", False, True): (
        *("vllm_mode", "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_kwargs"),
    ),
}


@pytest.mark.parametrize(("needed", "names"), NEEDED.items(), ids=[name for name, *_ in NEEDED])
def test_options_that_need_another_one(needed, names):
    """Which may be an option of another part of a recipe; where no part has it, nobody knows."""
    option, off, on = needed
    for name in names:
        part = SimpleNamespace(**{name: "mine"})
        assert without_effect(part, SimpleNamespace(**{option: off})) == [
            f"{name}='mine' has no effect without {option}."
        ]
        assert not without_effect(part, SimpleNamespace(**{option: on}))
        assert not without_effect(part)


def test_a_default_is_no_option_that_is_set():
    assert not without_effect(ModelConfig(lora_r=ModelConfig.lora_r, lora_target_modules=None))
    assert without_effect(ModelConfig(lora_r=8)) == ["lora_r=8 has no effect without use_peft."]
