"""Training from a recipe: what `delta-trl train` and `scripts/train.py` (under `accelerate launch`) run."""

import logging
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import DistributedType
from accelerate.logging import get_logger
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.utils.quantization_config import QuantizationConfigMixin
from trl import GRPOConfig, ModelConfig, get_peft_config, get_quantization_config
from trl.trainer.utils import create_model_from_path

from ..arguments.errors import mistakes
from ..evaluation.model import ModelArguments
from ..scoring.prompts import end_tokens, stop_tokens
from ..trainer.checks import refuse_missing_targets
from ..trainer.config import DeltaGRPOConfig
from ..trainer.main_process import from_main_process
from ..trainer.trainer import DeltaGRPOTrainer
from .folder import resume_from
from .inputs import read_inputs
from .recipe import RunArguments, get_environments, get_tools, model_of_recipe, parse_recipe


if TYPE_CHECKING:
    from peft import PeftModel


logger = get_logger(__name__)


def main(args: list[str]) -> None:
    """Parse the options, build the trainer, train, save. Raises `UsageError` for a user's mistake."""
    run_args, training_args, model_args = parse_recipe(args)
    output = training_args.output_dir
    resume = from_main_process(partial(resume_from, training_args.resume_from_checkpoint, output))
    with mistakes():
        trainer = build(run_args, training_args, model_args)
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(output)
    trainer.save_state()  # the logged metrics, in trainer_state.json
    trainer.create_model_card(model_name=Path(output).name)
    if trainer.is_world_process_zero():  # on other nodes there may be nothing
        print(saved_model(output))
        if trainer.state.best_model_checkpoint:
            print(f"Best checkpoint: {trainer.state.best_model_checkpoint}")
        if training_args.log_token_credit:
            print(f"Token credit: delta-trl inspect {output}")
    if training_args.push_to_hub:
        trainer.push_to_hub()
    trainer.accelerator.wait_for_everyone()  # a process that ends while another is at work makes that one fail
    trainer.accelerator.end_training()


def saved_model(output: str) -> str:
    """What a finished run left in its folder, for its last line."""
    if any(Path(output).glob("*model*.safetensors")):
        return f"Model saved to {output}"
    return f"No whole weights in {output}, only DeepSpeed's shards: python {output}/zero_to_fp32.py {output} {output}"


def build(run_args: RunArguments, training_args: DeltaGRPOConfig, model_args: ModelConfig) -> DeltaGRPOTrainer:
    """The trainer of a recipe. Raises `ValueError`, `OSError` or `ImportError` for what does not fit together."""
    source = model_of_recipe(run_args, model_args, training_args)
    peft_config = get_peft_config(model_args)
    quantization = get_quantization_config(model_args)
    if training_args.process_index > 0:
        for room in ("data", "commands"):  # the first process says what is left out
            logging.getLogger(f"delta_trl.{room}").setLevel(logging.ERROR)
    with training_args.main_process_first():  # the other processes find its results in the cache
        # here mistakes are errors; the trainer itself only warns of them
        inputs = read_inputs(run_args, training_args, source, peft_config)
    ends = None
    if not isinstance(inputs.datasets["train_dataset"][0]["prompt"], str):  # a chat
        ends = end_turns(training_args, source)
    # the recipe's model keys, as in TRL's own scripts; `model_init_kwargs` takes precedence
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    parts: dict[str, Any] = {"model": source.model_name_or_path}
    parts |= {"peft_config": peft_config, "quantization_config": quantization}
    if inputs.adapter:
        model = model_with_adapter(source, training_args, quantization)
        parts = {"model": model, "processing_class": source.processor()}
    trainer = DeltaGRPOTrainer(
        **parts,
        reward_funcs=inputs.rewards,
        args=training_args,
        **inputs.datasets,
        tools=get_tools(run_args) or None,
        environment_factory=get_environments(run_args),
    )
    model = trainer.accelerator.unwrap_model(trainer.model)
    refuse_missing_targets(model, getattr(model, "peft_config", {}).values())
    trainer.reward_watch.refuses = True
    trainer.dataset_name = run_args.dataset_name
    trainer.recipe = asdict(run_args) | asdict(model_args)
    if ends is not None:  # the saved model has them, too
        trainer.model.generation_config.eos_token_id = trainer.eos_token_ids
    return trainer


def model_with_adapter(
    source: ModelArguments, args: GRPOConfig, quantization: QuantizationConfigMixin | None
) -> "PeftModel":
    """
    The model of a recipe with the adapter that the run goes on with, which is trainable. Loaded as TRL loads a model
    and makes a new adapter.
    """
    options = {"trust_remote_code": args.trust_remote_code, **args.model_init_kwargs}
    args.model_init_kwargs = None  # of which TRL would say that they are ignored
    if quantization:
        options["quantization_config"] = quantization
    if args.distributed_state.distributed_type in (DistributedType.MULTI_GPU, DistributedType.DEEPSPEED):
        options["device_map"] = None
    model = create_model_from_path(source.model_name_or_path, **options)
    # ZeRO-3 takes weights of one type only
    return source.with_adapter(model, is_trainable=True, autocast_adapter_dtype=not is_deepspeed_zero3_enabled())


def end_turns(args: GRPOConfig, source: ModelArguments) -> list[int] | None:
    """
    The tokens that end a completion of a chat, if the model does not declare all of them; else `None`. Changes `args`
    so that generation stops there.

    A base model's tokenizer may have the chat template of its chat model: Qwen3-8B-Base ends turns with <|im_end|>,
    but declares <|endoftext|>. Either ends a completion, whichever the model has learned to say.

    Args:
        args (`GRPOConfig`): Its `generation_kwargs` get the end tokens, unless they set their own.
        source ([`~evaluation.model.ModelArguments`]): The model.
    """
    tokenizer = source.tokenizer()
    declared = source.generation_config()
    declared_ends = end_tokens(tokenizer, declared)
    ids = end_tokens(tokenizer, declared, chats=True, chat_template_kwargs=args.chat_template_kwargs)
    if ids == declared_ends or stop_tokens(args):
        return None
    end = ids[-1]
    stop = {"eos_token_id": ids}
    if args.use_vllm:
        stop = {"stop_token_ids": [end]}
    args.generation_kwargs = stop | (args.generation_kwargs or {})
    logger.warning(
        f"The chat template ends the assistant's turn with {tokenizer.decode([end])!r}, which the model does not "
        f"declare as an end (that is {tokenizer.decode(declared_ends)!r}): both end a completion."
    )
    return ids
