"""Prompt token ids and end tokens."""

from transformers import GenerationConfig, PreTrainedTokenizerBase
from trl import GRPOConfig


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase, prompts: list, chat_template_kwargs: dict | None = None
) -> list[list[int]]:
    """Token ids of prompts, texts or chats, as in TRL's trainers."""
    if isinstance(prompts[0], str):
        return tokenizer(text=prompts)["input_ids"]
    return tokenizer.apply_chat_template(
        prompts, add_generation_prompt=True, tokenize=True, return_dict=True, **(chat_template_kwargs or {})
    )["input_ids"]


def stop_tokens(args: GRPOConfig) -> list[int]:
    """The ids of tokens at which `generation_kwargs` stop generation."""
    options = args.generation_kwargs or {}
    return [
        *_as_list(options.get("eos_token_id")),  # transformers'
        *_as_list(options.get("stop_token_ids")),  # vLLM's
    ]


def _as_list(tokens: int | list[int] | None) -> list[int]:
    if isinstance(tokens, int):
        return [tokens]
    return list(tokens or ())


def end_tokens(
    tokenizer: PreTrainedTokenizerBase,
    generation_config: GenerationConfig | None,
    chats: bool = False,
    chat_template_kwargs: dict | None = None,
) -> list[int]:
    """
    The tokens that end a completion, as in TRL's trainers: the tokenizer's and those that the model declares; with
    `chats` also that of the chat template, as `delta-trl train` trains.
    """
    ends = _as_list(tokenizer.eos_token_id)
    if generation_config:
        ends += _as_list(generation_config.eos_token_id)
    if chats:
        ends += _as_list(turn_end(tokenizer, chat_template_kwargs))
    return list(dict.fromkeys(ends))


def turn_end(tokenizer: PreTrainedTokenizerBase, chat_template_kwargs: dict | None = None) -> int | None:
    """The special token with which the chat template ends the assistant's message; `None` without one."""
    if tokenizer.chat_template is None:
        return None
    reply = "a reply that no template has"
    messages = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": reply}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, **(chat_template_kwargs or {}))
    _, separator, rest = text.rpartition(reply)
    first = tokenizer(rest, add_special_tokens=False).input_ids[:1]
    if separator and set(first) & set(tokenizer.all_special_ids):
        return first[0]
    return None
