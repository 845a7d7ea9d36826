"""What token credit and trimming can live with in TRL's arguments, models, engines and accelerate's plugins."""

import dataclasses
import re
from collections.abc import Iterator
from importlib.util import find_spec

import psutil
import torch
from accelerate import Accelerator
from torch import nn
from trl import GRPOConfig, GRPOTrainer

from ..arguments.lookup import nearest


# Losses whose sequence-level importance ratio carries the whole gradient: each token has an equal part in it
SPREAD_EVENLY = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo")


def why_credit_is_ignored(args: GRPOConfig) -> str | None:
    """What to say of a loss that gives all tokens of a response the same gradient, whatever their credit."""
    if args.importance_sampling_level != "sequence" or args.loss_type not in SPREAD_EVENLY:
        return None
    return (
        f"importance_sampling_level='sequence' (GSPO) with loss_type={args.loss_type!r} spreads the gradient evenly "
        "over the tokens of a response: of their credit, only the mean would count. Use "
        "importance_sampling_level='token', loss_type 'cispo' or 'vespo', or token_credit='none'."
    )


def refuse_what_hides_states(args: GRPOConfig, is_fsdp_enabled: bool) -> None:
    """Raise `ValueError` where a hook on the backbone does not see every forward."""
    if is_fsdp_enabled and args.torch_compile:
        raise ValueError(
            "Token credit that reads hidden states does not work with FSDP and torch_compile together: the compiled "
            "modules show their hidden states once, then never again. Turn torch_compile off."
        )


def splits_do_not_matter(args: GRPOConfig) -> bool:
    """Whether rows may be exchanged between the micro-batches of an optimiser step: nothing is a mean over one."""
    steps, accumulated = args.steps_per_generation, args.gradient_accumulation_steps
    whole_steps = steps % accumulated == 0 or accumulated % steps == 0
    means = args.loss_type == "bnpo" or args.top_entropy_quantile < 1 or args.entropy_coef or args.use_adaptive_entropy
    return accumulated > 1 and whole_steps and not means


def keep_log_probs_precise(accelerator: Accelerator) -> None:
    """
    FSDP2's mixed precision casts what the model returns, and with it log-probabilities, of which bfloat16 keeps two or
    three digits: ratios and clipping would be made of rounding. Takes that cast off; what the model computes stays.
    """
    if not accelerator.is_fsdp2:
        return
    plugin = accelerator.state.fsdp_plugin
    if plugin.mixed_precision_policy is not None:
        plugin.mixed_precision_policy = dataclasses.replace(plugin.mixed_precision_policy, output_dtype=None)


def refuse_missing_targets(model: nn.Module) -> None:
    """Raise `ValueError` if LoRA is asked for modules that a model lacks: PEFT leaves them out without a word."""
    for config in getattr(model, "peft_config", {}).values():
        for option in ("target_modules", "modules_to_save"):
            wanted = getattr(config, option, None) or ()
            names = [f".{name}" for name, _ in model.named_modules()]
            for target in () if isinstance(wanted, str) else sorted(wanted):
                if not any(name.endswith(f".{target}") for name in names):
                    hint = nearest(target, {name.rsplit(".", 1)[1] for name in names})
                    raise ValueError(f"lora_{option}: the model has no module {target!r}{hint}.")


def refuse_missing_vllm(args: GRPOConfig) -> None:
    """Raise `ImportError` if vLLM is to generate and is not installed, before a model is loaded for it."""
    if args.use_vllm and find_spec("vllm") is None:
        raise ImportError("use_vllm needs vLLM: pip install 'trl[vllm]'.")


def warn_of_missing_processes(world_size: int) -> Iterator[str]:
    """A line if `accelerate launch` was asked for several processes and has started this one without a word."""
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
    """A line for each way in which completions are sampled from another distribution than the one that is trained."""
    args = trainer.args
    temperature = (args.generation_kwargs or {}).get("temperature", args.temperature)
    if temperature != args.temperature:
        yield (
            f"generation_kwargs samples at temperature {temperature:g}, but log-probabilities are computed at "
            f"temperature={args.temperature:g}: set `temperature` alone."
        )
    engine, policy = _dtype_of_vllm(trainer), _dtype_of_policy(trainer)
    if engine is not None and torch.finfo(engine).eps > torch.finfo(policy).eps:
        names = [str(dtype).removeprefix("torch.") for dtype in (engine, policy)]
        server = f"start the server with `--dtype {names[1]}`, or " if args.vllm_mode == "server" else ""
        yield (
            f"vLLM samples in {names[0]}, the policy trains in {names[1]}: their log-probabilities differ (of the "
            f"quickstart's model by up to 0.16). To make them agree, {server}train as vLLM samples, with "
            "`bf16: true`; vllm_importance_sampling_correction (on by default) corrects for the rest."
        )


def _dtype_of_vllm(trainer: GRPOTrainer) -> torch.dtype | None:
    """What vLLM computes in, where it can be asked: in server mode, the main process alone talks to it."""
    if not trainer.use_vllm:
        return None
    generation = trainer.vllm_generation
    if generation.mode == "colocate":
        return generation.llm.llm_engine.model_config.dtype
    if not trainer.accelerator.is_main_process:
        return None
    name = generation.vllm_client.get_server_info()["model_config"]["dtype"]
    return getattr(torch, name.removeprefix("torch."), None)


def _dtype_of_policy(trainer: GRPOTrainer) -> torch.dtype:
    autocast = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return autocast.get(trainer.accelerator.mixed_precision, trainer.model.dtype)
