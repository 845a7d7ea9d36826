"""Checks of arguments, data, model and vLLM at construction: errors and warnings."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import psutil
import torch
from accelerate.logging import get_logger
from torch import nn
from transformers.trainer_utils import has_length
from trl import GRPOConfig, GRPOTrainer

from ..arguments.lookup import nearest
from ..data.columns import check_datasets, refuse_chats_without_template
from .rollouts import refuse_too_few_rows
from .scoring import autocast_dtype


logger = get_logger(__name__)

# Losses whose gradient goes through the importance ratio: at sequence level, each token has an equal part in it
SPREAD_EVENLY = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo")


def check_arguments(given: dict[str, Any]) -> None:
    """
    Raise an error for arguments of a `GRPOTrainer` that would fail later. Called before the model is loaded.

    Args:
        given (`dict`): The arguments by name.
    """
    args, data, rewards = (given.get(name) for name in ("args", "train_dataset", "reward_funcs"))
    refuse_missing_vllm(args)
    if not given.get("environment_factory"):  # environments make the prompts themselves
        rewards = rewards if isinstance(rewards, list) else [rewards]
        evaluated = given.get("eval_dataset") if args.eval_strategy != "no" else None
        # `rollout_func` may add columns that rewards need
        check_datasets(data, evaluated, None if given.get("rollout_func") else rewards)
    if has_length(data):
        refuse_too_few_rows(args, len(data))


def check_trainer(trainer: GRPOTrainer, given: dict[str, Any]) -> None:
    """Raise an error, or warn, about what can only be seen with the model and tokenizer loaded."""
    if not given.get("rollout_func") and not given.get("environment_factory"):
        refuse_chats_without_template(trainer.train_dataset, trainer.processing_class)
    if given.get("peft_config"):  # an adapter that the model came with may have been made for several models
        refuse_missing_targets(trainer.accelerator.unwrap_model(trainer.model))
    for warning in (*warn_of_missing_processes(trainer.args.world_size), *warn_of_sampling(trainer)):
        logger.warning(warning)


def why_credit_is_ignored(args: GRPOConfig) -> str | None:
    """The error message for a loss that gives all tokens of a response the same gradient; `None` for other losses."""
    if args.importance_sampling_level != "sequence" or args.loss_type not in SPREAD_EVENLY:
        return None
    return (
        f"importance_sampling_level='sequence' (GSPO) with loss_type={args.loss_type!r} spreads the gradient evenly "
        "over the tokens of a response: of their credit, only the mean would count. Use "
        "importance_sampling_level='token', loss_type 'cispo' or 'vespo', or token_credit='none'."
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


def warn_of_sampling(trainer: GRPOTrainer) -> Iterator[str]:
    """A warning for each way in which completions are sampled from another distribution than the trained one."""
    args = trainer.args
    temperature = (args.generation_kwargs or {}).get("temperature", args.temperature)
    if temperature != args.temperature:
        yield (
            f"generation_kwargs samples at temperature {temperature:g}, but log-probabilities are computed at "
            f"temperature={args.temperature:g}: set `temperature` alone."
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
