"""The model of a recipe, and the tokens that end its completions."""

from accelerate.logging import get_logger
from trl import GRPOConfig, ModelConfig

from ..evaluation.source import ModelSource
from ..policy.prompts import end_tokens, stop_tokens


logger = get_logger(__name__)


def model_source(model_args: ModelConfig, args: GRPOConfig) -> ModelSource:
    """The model of a recipe."""
    name, revision = model_args.model_name_or_path, model_args.model_revision
    return ModelSource(name, revision, trust_remote_code=args.trust_remote_code)


def end_turns(args: GRPOConfig, source: ModelSource) -> list[int] | None:
    """
    The tokens that end a completion of a chat, if the model does not declare all of them; else `None`. Changes `args`
    so that generation stops there.

    A base model's tokenizer may have the chat template of its chat model: Qwen3-8B-Base ends turns with <|im_end|>,
    but declares <|endoftext|>. Either ends a completion, whichever the model has learned to say.

    Args:
        args (`GRPOConfig`): Its `generation_kwargs` get the end tokens, unless they set their own.
        source ([`~evaluation.source.ModelSource`]): The model.
    """
    tokenizer, declared = source.tokenizer(), source.generation_config()
    known, ids = (end_tokens(tokenizer, declared, chats) for chats in (False, True))
    if ids == known or stop_tokens(args):
        return None
    end = ids[-1]
    key, value = ("stop_token_ids", [end]) if args.use_vllm else ("eos_token_id", ids)
    args.generation_kwargs = {key: value, **(args.generation_kwargs or {})}
    logger.warning(
        f"The chat template ends the assistant's turn with {tokenizer.decode([end])!r}, which the model does not "
        f"declare as an end (that is {tokenizer.decode(known)!r}): both end a completion."
    )
    return ids
