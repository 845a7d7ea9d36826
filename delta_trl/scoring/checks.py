"""Checks of a causal language model, its tokenizer and the texts that it reads. Every command makes them."""

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedTokenizerBase, ProcessorMixin

from .prompts import prompt_ids


UNKNOWN = 0.1  # share of a prompt's tokens that may be unknown to the tokenizer without a word
POSITIONS = re.compile(r"wpe|pos")  # in the name of a tensor with a row for each position
LONGEST = 16  # prompts, in characters, among which the longest in tokens is looked for


@dataclass(frozen=True)
class Reader:
    """
    The model that reads a run's texts, without its weights.

    Args:
        name (`str`): What it is called in messages.
        processor (`PreTrainedTokenizerBase` or `ProcessorMixin`): Its tokenizer. A processor's prompts are not read.
        config (`PretrainedConfig`): The model's.
        template (`dict`, *optional*): Arguments of the chat template.
        max_completion_length (`int`, *optional*, defaults to `0`): Tokens that it generates after a prompt.
        vllm_limit (`int`, *optional*): vLLM's `max_model_len`, which must leave a token for the completion.
    """

    name: str
    processor: Any
    config: PretrainedConfig
    template: dict | None = None
    max_completion_length: int = 0
    vllm_limit: int | None = None

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return getattr(self.processor, "tokenizer", self.processor)

    @property
    def context(self) -> float:
        """The tokens of the longest text that the model was made for; infinite if it does not say."""
        return getattr(self.config.get_text_config(), "max_position_embeddings", None) or math.inf

    def has_table_of_positions(self) -> bool:
        """Whether nothing can be computed beyond its context. Rotary positions go on."""
        try:
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(self.config.get_text_config())
        except ValueError:  # a model with code of its own
            return False
        tables = chain(model.named_parameters(), model.named_buffers())
        return any(POSITIONS.search(name) and len(table) >= self.context for name, table in tables if table.ndim == 2)


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raise `ValueError` for a tokenizer without tokens: transformers makes one where its files are missing."""
    if isinstance(tokenizer, ProcessorMixin):
        tokenizer = tokenizer.tokenizer
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError(
            f"The model {name!r} has no tokenizer files (tokenizer.json). Save its tokenizer beside it: "
            "tokenizer.save_pretrained(folder)."
        )


def check_prompts(prompts: Sequence, reader: Reader, name: str) -> list[str]:
    """
    Check that a model can read prompts: the first, and the longest ones in characters.

    Args:
        prompts (`Sequence`): All texts, or all chats.
        reader ([`Reader`]): The model.
        name (`str`): What the prompts are called in messages.

    Returns:
        `list[str]`: Warnings of tokens that the tokenizer does not know, and of texts beyond the context.

    Raises:
        ValueError: If the tokenizer is empty or ends no completion, the chat template cannot be applied or leaves the
            question out, or a prompt has no tokens of the model or too many.
    """
    tokenizer = reader.processor
    check_tokenizer(tokenizer, reader.name)
    if isinstance(tokenizer, ProcessorMixin):
        return []
    if tokenizer.eos_token is None:
        raise ValueError(
            f"The tokenizer of {reader.name!r} has no eos_token, which ends a completion. Set one "
            "(tokenizer.eos_token = '<its text>') and save the tokenizer."
        )
    warnings: list[str] = []
    longest = heapq.nlargest(LONGEST, range(len(prompts)), key=lambda row: len(str(prompts[row])))
    lengths = {}
    for row in sorted({0, *longest}):
        what = f"{name}, row {row + 1}: the prompt"
        try:
            (ids,) = prompt_ids(tokenizer, [prompts[row]], reader.template)
            if not isinstance(prompts[row], str):
                _refuse_lost_question(prompts[row], ids, tokenizer, reader.template)
        except Exception as error:  # what tokenizers and chat templates raise has no common type
            raise ValueError(f"{what} cannot be read by the tokenizer: {error}") from error
        warnings += check_ids(ids, reader, what)
        lengths[what] = len(ids)
    what = max(lengths, key=lambda what: lengths[what])
    return warnings[:1] + check_length(lengths[what], reader, what)


def check_length(tokens: int, reader: Reader, what: str) -> list[str]:
    """
    Compare a prompt of so many tokens, and the completion after it, with the context of the model.

    Returns:
        `list[str]`: A warning if they are longer, and positions are rotary.

    Raises:
        ValueError: If they are longer, and positions are absolute; if vLLM's limit leaves no token to generate.
    """
    limit = reader.vllm_limit
    if limit is not None and tokens >= limit:
        raise ValueError(
            f"{what} has {tokens:,} tokens, but vllm_max_model_length={limit}: which ends the run. Raise that, "
            "or leave out long prompts (`max_prompt_length` in a recipe)."
        )
    length = reader.max_completion_length
    if tokens + length <= reader.context:
        return []
    problem = f"{what} has {tokens:,} tokens, longer than the model's {reader.context:,}."
    if length:
        problem = (
            f"{what} of {tokens:,} tokens with max_completion_length={length} is longer than the model's "
            f"{reader.context:,} tokens. Lower max_completion_length, or leave out long prompts (`max_prompt_length` "
            "in a recipe)."
        )
    if reader.has_table_of_positions():
        raise ValueError(problem)
    return [f"{problem} Beyond them, it was not trained."]


def check_sequence(prompt: list[int], completion: list[int], reader: Reader, what: str) -> list[str]:
    """Check the token ids of a prompt and of a completion that is given: as [`check_ids`] and [`check_length`]."""
    warnings = check_ids(prompt, reader, f"{what}: the prompt")
    warnings += check_ids(completion, reader, f"{what}: the completion")
    return warnings + check_length(len(prompt) + len(completion), reader, what)


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


def check_ids(ids: list[int], reader: Reader, what: str) -> list[str]:
    """Raise `ValueError` for no token, or one beyond the vocabulary. Warn of many that the tokenizer does not know."""
    tokenizer = reader.tokenizer
    size = reader.config.get_text_config().vocab_size
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
