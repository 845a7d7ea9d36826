"""Checks of the options that rules take as dataclass fields, and of the trainer that a rule works with."""

import dataclasses
from typing import Any


def check_choices(rule: Any, **choices: tuple) -> None:
    """Raise `ValueError` for an option that is not one of its choices."""
    for name, known in choices.items():
        if getattr(rule, name) not in known:
            raise ValueError(f"{name}={getattr(rule, name)!r}: expected one of {', '.join(map(repr, known))}.")


def check_number(rule: Any, name: str, interval: str) -> None:
    """Raise `ValueError` for an option that is not a number in an interval such as `"(0, 1]"`."""
    value, (low, high) = getattr(rule, name), map(float, interval[1:-1].split(","))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        above = value > low if interval[0] == "(" else value >= low
        below = value < high if interval[-1] == ")" else value <= high
        if above and below:
            return
    raise ValueError(f"{name}={value!r}: expected a number in {interval}.")


def refuse_idle(options: Any, beside: str, **used: bool) -> None:
    """Raise `ValueError` for dataclass fields that are set, but not `used`: without effect `beside` other options."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    idle = [name for name, is_used in used.items() if not is_used and getattr(options, name) != defaults[name]]
    if idle:
        raise ValueError(
            f"{', '.join(f'{name}={getattr(options, name)!r}' for name in idle)}: without effect beside {beside}. "
            "Remove the options that you do not need; on the command line, set those of the recipe to their defaults."
        )


def policy_moves(args: Any) -> bool:
    """Whether the policy changes while a rollout batch is in use, so that `GRPOTrainer` keeps its old log-probs."""
    return args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations) != 0


def check_backward(trainer: Any, what: str, instead: str) -> None:
    """Raise `ValueError` if a rule cannot make a backward pass of its own over a trainer's model."""
    check_whole_parameters(trainer, what, instead)
    args = trainer.args
    if trainer.is_fsdp_enabled and args.gradient_accumulation_steps > 1:
        raise ValueError(
            f"{what} works under FSDP with gradient_accumulation_steps=1 only, got "
            f"{args.gradient_accumulation_steps}: within an accumulation FSDP does not reduce gradients. Use larger "
            f"micro-batches, or {instead}."
        )
    if hasattr(trainer.processing_class, "tokenizer"):  # a processor of several modalities
        raise ValueError(f"{what} supports text-only models. Use {instead}.")
    if args.gradient_checkpointing and (args.gradient_checkpointing_kwargs or {}).get("use_reentrant"):
        raise ValueError(
            f"{what} does not work with reentrant gradient checkpointing, which only supports `backward`. Set "
            "gradient_checkpointing_kwargs: {use_reentrant: false}."
        )
    model = trainer.accelerator.unwrap_model(trainer.model)
    inside = model.get_base_model() if hasattr(model, "get_base_model") else model
    trained = [any(weight.requires_grad for weight in part.parameters()) for part in (model, inside)]
    if trained == [True, False]:
        raise ValueError(
            f"{what} needs the gradient of parameters of the model, and none is trained: prompt and prefix tuning "
            f"add theirs outside of it. Use LoRA, or {instead}."
        )


def check_whole_parameters(trainer: Any, what: str, instead: str) -> None:
    """Raise `ValueError` if a trainer's parameters are sharded so that the LM head cannot be read."""
    if trainer.args.deepspeed_plugin is not None and trainer.args.deepspeed_plugin.zero_stage == 3:
        raise ValueError(
            f"{what} does not work with DeepSpeed ZeRO-3, which holds no whole parameter. Use ZeRO-2, or {instead}."
        )
    if trainer.is_fsdp_enabled and not trainer.accelerator.is_fsdp2:
        raise ValueError(
            f"{what} does not work with FSDP1, which hides the parameters. Set fsdp_version: 2 in the accelerate "
            f"config, or {instead}."
        )


def check_whole_groups(what: str, trainer: Any) -> None:
    """Raise `ValueError` if the responses to a prompt are split over processes."""
    args = trainer.args
    rows = args.per_device_train_batch_size * args.steps_per_generation
    if rows % args.num_generations:
        raise ValueError(
            f"{what} compares the responses to a prompt, which must be on one process: the {rows} rows of a process "
            "(per_device_train_batch_size * steps_per_generation) are no multiple of "
            f"num_generations={args.num_generations}."
        )
