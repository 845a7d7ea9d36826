"""Training from a recipe: what `delta-trl train` and `scripts/train.py` (under `accelerate launch`) run."""

import logging
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from accelerate.logging import get_logger
from trl import ModelConfig, get_peft_config, get_quantization_config

from ..arguments.options import Options, is_true
from ..data.columns import check_datasets
from ..data.loading import drop_long_prompts
from ..evaluation.sampling import describe_training
from ..trainer.checkpoints import resolve_resume
from ..trainer.checks import check_model, named, refuse_missing_targets
from ..trainer.config import DeltaGRPOConfig
from ..trainer.rollouts import refuse_too_few_rows
from ..trainer.trainer import DeltaGRPOTrainer
from .best_checkpoint import SaveBestCallback, keeps_best
from .dataset import evaluation_source, load_prepared
from .folder import remove_run
from .model import choose_attention, end_turns, model_source
from .recipe import RecipeParser, RunArguments, UsageError, get_rewards
from .terminal import lines, no_progress_bars_in_files


logger = get_logger(__name__)


def main(options: Options) -> None:
    """Parse the options, build the trainer, train, save. Raises `UsageError` for a user's mistake."""
    run_args, training_args, model_args = RecipeParser().parse(options)
    prints_lines = run_args.terminal == "lines"
    if prints_lines:
        no_progress_bars_in_files()
    try:
        trainer, checkpoint = build(run_args, training_args, model_args)
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(str(error)) from error
    if run_args.overwrite_output_dir and trainer.accelerator.is_main_process:
        remove_run(training_args.output_dir)  # after all other checks have passed
    trainer.accelerator.wait_for_everyone()
    if checkpoint:
        trainer.accelerator.print(f"Going on from {checkpoint}")
    with lines(trainer) if prints_lines else nullcontext():
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(training_args.output_dir)
    trainer.save_state()  # the logged metrics, in trainer_state.json
    trainer.create_model_card(model_name=Path(training_args.output_dir).name)
    trainer.accelerator.print(f"Model saved to {training_args.output_dir}")
    if trainer.state.best_model_checkpoint:
        metric = f"{training_args.metric_for_best_model} {trainer.state.best_metric:.4g}, "
        metric += describe_training(training_args)
        trainer.accelerator.print(f"Best checkpoint: {trainer.state.best_model_checkpoint} ({metric})")
    if training_args.push_to_hub:
        trainer.push_to_hub()
    trainer.accelerator.end_training()


def build(
    run_args: RunArguments, training_args: DeltaGRPOConfig, model_args: ModelConfig
) -> tuple[DeltaGRPOTrainer, Path | None]:
    """The trainer of a recipe and the checkpoint to resume from, if any. Checks what is cheap to check first."""
    evaluated = evaluation_source(run_args, training_args)
    checkpoint = resolve_resume(training_args.resume_from_checkpoint, training_args.output_dir)
    if is_true(training_args.resume_from_checkpoint) and checkpoint is None:
        logger.warning(f"No complete checkpoint under {training_args.output_dir}: training from the start.")

    rewards = get_rewards(run_args)
    if training_args.process_index > 0:
        logging.getLogger("delta_trl.data").setLevel(logging.ERROR)  # the first process tells what is left out
    arguments = (run_args, training_args, model_args, rewards)
    with training_args.main_process_first():  # the other processes find its results in the cache
        train_dataset = _dataset(*arguments, run_args.dataset_train_split)
        eval_dataset = None
        if evaluated is not None:
            eval_dataset = _dataset(evaluated, *arguments[1:], run_args.dataset_test_split)

    datasets = {"train_dataset": train_dataset, **named(eval_dataset)}
    check_datasets(datasets, rewards)
    refuse_too_few_rows(training_args, len(train_dataset))
    source = model_source(model_args, training_args)
    check_model(training_args, source.processor(), source.config(), source.name, datasets, rewards)
    keep_best = keeps_best(training_args)
    ends = None
    if not isinstance(train_dataset[0]["prompt"], str):  # a chat
        ends = end_turns(training_args, source)
    # the recipe's model keys, as in TRL's own scripts; `model_init_kwargs` takes precedence
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": choose_attention(model_args.attn_implementation, training_args),
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    trainer = DeltaGRPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=rewards,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
        callbacks=[SaveBestCallback()] if keep_best else None,
    )
    refuse_missing_targets(trainer.accelerator.unwrap_model(trainer.model))
    trainer.dataset_name = run_args.dataset_name
    trainer.recipe = asdict(run_args) | asdict(model_args)
    if ends is not None:  # the saved model has them, too
        trainer.model.generation_config.eos_token_id = trainer.eos_token_ids
    return trainer, checkpoint


def _dataset(run_args: RunArguments, training_args: DeltaGRPOConfig, model_args: ModelConfig, rewards, split):
    dataset = load_prepared(run_args, rewards, split)
    if run_args.max_prompt_length is not None:
        tokenizer = model_source(model_args, training_args).tokenizer()
        template = training_args.chat_template_kwargs
        dataset = drop_long_prompts(dataset, tokenizer, run_args.max_prompt_length, run_args.dataset_name, template)
    return dataset
