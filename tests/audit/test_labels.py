"""Labelled completions: every schema on rows made by hand, and their marks in the tokens of real tokenizers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PretrainedConfig, PreTrainedTokenizerFast

from delta_trl.audit.labelled import LABELLED, Labelled, LabelledData, UnfitError, differing, load_labelled, to_row
from delta_trl.scoring.checks import Reader


FIXTURES = Path(__file__).parents[1] / "fixtures"


def read(name: str, file: str) -> list[Labelled]:
    return load_labelled(replace(LABELLED[name], source=str(FIXTURES / file)))


def texts(one: Labelled, ranges) -> list[str]:
    return [one.completion[start:end] for start, end in ranges]


def test_processbench_marks_the_first_wrong_step():
    wrong, right, alone, by_chance, _ = read("processbench_gsm8k", "processbench.jsonl")
    assert wrong.completion == (
        "In the afternoon she picks 12 * 2 = 24 apples.\n\nIn all she picks 12 + 24 = 38 apples.\n\n"
        "The answer is \\boxed{38}."
    )
    assert wrong.reward == 0
    assert texts(wrong, wrong.marks) == ["In all she picks 12 + 24 = 38 apples.\n\n"]
    assert "".join(texts(wrong, wrong.units)) == wrong.completion
    assert (right.reward, right.marks) == (1, [])
    assert texts(alone, alone.marks) == ["Half an hour has 50 minutes.\n\n"]
    assert (by_chance.reward, by_chance.marks) == (1, [])  # a wrong step, but a right answer
    [message] = alone.prompt
    assert message["content"].startswith("A pri")
    assert message["content"].endswith("within \\boxed{}.")  # the recipes' template


def test_humanevalpack():
    right, wrong, longer, shorter = read("humanevalpack", "humanevalpack.jsonl")
    assert (right.completion, right.reward) == ("    return a + b\n", 1)
    assert texts(right, right.marks) == ["+"]
    assert (texts(wrong, wrong.marks), wrong.reward) == (["-"], 0)
    assert "".join(texts(longer, longer.marks)).strip().startswith("if not y")
    assert texts(shorter, shorter.marks) == ["r"]  # what stands where something is missing
    assert not right.units
    assert differing("return a", "return a + b") == [(7, 8)]  # what lacks its end has its last character marked


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.jsonl"
    row = {"prompt": "1+1=", "completion": "it is 3", "reward": 0.0, "marks": [[6, 7]], "units": [[0, 6], [6, 7]]}
    path.write_text(json.dumps(row) + "\n")
    data = LabelledData(str(path))
    (one,) = load_labelled(data)
    assert texts(one, one.marks) == ["3"]
    assert texts(one, one.units) == ["it is ", "3"]
    wrong = ({"marks": [[6, 9]]}, {"marks": [6]}, {"units": [[3, 3]]}, {"units": [[0, 6]]}, {"completion": None})
    for change in wrong:
        path.write_text(json.dumps(row | change) + "\n")
        with pytest.raises(ValueError, match=r"mine.jsonl, row 1: .* It has prompt, completion"):
            load_labelled(data)


# --- in tokens ---


# what Qwen's tokenizers split texts by, and Llama's
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="module")
def tokenizer():
    """Of whole words as those of language models split them: ".\n\n" is one token."""
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    texts = [one.completion for one in read("processbench_gsm8k", "processbench.jsonl")]
    texts += ["    return abs(a - b) * 2\n", "another", "p"]
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="p"))
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_steps_in_tokens_that_swallow_line_breaks(tokenizer):
    one = read("processbench_gsm8k", "processbench.jsonl")[0]
    row = to_row(one, Reader("m", tokenizer, PretrainedConfig()))
    assert ".\n\n" in tokenizer.convert_ids_to_tokens(row["token_ids"])
    ids, units = np.array(row["token_ids"]), np.array(row["unit"])
    for unit, text in enumerate(texts(one, one.units)):  # ".\n\n" is a token of the step before
        assert tokenizer.decode(ids[units == unit]) == text
    assert row["marked"] == [1]


def test_a_mark_on_the_space_before_a_word():
    """A tokenizer with `trim_offsets` leaves the space out of the offsets of its token."""
    tokens = ["a", "Ġb"]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trimmed = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    assert trimmed("a b", return_offsets_mapping=True)["offset_mapping"] == [(0, 1), (2, 3)]
    assert to_row(Labelled("a", "a b", 0.0, [(1, 2)]), Reader("m", trimmed, PretrainedConfig()))["marked"] == [1]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (Labelled("p", "another", 0.0, [(0, 2)], [(0, 2), (2, 7)]), "a unit begins inside a token"),
        (Labelled("p", "a b c d", 0.0), "longer than the model's 3 tokens"),
        (Labelled("p", "", 0.0), "no token"),
    ],
)
def test_a_completion_that_cannot_be_scored_is_refused_with_the_reason(tokenizer, one, reason):
    with pytest.raises(UnfitError, match=reason):
        to_row(one, Reader("m", tokenizer, PretrainedConfig(max_position_embeddings=3)))
