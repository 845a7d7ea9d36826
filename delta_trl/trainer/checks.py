"""
Checks of a run before training: model, tokenizer, context, data, rewards, options. The trainer makes them at
construction, and the dry run as far as it has what they need.
"""

import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import psutil
import torch
from accelerate.logging import get_logger
from datasets import Dataset
from torch import nn
from transformers import ProcessorMixin
from transformers.trainer_utils import has_length
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from ..arguments.lookup import nearest
from ..evaluation.generation import ModelSource
from ..policy.checks import check_files, check_prompts, check_tokenizer, check_weights
from ..rewards.reasoning import warn_of_hidden_reasoning
from ..rewards.registry import REWARDS
from .rollouts import refuse_too_few_rows
from .scoring import LOSSES, autocast_dtype, overridden
from .trl_contracts import code_objects


logger = get_logger(__name__)

SAMPLERS = {"_get_train_sampler", "get_train_dataloader"}
# Losses whose gradient goes through the importance ratio: at sequence level, each token has an equal part in it
SPREAD_EVENLY = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo")


def check_arguments(given: dict[str, Any], trainer_class: type[GRPOTrainer]) -> None:
    """
    Raise an error for arguments of a `GRPOTrainer` that would fail later. Called before the model is loaded.

    Args:
        given (`dict`): The arguments by name.
        trainer_class (`type`): A subclass of [`~trl.GRPOTrainer`], which may add columns, or repeat rows.
    """
    args, data, model = (given.get(name) for name in ("args", "train_dataset", "model"))
    refuse_missing_vllm(args)
    rewards = given.get("reward_funcs")
    rewards = rewards if isinstance(rewards, list) else [rewards]
    evaluated = given.get("eval_dataset") if args.eval_strategy != "no" else None
    if given.get("environment_factory"):  # environments make the prompts themselves
        data = evaluated = None
    datasets = {"train_dataset": data, **named(evaluated)}
    makes_ids = given.get("rollout_func") is not None  # and may add columns that rewards need, as a subclass may
    adds_columns = makes_ids or overridden(trainer_class, {"_generate_and_score_completions"})
    check_data(datasets, None if adds_columns else rewards)
    if has_length(given.get("train_dataset")) and not overridden(trainer_class, SAMPLERS):
        refuse_too_few_rows(args, len(given["train_dataset"]))
    options = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}
    name = model if isinstance(model, str) else get_config_model_id(model.config)
    source = ModelSource(name, options.get("revision"), trust_remote_code=options["trust_remote_code"])
    if isinstance(model, str):
        check_files(name)
    config = source.config() if isinstance(model, str) else model.config
    tokenizer = given.get("processing_class") or source.processor()
    readers = [] if given.get("tools") else rewards  # with tools, TRL takes the reasoning out of completions
    for warning in check_model(args, tokenizer, config, name, {} if makes_ids else datasets, readers):
        logger.warning(warning)


def named(evaluated: Any) -> dict[str, Any]:
    """Datasets to evaluate on, one or several by their names, by what messages call them."""
    if not isinstance(evaluated, dict):
        return {"eval_dataset": evaluated}
    return {f"eval_dataset {name!r}": dataset for name, dataset in evaluated.items()}


def check_data(datasets: dict[str, Any], rewards: list | None) -> None:
    """Raise `ValueError` for data that does not fit the rewards. Keys are for messages, and datasets may be `None`."""
    for reward in rewards or ():
        if isinstance(reward, str) and reward in REWARDS:
            raise ValueError(
                f"reward_funcs={reward!r}: a text is the hub id of a reward model. Give the function: "
                f"delta_trl.rewards.get_reward({reward!r})."
            )


def check_model(
    args: GRPOConfig, tokenizer: Any, config: Any, name: str, datasets: dict[str, Any], rewards: list
) -> list[str]:
    """
    Raise `ValueError` for a tokenizer that cannot train, and for prompts that the model cannot read. Returns warnings.
    """
    check_tokenizer(tokenizer, name)
    if not isinstance(tokenizer, ProcessorMixin) and tokenizer.eos_token is None:
        raise ValueError(
            f"The tokenizer of {name!r} has no eos_token, which ends a completion. Set one (tokenizer.eos_token = "
            "'<its text>') and save the tokenizer."
        )
    warnings = []
    for title, data in datasets.items():
        if isinstance(data, Dataset) and data.format["type"] != "custom":
            prompts, template = data.with_format(None)["prompt"], args.chat_template_kwargs
            warnings += check_prompts(prompts, tokenizer, config, args.max_completion_length, title, template)
            if not isinstance(tokenizer, ProcessorMixin):
                warnings += warn_of_hidden_reasoning(rewards, prompts, tokenizer, template)
    return list(dict.fromkeys(warnings))


def check_trainer(trainer: GRPOTrainer, given: dict[str, Any]) -> None:
    """Raise an error, or warn, about what can only be seen with the weights loaded."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.accelerator.is_main_process:  # with FSDP, others may have no weights yet
        check_weights(model, get_config_model_id(model.config))
    if not any(weight.requires_grad for weight in model.parameters()):
        logger.warning("All weights of the model are frozen (requires_grad=False): it can be evaluated, not trained.")
    if given.get("peft_config"):  # an adapter that the model came with may have been made for several models
        refuse_missing_targets(model)
    args = trainer.args
    for warning in (*warn_of_missing_processes(args.world_size), *warn_of_sampling(trainer), *warn_of_cap(args)):
        logger.warning(warning)


def why_credit_is_ignored(args: GRPOConfig, trainer_class: type[GRPOTrainer]) -> str | None:
    """
    The error message for a loss that gives all tokens of a response the same gradient, or takes the place of
    `GRPOTrainer`'s; `None` for other losses.
    """
    for method in overridden(trainer_class, LOSSES):
        # a call of the base class's names it; of a `partialmethod`, say, it cannot be told
        if inspect.isfunction(method) and not any(LOSSES.intersection(code.co_names) for code in code_objects(method)):
            return (
                f"{method.__qualname__} replaces the loss of GRPOTrainer, which token credit works on. Change the "
                f"loss by calling super().{method.__name__}, or use token_credit='none'."
            )
    if args.importance_sampling_level != "sequence" or args.loss_type not in SPREAD_EVENLY:
        return None
    return (
        f"importance_sampling_level='sequence' (GSPO) with loss_type={args.loss_type!r} spreads the gradient evenly "
        "over the tokens of a response: of their credit, only the mean would count. Use "
        "importance_sampling_level='token', loss_type 'cispo' (its epsilon_high is 5.0) or 'vespo', or "
        "token_credit='none'."
    )


def refuse_what_hides_states(args: GRPOConfig, is_fsdp_enabled: bool) -> None:
    """Raise `ValueError` where a hook on the backbone would miss forward passes."""
    if is_fsdp_enabled and args.torch_compile:
        raise ValueError(
            "Token credit that reads hidden states does not work with FSDP and torch_compile together: the compiled "
            "modules show their hidden states once, then never again. Turn torch_compile off."
        )


def refuse_missing_targets(model: nn.Module) -> None:
    """Raise `ValueError` if LoRA is asked for modules that the model lacks: PEFT ignores these silently."""
    for config in getattr(model, "peft_config", {}).values():
        for option in ("target_modules", "modules_to_save"):
            wanted = getattr(config, option, None) or ()
            names = [f".{name}" for name, _ in model.named_modules()]
            for target in () if isinstance(wanted, str) else sorted(wanted):
                if not any(name.endswith(f".{target}") for name in names):
                    hint = nearest(target, {name.rsplit(".", 1)[1] for name in names})
                    raise ValueError(f"lora_{option}: the model has no module {target!r}{hint}.")


def refuse_missing_vllm(args: GRPOConfig) -> None:
    """Raise `ImportError` if `use_vllm` is set and vLLM is not installed."""
    if args.use_vllm and find_spec("vllm") is None:
        raise ImportError("use_vllm needs vLLM: pip install 'trl[vllm]'.")


def warn_of_missing_processes(world_size: int) -> Iterator[str]:
    """A warning if `accelerate launch` was asked for several processes and has silently started one."""
    try:
        command = psutil.Process().parent().cmdline()
    except (psutil.Error, AttributeError):
        return
    asked = re.search(r"accelerate.*launch .*--num[_-]processes[ =](\d+)", " ".join(command))
    if world_size == 1 and asked and int(asked[1]) > 1:
        yield (
            f"accelerate launch was asked for {asked[1]} processes and started one. On CPUs it needs a config with "
            "`distributed_type: MULTI_GPU` and `use_cpu: true` (accelerate_configs/cpu_ddp.yaml); on GPUs, "
            "--multi_gpu or a config, and as many GPUs as processes."
        )


# Options of generation that change the distribution of tokens, with the values that do not
RESHAPING: dict[str, tuple] = {
    "do_sample": (True,), "num_beams": (1,), "top_p": (1,), "top_k": (0, -1), "min_p": (0,), "typical_p": (1,),
    "epsilon_cutoff": (0,), "eta_cutoff": (0,), "repetition_penalty": (1,), "frequency_penalty": (0,),
    "presence_penalty": (0,), "no_repeat_ngram_size": (0,), "guidance_scale": (1,), "bad_words_ids": (),
    "suppress_tokens": (), "sequence_bias": (), "logit_bias": (), "exponential_decay_length_penalty": (),
}  # fmt: skip


def warn_of_sampling(trainer: GRPOTrainer) -> Iterator[str]:
    """A warning for each way in which completions are sampled from another distribution than the trained one."""
    args = trainer.args
    temperature = (args.generation_kwargs or {}).get("temperature", args.temperature)
    if temperature != args.temperature:
        yield (
            f"generation_kwargs samples at temperature {temperature:g}, but log-probabilities are computed at "
            f"temperature={args.temperature:g}: set `temperature` alone."
        )
    others = {
        name: value
        for name, value in (args.generation_kwargs or {}).items()
        if name in RESHAPING and value not in (None, *RESHAPING[name])
    }
    if others:
        written = ", ".join(f"{name}={value!r}" for name, value in others.items())
        yield (
            f"generation_kwargs samples with {written}, but log-probabilities are computed without: the policy is "
            "trained on tokens of another distribution than its own."
        )
    engine, policy = _dtype_of_vllm(trainer), autocast_dtype(trainer) or trainer.model.dtype
    if engine is not None and torch.finfo(engine).eps > torch.finfo(policy).eps:
        names = [str(dtype).removeprefix("torch.") for dtype in (engine, policy)]
        server = f"start the server with `--dtype {names[1]}`, or " if args.vllm_mode == "server" else ""
        yield (
            f"vLLM samples in {names[0]}, the policy trains in {names[1]}: their log-probabilities differ (of the "
            f"quickstart's model by up to 0.16). To make them agree, {server}train as vLLM samples, with "
            "`bf16: true`; vllm_importance_sampling_correction (on by default) corrects for the rest."
        )


def warn_of_cap(args: GRPOConfig) -> Iterator[str]:
    """A warning if CISPO caps ratios with the epsilon of other losses, which stands for the distance from 1."""
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if args.loss_type == "cispo" and high < 1:
        yield (
            f"loss_type='cispo' caps the ratios of all tokens at epsilon_high={high:g}, and they are 1 where the "
            "policy has not moved. TRL recommends epsilon_high=5.0 for it."
        )


def _dtype_of_vllm(trainer: GRPOTrainer) -> torch.dtype | None:
    """The dtype vLLM computes in; `None` if unknown. In server mode, only the main process can ask."""
    if not trainer.use_vllm:
        return None
    generation = trainer.vllm_generation
    if generation.mode == "colocate":
        return generation.llm.llm_engine.model_config.dtype
    if not trainer.accelerator.is_main_process:
        return None
    name = generation.vllm_client.get_server_info()["model_config"]["dtype"]
    return getattr(torch, name.removeprefix("torch."), None)
