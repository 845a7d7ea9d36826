"""Reasoning that the prompt opens: a completion has the closing tag only, or none if its reasoning never ends."""

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .grader.extraction import REASONING_BEGINS, Completions, message_text


if TYPE_CHECKING:  # reward workers import this package, and stay light
    from transformers import PreTrainedTokenizerBase


Log = Callable[[str, Any], None]
"""What TRL hands to rewards for a column of its completions table, or for a metric."""

SPECIAL = re.compile(r"(?:(?:</s>|<eos>|<end_of_turn>|<\|\w{1,40}\|>)\s*+)++")  # tokens that a tokenizer may leave
OPENED = re.compile(rf"(?:{REASONING_BEGINS.pattern})\s*+\Z")


def no_log(name: str, value: Any) -> None:
    """For trainers that log nothing."""


def refuse_ungradable(completions: Completions, **columns: Sequence) -> None:
    """Raise `TypeError` for what is no list of completions, `ValueError` for columns that have not as many values."""
    if isinstance(completions, str):
        raise TypeError(
            f"The completions are one text, {completions!r:.200}: expected a list. Give [completion], and what it is "
            "checked against as a list, too."
        )
    for completion in completions:
        if not isinstance(completion, str | list):
            raise TypeError(f"A completion is {completion!r:.80}: expected a text, or a list of messages.")
    for name, values in columns.items():
        if len(values) != len(completions):
            raise ValueError(f"{len(values)} values in `{name}` for {len(completions)} completions: expected as many.")


def graded_texts(completions: Completions, prompts: list | None, reasoning_opened: bool | None) -> list[str]:
    """The texts to grade: completions after the tag with which their prompts, or the chat template, open reasoning."""
    texts = [without_special_end(message_text(completion)) for completion in completions]
    if reasoning_opened:
        opened = ["" if _is_parsed(completion) else "<think>" for completion in completions]
    else:
        opened = ["".join(OPENED.findall(text)) for text in begun_texts(prompts, len(texts))]
    return [tag + text for tag, text in zip(opened, texts, strict=True)]


def without_special_end(text: str) -> str:
    """A text without the special tokens and the white space at its end."""
    text = text.rstrip()
    for run in SPECIAL.finditer(text):  # a pattern that ends in `\Z` would read a run from each of its characters
        if run.end() == len(text):
            return text[: run.start()].rstrip()
    return text


def begun_texts(prompts: list | None, number: int) -> list[str]:
    """The texts that completions may continue: each prompt, or what an assistant's message at its end says."""
    if not prompts:
        return [""] * number
    return [prompt if isinstance(prompt, str) else message_text(prompt[-1:]) for prompt in prompts]


def opens_reasoning(prompt: Any, tokenizer: "PreTrainedTokenizerBase", template: dict | None) -> bool:
    """Whether the chat template ends a prompt with the tag that opens the reasoning. It has no part in texts."""
    if isinstance(prompt, str):
        return False
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **(template or {}))
    return OPENED.search(text) is not None


def told_of_reasoning(
    rewards: Iterable[Callable], prompt: Any, tokenizer: "PreTrainedTokenizerBase", template: dict | None
) -> list[Callable]:
    """
    The rewards of a run. Where the chat template opens the reasoning, copies of those whose `reasoning_opened` is
    `None` know it: they see no text of the template.
    """
    told = list(rewards)
    asking = [i for i, reward in enumerate(told) if getattr(reward, "reasoning_opened", False) is None]
    is_parsed = any(getattr(tokenizer, name, None) for name in ("response_template", "response_schema"))
    if asking and not is_parsed and opens_reasoning(prompt, tokenizer, template):
        for i in asking:
            told[i] = copy.copy(told[i])
            told[i].reasoning_opened = True  # type: ignore[attr-defined]
    return told


def _is_parsed(completion: Any) -> bool:
    """Whether TRL has taken the reasoning out of the text, as where a tokenizer says how to parse responses."""
    keys = {"reasoning_content", "thinking"}
    return not isinstance(completion, str) and any(keys.intersection(message) for message in completion)
