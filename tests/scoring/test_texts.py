"""The texts of single tokens join to the text of all, whatever the tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from delta_trl.scoring.texts import REPLACEMENT, TokenTexts

from ..corpus import tiny


def fast(model, decoder) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.decoder = decoder
    cleans = {"clean_up_tokenization_spaces": True}  # which would change what was written
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", **cleans)


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


def test_spaces_before_marks_stay():
    tokenizer = TOKENIZERS["words"]
    ids = tokenizer.convert_tokens_to_ids(["▁the", "▁", ",", "▁", "'", "s"])
    assert tokenizer.decode(ids) == "the,'s"
    texts = TokenTexts(tokenizer)
    assert texts.of_sequence(ids) == ["the", " ", ",", " ", "'", "s"]
    assert texts.decode(ids) == "the , 's"


def test_a_character_of_several_tokens_is_with_the_last():
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.convert_tokens_to_ids(list("Ã©âĤ¬xâĤ"))  # é and € are two and three bytes; cut off
    texts = TokenTexts(tokenizer).of_sequence(ids)
    assert texts == ["", "é", "", "", "€", "x", "", REPLACEMENT]


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(data=st.data())
def test_turns_are_what_the_policy_wrote_between_two_texts_of_tools(tokenizer, data):
    """Special tokens have no text; those that are without text for another reason have an empty one."""
    token = st.integers(0, len(tokenizer) - 1)
    pieces = data.draw(st.lists(st.tuples(st.booleans(), st.lists(token, min_size=1, max_size=5)), max_size=4))
    ids = [number for _, piece in pieces for number in piece]
    of_policy = [int(is_policys) for is_policys, piece in pieces for _ in piece]
    prompt = [0]
    texts, turns = TokenTexts(tokenizer).of_turns(ids, of_policy, prompt)
    assert prompt == [0]

    in_turns = [i for turn in turns for i in range(turn.first, turn.last + 1)]
    assert in_turns == [i for i, is_policys in enumerate(of_policy) if is_policys]
    has_text = [i for i in in_turns if ids[i] not in tokenizer.all_special_ids]
    assert [i for i, text in enumerate(texts) if text is not None] == has_text
    start = 0
    for turn in turns:
        assert of_policy[turn.first - 1 : turn.first] in ([], [0])
        assert of_policy[turn.last + 1 : turn.last + 2] in ([], [0])
        written = ids[turn.first : turn.last + 1]
        shown = tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert turn.text == "".join(text or "" for text in texts[turn.first : turn.last + 1]) == shown
        assert (turn.start, turn.end) == (start, start + len(shown))
        start = turn.end
