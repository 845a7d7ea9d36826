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


BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ["▁the", "▁", "the", "▁é", "'", "s", "##s", ",", "a"]
TOKENIZERS = {
    "bytes": fast(models.BPE({b: i for i, b in enumerate(BYTES)}, []), decoders.ByteLevel()),
    "words": fast(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="a"), decoders.Metaspace()),
    "word pieces": fast(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="a"), decoders.WordPiece()),
    "no decoder": tiny.tokenizer(),
}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(data=st.data())
def test_token_texts_join_to_the_text(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=12))
    texts = TokenTexts(tokenizer).of_sequence(ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_a_character_of_several_tokens_is_with_the_last():
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.convert_tokens_to_ids(list("Ã©âĤ¬x"))  # é and € are two and three bytes
    assert TokenTexts(tokenizer).of_sequence(ids) == ["", "é", "", "", "€", "x"]
