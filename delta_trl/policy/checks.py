"""Checks of a causal language model, its tokenizer and the texts that it reads. Every command makes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import nn


UNKNOWN = 0.1  # share of a prompt's tokens that may be unknown to the tokenizer


def check_config(config: Any, name: str) -> None:
    """Raise `ValueError` for a model that does not generate text, such as a classifier or BERT."""
    for architecture in config.architectures or ():
        kind = getattr(transformers, architecture, None)  # `None` for a repository's own code
        if kind is not None and not kind.can_generate():
            raise ValueError(
                f"The model {name!r} is a {architecture}, which does not generate text. Expected a causal language "
                "model, such as Qwen3ForCausalLM."
            )


def check_files(name: str) -> None:
    """Raise `ValueError` for a damaged file of weights in a folder. The hub's files are checked when downloaded."""
    for path in Path(name).glob("*.safetensors"):
        try:
            with safe_open(path, "pt"):
                pass
        except SafetensorError as error:
            raise ValueError(
                f"The model {name!r} has a damaged file, {path.name} ({error}). Save or download it again."
            ) from error


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raise `ValueError` for a tokenizer without tokens: transformers makes one where its files are missing."""
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # a processor's
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError(
            f"The model {name!r} has no tokenizer files (tokenizer.json). Save its tokenizer beside it: "
            "tokenizer.save_pretrained(folder)."
        )


def check_weights(model: nn.Module, name: str) -> None:
    """Raise `ValueError` for weights that are not finite."""
    for weight, values in model.named_parameters():
        loaded = values.is_floating_point() and values.itemsize > 1 and not values.is_meta
        if loaded and not values.detach().sum(dtype=torch.float32).isfinite():
            raise ValueError(f"The model {name!r}: {weight} is not finite. Did its training diverge?")


def context_length(config: Any) -> int | None:
    """How many positions a model has; `None` if they are not limited."""
    config = config.get_text_config()
    stretched = (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "dynamic"
    return None if stretched else getattr(config, "max_position_embeddings", None)


def refuse_chats_without_template(prompts: Sequence, tokenizer: Any, name: str) -> None:
    """Raise `ValueError` if the first prompt is a chat, and the tokenizer cannot make text of it."""
    if not isinstance(prompts[0], str) and getattr(tokenizer, "chat_template", None) is None:
        raise ValueError(
            f"{name}: the prompts are chats, but the tokenizer of {getattr(tokenizer, 'name_or_path', '')!r} has no "
            "chat template. Use plain text as prompts (`conversational: false` in a recipe), or a model whose "
            "tokenizer has a template, as instruction-tuned models have."
        )


def check_prompts(
    prompts: Sequence, tokenizer: Any, config: Any, completion: int, name: str, template: dict | None = None
) -> None:
    """
    Check that a model can read prompts: the first, and the longest in characters.

    Args:
        prompts (`Sequence`): All texts, or all chats.
        tokenizer (`PreTrainedTokenizerBase` or `ProcessorMixin`): The model's. A processor's prompts are not measured.
        config (`PretrainedConfig`): The model's.
        completion (`int`): The longest completion, in tokens.
        name (`str`): What the prompts are called in messages.
        template (`dict`, *optional*): Arguments of the chat template.

    Raises:
        ValueError: If there is no chat template, it leaves the question out, or `check_ids` refuses a prompt.
    """
    prompts = prompts[:]  # a dataset's column at once: row by row is slow
    refuse_chats_without_template(prompts, tokenizer, name)
    if hasattr(tokenizer, "tokenizer"):
        return
    longest = max(range(len(prompts)), key=lambda i: len(str(prompts[i])))
    for row in dict.fromkeys((0, longest)):
        text = prompts[row]
        if chat := not isinstance(text, str):
            options = {"tokenize": False, "add_generation_prompt": True, **(template or {})}
            *before, last = text
            question, text = last.get("content"), tokenizer.apply_chat_template(text, **options)
            another = [*before, {**last, "content": f"{question} Another?"}]
            if isinstance(question, str) and tokenizer.apply_chat_template(another, **options) == text:
                raise ValueError(
                    f"{name}: the chat template of the tokenizer leaves out {question!r}: it makes {text!r}. Mend it, "
                    "or use a model with another one."
                )
        what = f"{name}, row {row + 1}: the prompt"
        try:
            ids = tokenizer(text, add_special_tokens=not chat).input_ids
        except Exception as error:  # of the tokenizers library, which has no other type
            raise ValueError(f"{what} cannot be tokenised: {error}. Does the tokenizer know its words?") from error
        check_ids(ids, tokenizer, config, what, completion)


def check_ids(ids: list[int], tokenizer: Any, config: Any, what: str, completion: int = 0) -> None:
    """Raise `ValueError` if a model cannot read tokens, and `completion` more: too many, none, or unknown ones."""
    config, limit = config.get_text_config(), context_length(config)
    if not ids:
        raise ValueError(f"{what} has no token.")
    if max(ids) >= config.vocab_size:
        raise ValueError(
            f"{what} has a token beyond the vocabulary, {config.vocab_size:,}. Does the tokenizer saved there belong "
            "to the model?"
        )
    unknown = ids.count(tokenizer.unk_token_id)
    # some tokenizers begin or end a text with the same token
    if unknown > UNKNOWN * len(ids) and tokenizer.unk_token_id not in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        raise ValueError(
            f"{what} has {unknown:,} tokens of {len(ids):,} that the tokenizer of {tokenizer.name_or_path!r} does not "
            f"know ({tokenizer.unk_token}). Use data that it was made for."
        )
    if limit is not None and len(ids) + completion > limit:
        more = f", with max_completion_length={completion:,} more" if completion else ""
        hint = " Lower it, or use shorter prompts (max_prompt_length in a recipe)." if completion else ""
        raise ValueError(f"{what} has {len(ids):,} tokens{more}: the model has {limit:,} positions.{hint}")
