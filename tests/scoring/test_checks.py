from contextlib import nullcontext

import pytest
from transformers import ProcessorMixin, Qwen3Config

from delta_trl.scoring.checks import check_ids, check_prompts

from ..corpus import tiny


def test_no_token_and_one_beyond_the_vocabulary():
    for ids, problem in (([], "it has no token"), ([6], "beyond the vocabulary, 6")):
        with pytest.raises(ValueError, match=problem):
            check_ids(ids, tiny.tokenizer(), Qwen3Config(vocab_size=6), "it")


@pytest.mark.parametrize(("unknown", "said"), [(1, False), (2, True)])
def test_words_that_the_tokenizer_does_not_know(unknown, said):
    """More than a tenth of them."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"unk_token": "?"})
    ids = [tokenizer.unk_token_id] * unknown + [5] * (10 - unknown)
    found = check_ids(ids, tokenizer, Qwen3Config(), "it")
    assert [f"it has {unknown} tokens of 10 that the tokenizer of" in text for text in found] == [True] * said


@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_first_prompt_and_the_longest_are_read(row):
    prompts = ["1", "2", "3" * 4]
    prompts[row] = "4" * len(prompts[row])
    known = tiny.tokenizer()
    size = known.convert_tokens_to_ids("4")
    refused = pytest.raises(ValueError, match=f"data, row {row + 1}: the prompt has a token beyond the vocabulary")
    with nullcontext() if row == 1 else refused:
        assert check_prompts(prompts, known, Qwen3Config(vocab_size=size), "data") == []


def test_a_processors_prompts_are_not_read():
    class Processor(ProcessorMixin):
        def __init__(self, tokenizer):
            super().__init__(tokenizer)

    assert check_prompts(["1" * 9], Processor(tiny.tokenizer()), Qwen3Config(vocab_size=1), "data") == []
