from contextlib import nullcontext
from dataclasses import replace

import pytest
from transformers import GPT2Config, OPTConfig, ProcessorMixin, Qwen3Config

from delta_trl.scoring.checks import LONGEST, Reader, check_ids, check_length, check_prompts

from ..corpus import tiny


def test_no_token_and_one_beyond_the_vocabulary():
    reader = Reader("m", tiny.tokenizer(), Qwen3Config(vocab_size=6))
    with pytest.raises(ValueError, match="it has no token"):
        check_ids([], reader, "it")
    with pytest.raises(ValueError, match="beyond the vocabulary, 6"):
        check_ids([6], reader, "it")


@pytest.mark.parametrize(("unknown", "said"), [(1, False), (2, True)])
def test_words_that_the_tokenizer_does_not_know(unknown, said):
    """More than a tenth of them."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"unk_token": "?"})
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
POSITIONS = {  # with a table, nothing beyond it can be computed
    "rotary": (Qwen3Config(**LENGTHS), nullcontext()),
    "table": (GPT2Config(n_positions=10), pytest.raises(ValueError, match="longer than the model's 10 tokens")),
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


def test_a_processors_prompts_are_not_read():
    class Processor(ProcessorMixin):
        def __init__(self, tokenizer):
            super().__init__(tokenizer)

    reader = Reader("m", Processor(tiny.tokenizer()), Qwen3Config(vocab_size=1))
    assert check_prompts(["1" * 9], reader, "data") == []
