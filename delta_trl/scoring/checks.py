"""Checks of a causal language model, its tokenizer and the texts that it reads. Every command makes them."""

from collections.abc import Sequence
from typing import Any

from transformers import ProcessorMixin

from .prompts import prompt_ids


UNKNOWN = 0.1  # share of a prompt's tokens that may be unknown to the tokenizer without a word


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raise `ValueError` for a tokenizer without tokens: transformers makes one where its files are missing."""
    if isinstance(tokenizer, ProcessorMixin):
        tokenizer = tokenizer.tokenizer
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError(
            f"The model {name!r} has no tokenizer files (tokenizer.json). Save its tokenizer beside it: "
            "tokenizer.save_pretrained(folder)."
        )


def check_prompts(
    prompts: Sequence, tokenizer: Any, config: Any, name: str, template: dict | None = None, limit: int | None = None
) -> list[str]:
    """
    Check that a model can read prompts: the first, and the longest in characters.

    Args:
        prompts (`Sequence`): All texts, or all chats.
        tokenizer (`PreTrainedTokenizerBase` or `ProcessorMixin`): The model's. A processor's prompts are not read.
        config (`PretrainedConfig`): The model's.
        name (`str`): What the prompts are called in messages.
        template (`dict`, *optional*): Arguments of the chat template.
        limit (`int`, *optional*): vLLM's `max_model_len`, which must leave a token for the completion.

    Returns:
        `list[str]`: Warnings of tokens that the tokenizer does not know.

    Raises:
        ValueError: If the chat template cannot be applied or leaves the question out, or a prompt has no tokens of
            the model or too many for vLLM.
    """
    if isinstance(tokenizer, ProcessorMixin):
        return []
    warnings: list[str] = []
    longest = max(range(len(prompts)), key=lambda row: len(str(prompts[row])))
    for row in sorted({0, longest}):
        what = f"{name}, row {row + 1}: the prompt"
        try:
            (ids,) = prompt_ids(tokenizer, [prompts[row]], template)
            if not isinstance(prompts[row], str):
                _refuse_lost_question(prompts[row], ids, tokenizer, template)
        except Exception as error:  # what tokenizers and chat templates raise has no common type
            raise ValueError(f"{what} cannot be read by the tokenizer: {error}") from error
        warnings += check_ids(ids, tokenizer, config, what)
        if limit is not None and len(ids) >= limit:
            raise ValueError(
                f"{what} has {len(ids):,} tokens, but vllm_max_model_length={limit}: which ends the run. Raise that, "
                "or leave out long prompts (`max_prompt_length` in a recipe)."
            )
    return warnings


def _refuse_lost_question(chat: list[dict], ids: list[int], tokenizer: Any, template: dict | None) -> None:
    """Raise `ValueError` if the chat template makes the same `ids` whatever the user says last."""
    of_user = [message for message in chat if message["role"] == "user"]
    if not of_user or not isinstance(of_user[-1]["content"], str):
        return
    question = of_user[-1]
    another = {**question, "content": f"{question['content']} Another?"}
    changed = [another if message is question else message for message in chat]
    if prompt_ids(tokenizer, [changed], template) == [ids]:
        raise ValueError(
            f"its chat template leaves out {question['content']!r}: it makes {tokenizer.decode(ids)!r}. Mend it, or "
            "use a model with another one."
        )


def check_ids(ids: list[int], tokenizer: Any, config: Any, what: str) -> list[str]:
    """Raise `ValueError` for no token, or one beyond the vocabulary. Warn of many that the tokenizer does not know."""
    size = config.get_text_config().vocab_size
    if not ids or max(ids) >= size:
        problem = f"a token beyond the vocabulary, {size:,}. Does the tokenizer saved there belong to the model?"
        raise ValueError(f"{what} has {problem if ids else 'no token.'}")
    unknown = ids.count(tokenizer.unk_token_id)
    # some tokenizers begin or end a text with the same token
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    if unknown <= UNKNOWN * len(ids) or tokenizer.unk_token_id in ends:
        return []
    return [
        f"{what} has {unknown:,} tokens of {len(ids):,} that the tokenizer of {tokenizer.name_or_path!r} "
        f"does not know ({tokenizer.unk_token}). Use data that it was made for."
    ]
