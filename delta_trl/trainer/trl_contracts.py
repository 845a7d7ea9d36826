"""
What the trainer relies on in TRL beyond its documented interface. `delta_trl.trainer` checks it before its other
imports: a TRL that has changed any of it is refused with one error that names every change.

The check reads names, signatures and constants, and runs nothing. What it cannot see, tests/test_trl_contracts.py
tests.
"""

import dataclasses
import dis
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise, takewhile
from types import CodeType
from typing import get_args


OLDEST = "1.16"  # of pyproject.toml
TESTED = {"trl": "1.16", "transformers": "5.23"}  # the newest ones: those of constraints.txt

# What any module of this package imports from TRL; of functions, the parameters. `*args` stands for any more of them,
# `**options` for any that have defaults; those after a `*` are given by keyword.
IMPORTED = {
    **dict.fromkeys(("trl.GRPOConfig", "trl.GRPOTrainer", "trl.ModelConfig", "trl.TrlParser", "trl.trainer.utils")),
    "trl.trainer.utils.RepeatSampler": None,
    "trl.get_peft_config": "model_args, **options",
    "trl.get_quantization_config": "model_args, **options",
    "trl.extras.profiling.profiling_context": "trainer, name, **options",
    "trl.models.utils.disable_gradient_checkpointing": "model, gradient_checkpointing_kwargs, **options",
    "trl.trainer.utils.get_config_model_id": "config, **options",
    "trl.trainer.utils.is_async_callable": "func, **options",
}
# Methods of `GRPOTrainer`, its own or inherited, that ours override or call. An override with `*args` or `**options`
# passes more parameters on; any other would drop them.
SCORING = "_get_per_token_logps_and_entropies"
METHODS = {
    "__init__": "self, model, reward_funcs, args, *args, train_dataset, eval_dataset, peft_config, **options",
    "_generate_and_score_completions": "self, inputs",
    SCORING: "self, model, input_ids, attention_mask, logits_to_keep, batch_size, *, compute_entropy, **options",
    "_compute_loss": "self, model, inputs",
    "_prepare_inputs": "self, generation_batch",
    "_calculate_rewards": "self, inputs, prompts, completions, completion_ids_list, **options",
    "_generate": "self, prompts, **options",
    "_get_train_sampler": "self, dataset",
    "get_train_dataloader": "self",
    "create_model_card": "self, model_name, dataset_name, tags",
    "create_accelerator_and_postprocess": "self",
    "evaluation_loop": "self, dataloader, *args, metric_key_prefix, **options",
    "train": "self, resume_from_checkpoint, *args, **options",
    "save_model": "self, output_dir, _internal_call",
    "_run_epoch": "self, *args, epoch, train_dataloader, epochs_trained, **options",
    "_save_checkpoint": "self, model, trial",
    "_save_rng_state": "self, output_dir",
    "_load_optimizer_and_scheduler": "self, checkpoint",
    "_get_output_dir": "self, trial, **options",
}
# Entries of a rollout batch, which one method writes and the other reads
BETWEEN = ("_generate_and_score_completions", "_compute_loss")
ENTRIES = """
    prompt_ids prompt_mask completion_ids completion_mask tool_mask advantages old_per_token_logps
""".split()
# Metrics and columns of `_metrics` and `_logs`, wherever TRL writes them
LOGGED = """
    reward entropy completions/mean_length completions/clipped_ratio prompt completion rewards advantages extra
""".split()
# What the constructor sets
ATTRIBUTES = """
    environment_factories num_iterations _pending_extra_logs rollout_func tools
    aux_loss_enabled _buffered_inputs entropy_coef _entropy_bonus_enabled eos_token_ids _is_vlm _last_world_entropy
    loss_type _logs _metrics temperature top_entropy_quantile
    multi_objective_aggregation num_completions_to_print num_generations num_generations_eval reward_func_names
    reward_funcs reward_weights _step _tokenizer use_adaptive_entropy use_vllm vllm_generation
""".split()
# Of `GRPOConfig`
OPTIONS = """
    beta chat_template_kwargs delta entropy_coef epsilon epsilon_high generation_batch_size generation_kwargs
    importance_sampling_level learning_rate loss_type max_completion_length min_p model_init_kwargs
    multi_objective_aggregation num_completions_to_print num_generations num_generations_eval num_iterations
    pad_to_multiple_of ref_model_mixup_alpha ref_model_sync_steps repetition_penalty reward_weights
    sapo_temperature_neg sapo_temperature_pos scale_rewards steps_per_generation sync_ref_model temperature
    top_entropy_quantile top_k top_p trust_remote_code use_adaptive_entropy use_vllm vllm_gpu_memory_utilization
    vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_max_model_length vllm_mode
    vllm_tensor_parallel_size
""".split()


def check() -> None:
    """Raise `ImportError` if the installed TRL is too old, or has changed what this package relies on."""
    if broken := list(broken_contracts()):
        raise ImportError(
            f"delta_trl does not work with TRL {version('trl')} and transformers {version('transformers')}:\n"
            + "".join(f"- {line}\n" for line in broken)
            + f"The newest known to work are TRL {TESTED['trl']} and transformers {TESTED['transformers']}: "
            + "pip install "
            + " ".join(f'"{package}=={known}.*"' for package, known in TESTED.items()),
            name="trl",
        )


def broken_contracts() -> Iterator[str]:
    """A line for everything in the lists above that the installed TRL does not have."""
    if _release(version("trl")) < _release(OLDEST):
        yield f"TRL is older than {OLDEST}"
    found = {}
    for place, parameters in IMPORTED.items():
        module, _, name = place.rpartition(".")
        try:
            found[name] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            yield f"{place} cannot be imported ({error})"
        else:
            yield from _changed(place, found[name], parameters) if parameters else ()
    if "GRPOTrainer" in found:
        yield from _changes_of_trainer(found["GRPOTrainer"])
    if "GRPOConfig" in found:
        fields = {field.name for field in dataclasses.fields(found["GRPOConfig"])}
        yield from (f"GRPOConfig has no option {name}" for name in OPTIONS if name not in fields)


def _release(number: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", number)[:2]))


def _changes_of_trainer(trainer: type) -> Iterator[str]:
    for name, parameters in METHODS.items():
        method = getattr(trainer, name, None)
        if method is None:
            yield f"GRPOTrainer.{name} is gone"
            continue
        yield from _changed(f"GRPOTrainer.{name}", method, parameters)
        entries = set(ENTRIES) - _strings(method) if name in BETWEEN else ()
        yield from (f"GRPOTrainer.{name} has no batch entry {entry!r}" for entry in sorted(entries))
        outputs = len(get_args(inspect.signature(method).return_annotation))
        if name == SCORING and outputs not in (0, 3):  # 0 where it is not annotated
            yield f"GRPOTrainer.{name} returns {outputs} values, expected log-probabilities, entropies, auxiliary loss"
    members = [vars(cls) for cls in trainer.__mro__ if cls.__module__.partition(".")[0] == "trl"]
    functions = [value for values in members for value in values.values() if inspect.isfunction(value)]
    codes = [code for function in functions for code in code_objects(function)]
    yield from (f"GRPOTrainer logs no {x!r}" for x in LOGGED if not any(x in code.co_consts for code in codes))
    made = [code for function in functions if function.__name__ == "__init__" for code in code_objects(function)]
    stored = {step.argval for code in made for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}
    yield from (f"GRPOTrainer has no attribute {name}" for name in ATTRIBUTES if name not in stored)


def _changed(name: str, function: Callable, expected: str) -> Iterator[str]:
    """A line if a function's parameters are not the expected ones."""
    wanted = expected.split(", ")
    names = list(takewhile(lambda parameter: not parameter.startswith("*"), wanted))
    keywords = {parameter for parameter in wanted[len(names) :] if not parameter.startswith("*")}
    parameters = list(inspect.signature(function).parameters.values())
    first, others = parameters[: len(names)], parameters[len(names) :]
    fits = [parameter.name for parameter in first if parameter.kind is parameter.POSITIONAL_OR_KEYWORD] == names
    fits &= keywords <= {parameter.name for parameter in others}
    if "*args" not in wanted:
        fits &= not others or "**options" in wanted
        fits &= all(parameter.default is not parameter.empty for parameter in others)
    if not fits:
        bare = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
        yield f"{name} takes {inspect.Signature(bare)}, expected ({expected})"


def code_objects(function: Callable) -> Iterator[CodeType]:
    """The code of a function and of those defined in it, without decorators."""
    codes = [inspect.unwrap(function).__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield code


def _strings(function: Callable) -> set[str]:
    """The string constants of a function, without the names of keyword arguments, which its code holds as well."""
    strings = set()
    for code in code_objects(function):
        strings |= {constant for constant in code.co_consts if isinstance(constant, str)}
        for step, following in pairwise(dis.get_instructions(code)):
            if following.opname == "BUILD_CONST_KEY_MAP":  # a dict, up to Python 3.13
                strings |= {key for key in step.argval if isinstance(key, str)}
    return strings
