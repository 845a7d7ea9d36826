"""The model of `delta-trl explain`, and the data in its tokens. What can be checked without its weights is, first."""

import textwrap
from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from ..arguments.errors import RecipeError
from ..evaluation.generation import ModelSource


def read_tokens(rows: list[dict], model: str, path: Path) -> PreTrainedTokenizerBase:
    """
    Add `prompt_ids` and `token_ids` to the rows; a chat becomes the text that the model reads.

    Args:
        rows (`list[dict]`): As `read_rows` returns them.
        model (`str`): Hub id or folder.
        path (`Path`): The data's file, for messages.

    Returns:
        `PreTrainedTokenizerBase`: The model's tokenizer.

    Raises:
        RecipeError: If the tokenizer cannot be loaded, or a line does not fit it or the model.
    """
    try:
        source = ModelSource(model)
        config = AutoConfig.from_pretrained(source.base() if source.is_adapter() else model).get_text_config()
        tokenizer = source.tokenizer()
    except Exception as error:  # what loading raises has no common type
        raise _not_loaded(model, error) from error
    limit = getattr(config, "max_position_embeddings", None)
    for row in rows:
        where = f"{path}, line {row['line']}"
        if isinstance(row["prompt"], list) and tokenizer.chat_template is None:
            raise RecipeError(
                f"{where}: the prompt is a chat, but the tokenizer of {model} has no chat template. Give the prompt "
                "as text, or take a model that has one."
            )
        for name, read in (("prompt", _read_prompt), ("completion", _read_completion)):
            try:
                read(row, tokenizer)
            except Exception as error:  # what tokenizers and chat templates raise has no common type
                raise RecipeError(f"{where}: the {name} cannot be tokenised: {_line(error)}") from error
        if not row["prompt_ids"]:
            raise RecipeError(f"{where}: the prompt has no token, so nothing predicts the completion's first one.")
        if not row["token_ids"]:
            raise RecipeError(f"{where}: the completion has no token.")
        if max(row["prompt_ids"] + row["token_ids"]) >= config.vocab_size:
            raise RecipeError(
                f"{where}: a token is beyond the vocabulary of {model}, {config.vocab_size:,}. Does the tokenizer in "
                "there belong to the model?"
            )
        length = len(row["prompt_ids"]) + len(row["token_ids"])
        if limit is not None and length > limit:
            raise RecipeError(
                f"{where}: prompt and completion have {length:,} tokens, more than the {limit:,} that {model} can "
                "read (max_position_embeddings)."
            )
    return tokenizer


def load_model(model: str, dtype: str, device: str) -> PreTrainedModel:
    """The causal language model. Raises `RecipeError` if it cannot be loaded, or is not all there."""
    try:
        loaded, found = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, output_loading_info=True)
        loaded = loaded.to(device).eval()
    except Exception as error:  # what loading raises has no common type
        raise _not_loaded(model, error) from error
    missing = sorted(found["missing_keys"])
    if missing:  # transformers would draw them at random
        raise RecipeError(
            f"--model {model}: these weights are missing: {', '.join(missing[:3])}{', …' * (len(missing) > 3)}. "
            "Expected a causal language model with its LM head."
        )
    return loaded


def _read_prompt(row: dict, tokenizer: PreTrainedTokenizerBase) -> None:
    if isinstance(row["prompt"], list):
        row["prompt"] = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        row["prompt_ids"] = tokenizer(row["prompt"], add_special_tokens=False).input_ids
    else:
        row["prompt_ids"] = tokenizer(row["prompt"]).input_ids


def _read_completion(row: dict, tokenizer: PreTrainedTokenizerBase) -> None:
    row["token_ids"] = tokenizer(row["completion"], add_special_tokens=False).input_ids


def _not_loaded(model: str, error: Exception) -> RecipeError:
    return RecipeError(f"--model {model}: cannot be loaded: {_line(error)}")


def _line(error: Exception) -> str:
    """The beginning of a message, where transformers says what is wrong; what follows are lists and advice."""
    return textwrap.shorten(str(error) or type(error).__name__, 240, placeholder=" …")
