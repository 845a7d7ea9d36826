"""
Checks of what is silent and costs a night: too few rows, a missing LoRA target, a loss that ignores credit, prompts
that the template or the tokenizer loses, reasoning that rewards do not see, reference answers that no completion can
match, sampling that changes the distribution. `checked_rewards.py` checks rewards while a run trains.

Each check raises `ValueError` or returns warnings. `DeltaGRPOConfig` and the commands raise; the trainer only warns.
"""

from collections.abc import Iterable
from typing import Any

from accelerate.logging import get_logger
from datasets import Dataset
from torch import nn
from transformers import ProcessorMixin
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from ..arguments.lookup import nearest
from ..credit import TokenCredit
from ..data.columns import check_columns, check_golds
from ..rewards.reasoning import warn_of_hidden_reasoning
from ..scoring.checks import check_prompts, check_tokenizer
from ..scoring.rollout import overridden
from .settings import prompts_of


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
    Log what the checks find in a trainer. Prompts and rewards are checked if they are made from the dataset alone. A
    check that raises an unexpected error is skipped.
    """
    checks = [_check_targets, _check_sampling, _check_batches]
    makes_others = trainer.rollout_func or trainer.environment_factories or overridden(type(trainer), OWN)
    if isinstance(trainer.train_dataset, Dataset) and not makes_others:
        checks += [_check_rows, _check_rewards, _check_prompts]
    for check in checks:
        try:
            warnings = list(check(trainer))
        except ValueError as error:
            warnings = [str(error)]
        except Exception as error:
            logger.debug(f"{check.__name__} failed: {error!r}")
            continue
        for warning in warnings:
            logger.warning(warning)


def _check_rows(trainer: GRPOTrainer) -> Iterable[str]:
    refuse_too_few_rows(trainer.args, len(trainer.train_dataset))
    return []


def _check_rewards(trainer: GRPOTrainer) -> Iterable[str]:
    data = trainer.train_dataset
    if "prompt" not in data.column_names:
        yield f"train_dataset has no column 'prompt', only {', '.join(data.column_names)}. Rename one."
    yield from check_columns(data, trainer.reward_funcs, trainer.reward_func_names, "train_dataset")
    if trainer.is_world_process_zero():  # grading takes time
        yield from check_golds(data, trainer.reward_funcs, "train_dataset")


def _check_prompts(trainer: GRPOTrainer) -> Iterable[str]:
    config = trainer.model.config
    datasets = {"train_dataset": trainer.train_dataset}
    rewards = [] if trainer.tools else trainer.reward_funcs  # with tools, TRL takes the reasoning out of completions
    return check_model(trainer.args, trainer.processing_class, config, get_config_model_id(config), datasets, rewards)


def _check_sampling(trainer: GRPOTrainer) -> Iterable[str]:
    return check_sampling(trainer.args)


def _check_batches(trainer: GRPOTrainer) -> Iterable[str]:
    refuse_divided_batches(trainer.args)
    return []


def _check_targets(trainer: GRPOTrainer) -> Iterable[str]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    refuse_missing_targets(model, getattr(model, "peft_config", {}).values())
    if not any(parameter.requires_grad for parameter in model.parameters()):
        yield "The model has no weights that can be trained. Load an adapter with `is_trainable=True`."


def check_sampling(args: GRPOConfig) -> list[str]:
    """Warnings of sampling options that bias every ratio: log-probabilities are of the full distribution."""
    given = {name: getattr(args, name) for name in WHOLE} | (args.generation_kwargs or {})
    changed = [f"{name}={given[name]}" for name, neutral in WHOLE.items() if given[name] not in (None, neutral)]
    if not changed:
        return []
    return [
        f"{', '.join(changed)}: completions are sampled from another distribution than the one that is scored and "
        "trained. Leave these options at their defaults, or expect biased ratios."
    ]


def check_model(
    args: GRPOConfig, tokenizer: Any, config: Any, name: str, datasets: dict[str, Any], rewards: Iterable
) -> list[str]:
    """
    Check that a tokenizer and its chat template keep the prompts, and that rewards know of reasoning that it opens.

    Args:
        args (`GRPOConfig`): Of the run.
        tokenizer (`PreTrainedTokenizerBase` or `ProcessorMixin`): The model's. A processor's prompts are not read.
        config (`PretrainedConfig`): The model's.
        name (`str`): The model's, for messages.
        datasets (`dict`): By what messages call them. Those without prompts to read are left out.
        rewards (`Iterable`): The reward functions.

    Returns:
        `list[str]`: Warnings.

    Raises:
        ValueError: If the tokenizer is empty or ends no completion, or a prompt is lost.
    """
    check_tokenizer(tokenizer, name)
    if isinstance(tokenizer, ProcessorMixin):
        return []
    if tokenizer.eos_token is None:
        raise ValueError(
            f"The tokenizer of {name!r} has no eos_token, which ends a completion. Set one (tokenizer.eos_token = "
            "'<its text>') and save the tokenizer."
        )
    template = args.chat_template_kwargs
    limit = args.vllm_max_model_length if args.use_vllm else None
    warnings = []
    for title, data in datasets.items():
        prompts = prompts_of(data)
        if prompts is None:
            continue
        warnings += check_prompts(prompts, tokenizer, config, title, template, limit)
        warnings += warn_of_hidden_reasoning(rewards, prompts, tokenizer, template)
    return list(dict.fromkeys(warnings))


def refuse_ignored_credit(args: GRPOConfig, rule: TokenCredit) -> None:
    """Raise `ValueError` for a rule with a loss that gives all tokens of a response the same gradient."""
    gives_credit = rule.credits_rollouts or rule.credits_micro_batches
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
