from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models
from transformers import (
    GPT2Config,
    GPTJConfig,
    LlavaConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen3Config,
)

from delta_trl.scoring.checks import (
    LONGEST,
    Reader,
    check_ids,
    check_length,
    check_prompts,
    check_sequence,
    check_tokenizer,
)

from ..corpus import tiny


def of_text_and_images(**options) -> SimpleNamespace:
    """A config that holds that of the text."""
    return SimpleNamespace(get_text_config=lambda: SimpleNamespace(**options))


@pytest.mark.parametrize("kind", [Qwen3Config, of_text_and_images])
def test_no_token_and_one_beyond_the_vocabulary(kind):
    reader = Reader("m", tiny.tokenizer(), kind(vocab_size=6))
    assert check_ids([0, 5], reader, "it") == []
    with pytest.raises(ValueError, match="it has no token"):
        check_ids([], reader, "it")
    with pytest.raises(ValueError, match="beyond the vocabulary, 6"):
        check_ids([6, 0], reader, "it")


def test_a_given_completion_is_checked_as_its_prompt_is():
    """And both together against the context, without any token to come."""
    tokenizer = tiny.tokenizer()
    reader = Reader("m", tokenizer, GPT2Config(vocab_size=6, n_positions=5))
    assert check_sequence([1, 2, 3], [4, 5], reader, "line 7") == []
    tokenizer.unk_token_id = 4
    of_prompt, of_completion = check_sequence([4], [4, 4], reader, "line 7")
    assert "line 7: the prompt has 1 tokens of 1 that" in of_prompt
    assert "line 7: the completion has 2 tokens of 2 that" in of_completion
    for prompt, completion, message in (
        ([6], [1], "line 7: the prompt has a token beyond"),
        ([1], [6], "line 7: the completion has a token beyond"),
        ([1], [], "line 7: the completion has no token"),
        ([1, 2, 3], [3, 4, 5], r"line 7 has 6 tokens, longer than the model's 5\.$"),
    ):
        with pytest.raises(ValueError, match=message):
            check_sequence(prompt, completion, reader, "line 7")


@pytest.mark.parametrize(
    ("unknown", "token", "said"),
    [
        (1, "?", False),
        (2, "?", True),
        (2, "<eos>", False),  # some tokenizers end a text with the same token
        (2, "<pad>", False),  # or begin it
    ],
)
def test_words_that_the_tokenizer_does_not_know(unknown, token, said):
    """More than a tenth of them."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"unk_token": token, "bos_token": "<pad>"})
    ids = [5] * 10
    ids[:unknown] = [tokenizer.unk_token_id] * unknown
    found = check_ids(ids, Reader("m", tokenizer, Qwen3Config()), "it")
    assert len(found) == said
    for text in found:
        assert f"it has {unknown} tokens of 10 that the tokenizer of" in text


@pytest.mark.parametrize(
    ("row", "is_read"),
    [
        (0, True),
        (1, False),
        (LONGEST + 1, True),
    ],
)
def test_the_first_prompt_and_the_longest_are_read(row, is_read):
    prompts = ["1", "2", *["3333"] * LONGEST]
    prompts[row] = "4" * len(prompts[row])
    tokenizer = tiny.tokenizer()
    size = tokenizer.convert_tokens_to_ids("4")
    without_4 = Qwen3Config(vocab_size=size)
    reader = Reader("m", tokenizer, without_4)
    refused = pytest.raises(ValueError, match=f"data, row {row + 1}: the prompt has a token beyond the vocabulary")
    with refused if is_read else nullcontext():
        assert check_prompts(prompts, reader, "data") == []


LENGTHS = {"max_position_embeddings": 10}


class OfItsOwn(PretrainedConfig):
    """Of a model with code of its own, whose tables nobody sees."""

    model_type = "of_its_own"
    max_position_embeddings = 10
    vocab_size = 99


POSITIONS = {  # with a table, nothing beyond it can be computed
    "rotary": (Qwen3Config(**LENGTHS), nullcontext()),
    "with images": (LlavaConfig(text_config=Qwen3Config(**LENGTHS)), nullcontext()),
    "code of its own": (OfItsOwn(), nullcontext()),
    "table": (GPT2Config(n_positions=10), pytest.raises(ValueError, match="longer than the model's 10 tokens")),
    "computed": (GPTJConfig(n_positions=10, n_layer=1), pytest.raises(ValueError, match="longer than the model's 10")),
    "of a text": (LlavaConfig(text_config=GPT2Config(n_positions=10)), pytest.raises(ValueError, match="model's 10")),
    "table with an offset": (OPTConfig(**LENGTHS), pytest.raises(ValueError, match="longer than the model's 10")),
}


@pytest.mark.parametrize(("config", "beyond"), POSITIONS.values(), ids=POSITIONS)
def test_prompts_beyond_the_models_context_are_named(config, beyond):
    reader = Reader("m", tiny.tokenizer(), config, max_completion_length=6)
    assert check_prompts(["1234", "1"], reader, "data") == []
    with beyond:
        [warning] = check_prompts(["1", "12345"], reader, "data")
        assert "data, row 2: the prompt of 5 tokens with max_completion_length=6 is longer than" in warning
    with pytest.raises(ValueError, match="vllm_max_model_length=4"):
        check_length(4, replace(reader, vllm_limit=4), "it")
    assert check_length(4, replace(reader, vllm_limit=5), "it") == []  # a token is left for the completion


def test_prompts_have_one_warning_of_each_kind():
    """The longest has the most tokens, not the most characters."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"unk_token": "1"})
    reader = Reader("m", tokenizer, Qwen3Config(max_position_embeddings=4))
    unknown, too_long = check_prompts(["1", "11111", "<eos><eos>"], reader, "data")
    assert "data, row 1: the prompt has 1 tokens of 1 that" in unknown
    assert "data, row 2: the prompt has 5 tokens, longer than the model's 4" in too_long


@pytest.mark.parametrize("options", [{}, {"max_position_embeddings": None}])
def test_a_model_that_declares_no_context_has_no_limit(options):
    config = of_text_and_images(**options)
    assert check_length(10**9, Reader("m", tiny.tokenizer(), config), "it") == []


def test_a_tokenizer_whose_end_is_token_0_ends_completions():
    tokenizer = tiny.tokenizer()
    tokenizer.eos_token = "<pad>"
    reader = Reader("m", tokenizer, Qwen3Config())
    assert check_prompts(["1"], reader, "data") == []
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="'m' has no eos_token"):
        check_prompts(["1"], reader, "data")


def test_a_tokenizer_without_files_is_refused():
    empty = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="<eos>")
    with pytest.raises(ValueError, match="'m' has no tokenizer files"):
        check_tokenizer(empty, "m")
    with pytest.raises(ValueError, match="'m' has no tokenizer files"):
        check_tokenizer(Processor(empty), "m")


TURNS = [tiny.message("user", "1+1="), tiny.message("assistant", "2"), tiny.message("user", "2+2=")]
ASKED_AGAIN = [*TURNS[:2], tiny.message("user", "1+1=")]
CHATS = {  # a template, arguments of it, a chat, and what is wrong
    "last question": ("{{ messages[-1].content }}", None, TURNS, None),
    "first question": ("{{ messages[0].content }}", None, TURNS, "leaves out '2\\+2='"),
    "before a reply": ("{{ messages[-1].content }}", None, TURNS[:2], "leaves out '1\\+1='"),
    "first of two equal ones": ("{{ messages[0].content }}", None, ASKED_AGAIN, "leaves out '1\\+1='"),
    "cut off": ("{{ messages[-1].content[:4] }}", None, TURNS, "leaves out"),
    "with an argument": ("{% if on %}{{ messages[-1].content }}{% endif %}1", {"on": True}, TURNS, None),
    "without it": ("{% if on %}{{ messages[-1].content }}{% endif %}1", None, TURNS, "leaves out"),
    "lost with it": ("{% if not off %}{{ messages[-1].content }}{% endif %}1", {"off": True}, TURNS, "leaves out"),
    "no user": ("{{ messages[0].content }}", None, [tiny.message("system", "1")], None),
    "parts": ("1", None, [*TURNS[:2], tiny.message("user", [{"type": "text", "text": "1"}])], None),
    "error": ("{{ raise_exception('no') }}", None, TURNS, "data, row 1: the prompt cannot be read .*no"),
}


@pytest.mark.parametrize(("template", "arguments", "chat", "problem"), CHATS.values(), ids=CHATS)
def test_chats_that_the_template_loses_are_refused(template, arguments, chat, problem):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = template
    reader = Reader("m", tokenizer, Qwen3Config(), arguments)
    with pytest.raises(ValueError, match=problem) if problem else nullcontext():
        assert check_prompts([chat], reader, "data") == []


def test_the_longest_chat_is_that_of_most_characters():
    """Not of most messages."""
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = tiny.CHAT
    reader = Reader("m", tokenizer, Qwen3Config(max_position_embeddings=99))
    chats = [[tiny.message("user", "1"), tiny.message("user", "2")]] * (LONGEST + 1) + [
        [tiny.message("user", "3" * 100)]
    ]
    [warning] = check_prompts(chats, reader, "data")
    assert warning.startswith(f"data, row {LONGEST + 2}: the prompt has 100 tokens")


class Processor(ProcessorMixin):
    def __init__(self, tokenizer):
        super().__init__(tokenizer)


def test_a_processors_prompts_are_not_read():
    reader = Reader("m", Processor(tiny.tokenizer()), Qwen3Config(vocab_size=1))
    assert check_prompts(["1" * 9], reader, "data") == []
    assert reader.tokenizer.eos_token == "<eos>"
