"""
Checks of a run's options and model for what is silent and costs a night: too few rows, a missing LoRA target, a loss
that ignores credit, sampling that changes the distribution. Those of the data are `data/preflight.py`'s, which every
command shares. `reward_watch.py` looks at rewards while a run trains.

Each check raises `ValueError` or returns warnings. `DeltaGRPOConfig` and the commands raise; the trainer only warns.
"""

from collections.abc import Iterable
from typing import Any

from accelerate.logging import get_logger
from datasets import Dataset
from torch import nn
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from ..arguments.lookup import nearest
from ..arguments.values import without_effect
from ..data.preflight import Check, preflight, run_checks
from ..scoring.callables import runs_foreign_code
from ..scoring.checks import Reader
from ..scoring.models import steps_of_rollout


logger = get_logger(__name__)

# Methods with which a subclass may make prompts or rewards of its own
OWN = {
    "_prepare_inputs",
    "_generate_and_score_completions",
    "_generate",
    "_tokenize_prompts",
    "_calculate_rewards",
}
# Options of sampling, with the values that leave the distribution as it is
WHOLE = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
# Losses whose gradient goes through the importance ratio: at sequence level, each token has an equal part in it
SPREAD_EVENLY = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo")


def warn_of_silent_mistakes(trainer: GRPOTrainer) -> None:
    """
    Log what the checks find in a trainer, and tell its rewards what they do not see. Prompts and rewards are checked
    if they are made from the datasets alone.
    """
    args = trainer.args
    model = trainer.accelerator.unwrap_model(trainer.model)
    checks: list[Check] = [
        (refuse_missing_targets, model, getattr(model, "peft_config", {}).values()),
        (refuse_frozen_model, model),
        *checks_of_options(args, trainer.reward_func_names),
    ]
    datasets = {}
    if not (trainer.rollout_func or trainer.environment_factories or runs_foreign_code(trainer, OWN)):
        datasets = datasets_of(trainer)
    if "train_dataset" in datasets:
        checks.append((refuse_too_few_rows, args, len(datasets["train_dataset"])))
    warnings = run_checks(checks, refuses=False)
    reader = reader_of_run(args, get_config_model_id(model.config), trainer.processing_class, model.config)
    for title, data in datasets.items():
        rewards = trainer.reward_funcs
        checked = preflight(
            data,
            title,
            rewards,
            trainer.reward_func_names,
            reader,
            refuses=False,
            grades=trainer.is_world_process_zero(),
        )
        warnings += checked.warnings
        trainer.reward_funcs = checked.rewards
    for warning in dict.fromkeys(warnings):
        logger.warning(warning)


def datasets_of(trainer: GRPOTrainer) -> dict[str, Dataset]:
    """The data that a trainer reads, by what messages call them, without streams."""
    evaluated = trainer.eval_dataset
    if not isinstance(evaluated, dict):
        evaluated = {"": evaluated}
    datasets = {"train_dataset": trainer.train_dataset}
    for name, data in evaluated.items():
        datasets[" ".join(["eval_dataset", name]).rstrip()] = data
    return {title: data for title, data in datasets.items() if isinstance(data, Dataset)}


def checks_of_options(args: GRPOConfig, names: list[str], *others: Any) -> list[Check]:
    """
    The checks of a run's options.

    Args:
        args (`GRPOConfig`): The options.
        names (`list[str]`): What the rewards are called.
        *others: Dataclasses of other options, of a recipe.
    """
    return [
        (check_sampling, args),
        (refuse_divided_batches, args),
        (without_effect, args, *others),
        (refuse_best_without_evaluation, args),
        (check_save_steps, args),
        (refuse_useless_rewards, names, args.reward_weights),
    ]


def refuse_best_without_evaluation(args: GRPOConfig) -> None:
    """Raise `ValueError` if the best checkpoint is wanted, and nothing measures which one it is."""
    wants_best = args.save_strategy == "best" or args.load_best_model_at_end
    if wants_best and args.eval_strategy == "no":
        raise ValueError(
            f"save_strategy={str(args.save_strategy.value)!r}, load_best_model_at_end={args.load_best_model_at_end}: "
            "without evaluation there is no best checkpoint, and none is saved. Set eval_strategy."
        )


def check_save_steps(args: GRPOConfig) -> list[str]:
    """A warning if checkpoints are saved within a rollout batch, of which a run that goes on generates another one."""
    steps = steps_of_rollout(args)
    is_reached = args.max_steps <= 0 or args.save_steps <= args.max_steps
    if args.save_strategy != "steps" or args.save_steps < 1 or args.save_steps % steps == 0 or not is_reached:
        return []
    return [
        f"save_steps={args.save_steps:g} lies within a rollout batch of {steps:g} optimiser steps: a run that goes on "
        "from there generates it anew, and losses jump. Use a multiple."
    ]


def refuse_useless_rewards(names: list[str], weights: list[float] | None) -> None:
    """Raise `ValueError` for a reward that is named twice, and for weights that are all 0, or not one for each."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"The reward {name!r} is named twice: it would count twice, under one metric.")
    if weights and len(weights) != len(names):
        raise ValueError(f"reward_weights={weights}: expected one for each of {', '.join(names)}.")
    if weights and not any(weights):
        raise ValueError(f"reward_weights={weights}: all are 0, so nothing would be trained.")


def check_sampling(args: GRPOConfig) -> list[str]:
    """Warnings of sampling options that bias every ratio: log-probabilities are of the full distribution."""
    sampling = {name: getattr(args, name) for name in WHOLE} | (args.generation_kwargs or {})
    changed = [f"{name}={sampling[name]}" for name, neutral in WHOLE.items() if sampling[name] not in (None, neutral)]
    if not changed:
        return []
    return [
        f"{', '.join(changed)}: completions are sampled from another distribution than the one that is scored and "
        "trained. Leave these options at their defaults, or expect biased ratios."
    ]


def reader_of_run(args: GRPOConfig, name: str, processor: Any, config: Any) -> Reader:
    """The model that reads the data of a run, with what its options say of generation."""
    return Reader(
        name,
        processor,
        config,
        args.chat_template_kwargs,
        args.max_completion_length or 0,
        args.vllm_max_model_length if args.use_vllm else None,
    )


def refuse_ignored_credit(args: GRPOConfig, gives_credit: bool) -> None:
    """Raise `ValueError` for a rule that gives credit, with a loss that gives all tokens of a response the same."""
    if gives_credit and args.importance_sampling_level == "sequence" and args.loss_type in SPREAD_EVENLY:
        raise ValueError(
            f"importance_sampling_level='sequence' (GSPO) with loss_type={args.loss_type!r} spreads the gradient "
            "evenly over the tokens of a response: of their credit, only the mean would count. Use "
            "importance_sampling_level='token', loss_type 'cispo' (its epsilon_high is 5.0) or 'vespo', or "
            "token_credit='none'."
        )


def refuse_divided_batches(args: GRPOConfig) -> None:
    """Raise `ValueError` if accelerate would divide batches among the processes, as TRL's sampler already does."""
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name):
            raise ValueError(
                f"accelerator_config sets {name}, with which GRPOTrainer would train prompts twice or not at all. "
                "Leave it out: each process already gets its part."
            )


def refuse_too_few_rows(args: GRPOConfig, rows: int) -> None:
    """Raise `ValueError` if the rows do not fill a single rollout batch: TRL drops incomplete ones."""
    prompts = args.generation_batch_size // args.num_generations
    if rows < prompts:
        raise ValueError(
            f"{rows:,} rows are too few: a rollout batch takes {prompts:,} prompts ({args.generation_batch_size:,} "
            f"completions, num_generations={args.num_generations} of each), and an incomplete one is dropped, so that "
            "nothing would be trained. Give more rows, or lower per_device_train_batch_size or steps_per_generation."
        )


def refuse_frozen_model(model: nn.Module) -> None:
    """Raise `ValueError` for a model without weights to train."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("The model has no weights that can be trained. Load an adapter with `is_trainable=True`.")


def refuse_missing_targets(model: nn.Module, adapters: Iterable) -> None:
    """Raise `ValueError` if LoRA is asked for modules that the model lacks: PEFT ignores these silently."""
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    for config in adapters:
        for option in ("target_modules", "modules_to_save"):
            wanted = getattr(config, option, None) or []
            if isinstance(wanted, str):  # a pattern
                continue
            for target in sorted(wanted):
                if target.rpartition(".")[2] not in names:
                    raise ValueError(f"lora_{option}: the model has no module {target!r}{nearest(target, names)}.")
