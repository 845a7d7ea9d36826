"""The texts of single tokens join to the text of all, whatever the tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from delta_trl.scoring.texts import TokenTexts

from ..corpus import tiny


def fast(model, decoder) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")


def numbered(words: list[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words)}


BYTES = numbered(sorted(pre_tokenizers.ByteLevel.alphabet()))
WORDS = numbered(["▁the", "▁", "the", "▁é", "'", "s", "##s", ",", "a"])
TOKENIZERS = {
    "bytes": fast(models.BPE(BYTES, []), decoders.ByteLevel()),
    "words": fast(models.WordLevel(WORDS, unk_token="a"), decoders.Metaspace()),
    "word pieces": fast(models.WordPiece(WORDS, unk_token="a"), decoders.WordPiece()),
    "no decoder": tiny.tokenizer(),
}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(data=st.data())
def test_token_texts_join_to_the_text(tokenizer, data):
    token = st.integers(0, len(tokenizer) - 1)
    ids = data.draw(st.lists(token, max_size=12))
    texts = TokenTexts(tokenizer).of_sequence(ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_a_character_of_several_tokens_is_with_the_last():
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.convert_tokens_to_ids(list("Ã©âĤ¬x"))  # é and € are two and three bytes
    texts = TokenTexts(tokenizer).of_sequence(ids)
    assert texts == ["", "é", "", "", "€", "x"]
