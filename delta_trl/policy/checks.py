"""Checks of a causal language model, its tokenizer and the texts that it reads. Every command makes them."""

from collections.abc import Sequence
from typing import Any

from transformers import ProcessorMixin

from .prompts import prompt_ids


UNKNOWN = 0.1  # share of a prompt's tokens that may be unknown to the tokenizer without a word
MEASURED = 1000  # prompts of a dataset, its first ones


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raise `ValueError` for a tokenizer without tokens: transformers makes one where its files are missing."""
    if isinstance(tokenizer, ProcessorMixin):
        tokenizer = tokenizer.tokenizer
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError(
            f"The model {name!r} has no tokenizer files (tokenizer.json). Save its tokenizer beside it: "
            "tokenizer.save_pretrained(folder)."
        )


def context_length(config: Any) -> int | None:
    """How many positions a model was made for; `None` if that is not known, or they are stretched."""
    config = config.get_text_config()
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") != "default":
        return None
    limit = getattr(config, "max_position_embeddings", None)
    return limit if limit and limit > 0 else None


def refuse_chats_without_template(prompts: Sequence, tokenizer: Any, name: str, template: dict | None = None) -> None:
    """Raise `ValueError` if the first prompt is a chat, and the tokenizer cannot make text of it."""
    if isinstance(prompts[0], str):
        return
    try:
        tokenizer.apply_chat_template(prompts[0], tokenize=False, add_generation_prompt=True, **(template or {}))
    except Exception as error:  # what templates raise has no common type
        raise ValueError(
            f"{name}: the prompts are chats, but the tokenizer of {getattr(tokenizer, 'name_or_path', '')!r} cannot "
            f"apply a chat template: {error}. Use plain text as prompts (`conversational: false` in a recipe), or a "
            "model whose tokenizer has a template, as instruction-tuned models have."
        ) from error


def check_prompts(
    prompts: Sequence, tokenizer: Any, config: Any, completion: int | None, name: str, template: dict | None = None
) -> list[str]:
    """
    Check that a model can read prompts: the first, and the longest in characters of the first `MEASURED`.

    Args:
        prompts (`Sequence`): All texts, or all chats.
        tokenizer (`PreTrainedTokenizerBase` or `ProcessorMixin`): The model's. A processor's prompts are not read.
        config (`PretrainedConfig`): The model's.
        completion (`int` or `None`): The longest completion, in tokens; `None` without a limit.
        name (`str`): What the prompts are called in messages.
        template (`dict`, *optional*): Arguments of the chat template.

    Returns:
        `list[str]`: Warnings, where the model may go on, but was not made for it.

    Raises:
        ValueError: If the chat template cannot be applied or leaves the question out, a prompt cannot be tokenised, or
            the model fails on it.
    """
    if isinstance(tokenizer, ProcessorMixin):
        return []
    prompts, warnings = prompts[:MEASURED], []
    refuse_chats_without_template(prompts, tokenizer, name, template)
    longest = max(range(len(prompts)), key=lambda i: len(str(prompts[i])))
    for row in dict.fromkeys((0, longest)):
        if not isinstance(prompts[row], str):
            _refuse_lost_question(prompts[row], tokenizer, name, template)
        what = f"{name}, row {row + 1}: the prompt"
        try:
            (ids,) = prompt_ids(tokenizer, [prompts[row]], template)
        except Exception as error:  # of the tokenizers library, which has no other type
            raise ValueError(f"{what} cannot be tokenised: {error}. Does the tokenizer know its words?") from error
        warnings += check_ids(ids, tokenizer, config, what, completion)
    return warnings


def _refuse_lost_question(chat: list[dict], tokenizer: Any, name: str, template: dict | None) -> None:
    """Raise `ValueError` if the chat template makes the same text whatever the user says last."""
    options = {"tokenize": False, "add_generation_prompt": True, **(template or {})}
    text = tokenizer.apply_chat_template(chat, **options)
    said = [i for i, message in enumerate(chat) if message["role"] == "user" and isinstance(message["content"], str)]
    if said:
        question = chat[said[-1]]
        another = {**question, "content": f"{question['content']} Another?"}
        if tokenizer.apply_chat_template([*chat[: said[-1]], another, *chat[said[-1] + 1 :]], **options) == text:
            raise ValueError(
                f"{name}: the chat template of the tokenizer leaves out {question['content']!r}: it makes {text!r}. "
                "Mend it, or use a model with another one."
            )


def check_ids(ids: list[int], tokenizer: Any, config: Any, what: str, completion: int | None = 0) -> list[str]:
    """
    Raise `ValueError` for no tokens, or some beyond the model's vocabulary. Warn of many that the tokenizer does not
    know, and of more than the model has positions, with `completion` more to come.
    """
    config = config.get_text_config()
    if not ids:
        raise ValueError(f"{what} has no token.")
    if max(ids) >= config.vocab_size:
        raise ValueError(
            f"{what} has a token beyond the vocabulary, {config.vocab_size:,}. Does the tokenizer saved there belong "
            "to the model?"
        )
    warnings, unknown, limit, completion = [], tokenizer.unk_token_id, context_length(config), completion or 0
    # some tokenizers begin or end a text with the same token
    if ids.count(unknown) > UNKNOWN * len(ids) and unknown not in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        warnings.append(
            f"{what} has {ids.count(unknown):,} tokens of {len(ids):,} that the tokenizer of "
            f"{tokenizer.name_or_path!r} does not know ({tokenizer.unk_token}). Use data that it was made for."
        )
    if limit is not None and len(ids) + completion > limit:
        more = f", with max_completion_length={completion:,} more" if completion else ""
        hint = " Lower it, or use shorter prompts (max_prompt_length in a recipe)." if completion else ""
        warnings.append(f"{what} has {len(ids):,} tokens{more}: the model has {limit:,} positions.{hint}")
    return warnings
