"""
Checks of what is silent and costs a night: too few rows, a missing LoRA target, a loss that ignores credit, prompts
that the template or the tokenizer loses, reasoning that rewards do not see, reference answers that no completion can
match, sampling that changes the distribution. `rewards/failures.py` refuses rewards that are not finite numbers.

Each check raises `ValueError` or returns warnings. `DeltaGRPOConfig` and the commands raise; the trainer only warns.
"""

from collections.abc import Iterable
from typing import Any

from accelerate.logging import get_logger
from datasets import Dataset
from torch import nn
from transformers import ProcessorMixin, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from ..arguments.errors import UsageError
from ..arguments.lookup import nearest
from ..data.columns import check_columns, check_golds
from ..rewards.reasoning import warn_of_hidden_reasoning
from ..scoring.checks import check_prompts, check_tokenizer
from ..scoring.rollout import overridden
from .dynamic_sampling import stands_out


logger = get_logger(__name__)

# Methods with which a subclass may choose rows, or make prompts and rewards of its own
SAMPLERS = {"_get_train_sampler", "get_train_dataloader"}
ROLLOUTS = {"_prepare_inputs", "_generate_and_score_completions", "_generate", "_tokenize_prompts"}
REWARDS = {"_calculate_rewards"}
# Options of sampling, with the values that leave the distribution as it is
WHOLE = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
UNSCORED, EQUAL = 3, 10  # rollout batches in a row without rewards that end a run, and without contrast that warn
# Losses whose gradient goes through the importance ratio: at sequence level, each token has an equal part in it
SPREAD_EVENLY = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo")


def warn_of_silent_mistakes(trainer: GRPOTrainer) -> None:
    """
    Log what the checks find in a trainer. A check that raises an unexpected error is skipped. So is a check of what a
    subclass overrides. Rewards are watched while it trains.
    """
    trainer.add_callback(RewardWatch(trainer))
    for check in (_check_rows, _check_golds, _check_prompts, _check_targets, _check_sampling, _check_batches):
        try:
            warnings = list(check(trainer))
        except ValueError as error:
            warnings = [str(error)]
        except Exception as error:
            logger.debug(f"{check.__name__} failed: {error!r}")
            continue
        for warning in warnings:
            logger.warning(warning)


class RewardWatch(TrainerCallback):
    """
    Ends a run that trains nothing because no completion of several rollout batches gets a reward. Warns once if all
    rewards of a group are equal in many rollout batches.

    Args:
        trainer ([`~dynamic_sampling.DynamicSampling`]): Its `last_rewards` are those of all processes.

    Raises:
        UsageError: In all processes.
    """

    def __init__(self, trainer: Any):
        self._trainer, self._seen = trainer, trainer.last_rewards
        self._unscored = self._equal = 0  # rollout batches in a row

    def on_evaluate(self, args, state, control, **kwargs):
        self._seen = self._trainer.last_rewards

    def on_step_end(self, args, state, control, **kwargs):
        trainer, rewards = self._trainer, self._trainer.last_rewards
        if rewards is self._seen:  # several optimiser steps take one rollout batch
            return
        self._seen, names = rewards, ", ".join(trainer.reward_func_names)
        self._unscored = self._unscored + 1 if rewards.isnan().all() else 0
        self._equal = 0 if stands_out(trainer, rewards).any() else self._equal + 1
        if self._unscored == UNSCORED:
            row = {name: value for name, value in trainer.last_reward_call[0][-1].items() if name != "prompt"}
            raise UsageError(
                f"{names}: every reward of {UNSCORED} rollout batches in a row is None or NaN, so nothing is trained. "
                f"The last one was of the row {row!r:.300}. Check that its reference answer or tests can be used, and "
                "that what the reward needs works."
            )
        if self._equal == EQUAL:
            logger.warning(
                f"{names}: in {EQUAL} rollout batches in a row, all completions of a prompt had the same reward, so "
                f"rewards taught nothing. The last ones had {rewards.unique(dim=0)[:3].tolist()}. Prompts may be too "
                "hard or too easy, or completions too short for an answer (`max_completion_length`)."
            )


def _check_rows(trainer: GRPOTrainer) -> Iterable[str]:
    if isinstance(trainer.train_dataset, Dataset) and not overridden(type(trainer), SAMPLERS):
        refuse_too_few_rows(trainer.args, len(trainer.train_dataset))
    return ()


def _check_prompts(trainer: GRPOTrainer) -> Iterable[str]:
    if trainer.rollout_func or trainer.environment_factories or overridden(type(trainer), ROLLOUTS):
        return ()
    # with tools, TRL takes the reasoning out of completions
    rewards = () if trainer.tools or overridden(type(trainer), REWARDS) else trainer.reward_funcs
    datasets = {"train_dataset": trainer.train_dataset, **named(trainer.eval_dataset)}
    config = trainer.model.config
    return check_model(trainer.args, trainer.processing_class, config, get_config_model_id(config), datasets, rewards)


def _check_golds(trainer: GRPOTrainer) -> Iterable[str]:
    if overridden(type(trainer), REWARDS | ROLLOUTS) or not isinstance(trainer.train_dataset, Dataset):
        return ()
    data, rewards = trainer.train_dataset, trainer.reward_funcs
    if not (trainer.rollout_func or trainer.environment_factories):  # which make columns, too
        if "prompt" not in data.column_names:
            yield f"train_dataset has no column 'prompt', only {', '.join(data.column_names)}. Rename one."
        yield from check_columns(data, rewards, trainer.reward_func_names, "train_dataset")
    if trainer.is_world_process_zero():  # grading takes time
        yield from check_golds(data, rewards, "train_dataset")


def _check_sampling(trainer: GRPOTrainer) -> Iterable[str]:
    return check_sampling(trainer.args)


def check_sampling(args: GRPOConfig) -> list[str]:
    """Warnings of sampling options that bias every ratio: log-probabilities are of the full distribution."""
    given = {name: getattr(args, name) for name in WHOLE} | (args.generation_kwargs or {})
    changed = {name: given[name] for name, neutral in WHOLE.items() if given[name] not in (None, neutral)}
    if not changed:
        return []
    return [
        f"{', '.join(f'{name}={value}' for name, value in changed.items())}: completions are sampled from another "
        "distribution than the one that is scored and trained. Leave these options at their defaults, or expect "
        "biased ratios."
    ]


def _check_targets(trainer: GRPOTrainer) -> Iterable[str]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    refuse_missing_targets(model, getattr(model, "peft_config", {}).values())
    if not any(parameter.requires_grad for parameter in model.parameters()):
        yield "The model has no weights that can be trained. Load an adapter with `is_trainable=True`."


def _check_batches(trainer: GRPOTrainer) -> Iterable[str]:
    refuse_divided_batches(trainer.args)
    return ()


def named(evaluated: Any) -> dict[str, Any]:
    """Datasets to evaluate on, one or several by their names, by what messages call them."""
    if not isinstance(evaluated, dict):
        return {"eval_dataset": evaluated}
    return {f"eval_dataset {name!r}": dataset for name, dataset in evaluated.items()}


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
        datasets (`dict`): By what messages call them. What is no `Dataset` with a column `prompt` is left out.
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
    warnings = []
    for title, data in datasets.items():
        # `with_transform` makes its rows when they are read
        if not isinstance(data, Dataset) or data.format["type"] == "custom" or "prompt" not in data.column_names:
            continue
        prompts, template = data.with_format(None)["prompt"], args.chat_template_kwargs
        limit = args.vllm_max_model_length if args.use_vllm else None
        warnings += check_prompts(prompts, tokenizer, config, title, template, limit)
        warnings += warn_of_hidden_reasoning(rewards, prompts, tokenizer, template)
    return list(dict.fromkeys(warnings))


def refuse_ignored_credit(args: GRPOConfig) -> None:
    """Raise `ValueError` for a loss that gives all tokens of a response the same gradient."""
    if args.importance_sampling_level == "sequence" and args.loss_type in SPREAD_EVENLY:
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
    for config in adapters:
        for option in ("target_modules", "modules_to_save"):
            wanted = getattr(config, option, None) or ()
            names = [f".{name}" for name, _ in model.named_modules()]
            for target in () if isinstance(wanted, str) else sorted(wanted):
                if not any(name.endswith(f".{target}") for name in names):
                    hint = nearest(target, {name.rsplit(".", 1)[1] for name in names})
                    raise ValueError(f"lora_{option}: the model has no module {target!r}{hint}.")
