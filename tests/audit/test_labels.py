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


def marked(one: Labelled) -> list[str]:
    return texts(one, one.marks)


@pytest.mark.parametrize(
    ("name", "source", "config", "split"),
    [
        ("processbench_gsm8k", "Qwen/ProcessBench", None, "gsm8k"),
        ("processbench_omnimath", "Qwen/ProcessBench", None, "omnimath"),
        ("humanevalpack", "bigcode/humanevalpack", "python", "test"),
    ],
)
def test_public_data_with_labels(name, source, config, split):
    data = LABELLED[name]
    assert (data.source, data.config, data.split) == (source, config, split)


def test_processbench_marks_the_first_wrong_step():
    wrong, right, alone, by_chance, nowhere = read("processbench_gsm8k", "processbench.jsonl")

    assert wrong.completion == (
        "In the afternoon she picks 12 * 2 = 24 apples.\n\nIn all she picks 12 + 24 = 38 apples.\n\n"
        "The answer is \\boxed{38}."
    )
    assert wrong.reward == 0
    assert marked(wrong) == ["In all she picks 12 + 24 = 38 apples.\n\n"]
    assert "".join(texts(wrong, wrong.units)) == wrong.completion

    assert right.reward == 1
    assert right.marks == []

    assert marked(alone) == ["Half an hour has 50 minutes.\n\n"]
    [message] = alone.prompt
    assert message["content"].startswith("A pri")
    assert message["content"].endswith("within \\boxed{}.")  # the recipes' template

    assert by_chance.reward == 1
    assert by_chance.marks == []  # a wrong step, but a right answer

    assert nowhere.reward == 0
    assert nowhere.marks == []  # a wrong answer, but no wrong step


def test_humanevalpack():
    right, wrong, longer, shorter = read("humanevalpack", "humanevalpack.jsonl")

    assert right.completion == "    return a + b\n"
    assert right.reward == 1
    assert marked(right) == ["+"]
    assert not right.units

    assert wrong.reward == 0
    assert marked(wrong) == ["-"]

    assert "".join(marked(longer)).strip().startswith("if not y")
    assert marked(shorter) == ["r"]  # what stands where something is missing


def test_what_lacks_its_end_has_its_last_character_marked():
    assert differing("return a", "return a + b") == [(7, 8)]


def test_of_long_texts_only_what_differs_is_marked():
    text = "".join(f"x{i} = {i}\n" for i in range(40))
    other = f"{text[:100]}?{text[101:]}"
    assert differing(text, other) == [(100, 101)]


OWN_ROW = {
    "prompt": "1+1=",
    "completion": "it is 3",
    "reward": 0.0,
    "marks": [[6, 7]],
    "units": [[0, 6], [6, 7]],
}


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(OWN_ROW) + "\n")
    [one] = load_labelled(LabelledData(str(path)))
    assert marked(one) == ["3"]
    assert texts(one, one.units) == ["it is ", "3"]


def test_marks_and_units_may_be_missing(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [
        {**OWN_ROW, "marks": None, "units": None},
        {key: OWN_ROW[key] for key in ("prompt", "completion", "reward")},
    ]
    for row in rows:
        path.write_text(json.dumps(row) + "\n")
        [one] = load_labelled(LabelledData(str(path)))
        assert (one.marks, one.units) == ([], [])


# --- in tokens ---


# what Qwen's tokenizers split texts by, and Llama's
@pytest.mark.parametrize(
    "change",
    [
        {"marks": [[6, 9]]},
        {"marks": [6]},
        {"units": [[3, 3]]},
        {"marks": [[-1, 2]]},
        {"marks": [[3, 3]]},
        {"marks": [[6, 8]]},
        {"units": [[0, 6]]},
        {"units": [[0, 6]], "marks": []},
        {"units": [[1, 7]]},
        {"units": [[0, 3], [4, 7]]},
        {"units": [[3, 7], [0, 3]]},
        {"completion": None},
    ],
    ids=str,
)
def test_a_row_that_does_not_fit_is_named(tmp_path, change):
    path = tmp_path / "mine.jsonl"
    good = OWN_ROW | {"marks": None, "units": None}
    path.write_text("\n".join(map(json.dumps, [good, OWN_ROW | change])))
    with pytest.raises(ValueError, match=r"mine.jsonl, row 2: .* It has prompt, completion"):
        load_labelled(LabelledData(str(path)))


SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def with_words(words: list[str]) -> Tokenizer:
    """Its tokens are these words."""
    vocabulary = {word: i for i, word in enumerate(words)}
    return Tokenizer(models.WordLevel(vocabulary, unk_token=words[0]))


@pytest.fixture(scope="module")
def tokenizer():
    """Of whole words as those of language models split them: ".\n\n" is one token."""
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    texts = ["p", "another", "    return abs(a - b) * 2\n"]
    texts += [one.completion for one in read("processbench_gsm8k", "processbench.jsonl")]
    words = []
    for text in texts:
        words += [word for word, _ in split.pre_tokenize_str(text)]
    tokenizer = with_words([*dict.fromkeys(words)])
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def row_of(one: Labelled, tokenizer, **config) -> dict:
    return to_row(one, Reader("m", tokenizer, PretrainedConfig(**config)))


def test_steps_in_tokens_that_swallow_line_breaks(tokenizer):
    one = read("processbench_gsm8k", "processbench.jsonl")[0]
    row = row_of(one, tokenizer)
    ids = np.array(row["token_ids"])
    units = np.array(row["unit"])
    assert ".\n\n" in tokenizer.convert_ids_to_tokens(ids)
    for unit, text in enumerate(texts(one, one.units)):  # ".\n\n" is a token of the step before
        assert tokenizer.decode(ids[units == unit]) == text
    assert row["marked"] == [1]


@pytest.mark.parametrize(
    ("marks", "units", "marked"),
    [
        ([(0, 1)], (), [0]),
        ([(1, 3)], (), [1, 2]),
        ([(0, 1), (6, 7)], (), [0, 6]),
        ([], (), []),
        ([(2, 3)], [(0, 3), (3, 7)], [0]),
        ([(3, 4)], [(0, 3), (3, 7)], [1]),
        ([(2, 4)], [(0, 3), (3, 7)], [0, 1]),
    ],
)
def test_units_that_a_mark_touches_are_marked(marks, units, marked):
    tokenizer = with_words([*"abc "])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    by_character = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    row = row_of(Labelled("a", "a b c a", 0.0, marks, units), by_character, max_position_embeddings=8)
    assert row["marked"] == marked
    assert row["unit"] == ([0] * 3 + [1] * 4 if units else [*range(7)])


@pytest.mark.parametrize(
    ("template", "read"),
    [
        (None, ["p", "\n", "another"]),
        ("{% for m in messages %}another{% endfor %}", ["another"] * 2),
    ],
)
def test_a_chat_is_read_by_the_template_or_as_its_texts(template, read):
    words = with_words(["p", "\n", "another"])
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"another|\n|p"), behavior="isolated")
    reads = PreTrainedTokenizerFast(tokenizer_object=words)
    reads.chat_template = template
    chat = [{"role": "system", "content": "p"}, {"role": "user", "content": "another"}]
    row = row_of(Labelled(chat, "p", 0.0), reads)
    assert reads.convert_ids_to_tokens(row["prompt_ids"]) == read
    assert row["prompt"] == "p\nanother"
    assert row["token_ids"] == [0]


def test_special_tokens_begin_prompts_and_no_completions():
    words = with_words(["<s>", "a", "b"])
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    with_bos = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")
    row = row_of(Labelled("a", "ba", 0.0, [(1, 2)]), with_bos)
    assert row["prompt_ids"] == [0, 1]
    assert row["token_ids"] == [2, 1]
    assert row["marked"] == [1]


def test_a_mark_on_the_space_before_a_word():
    """A tokenizer with `trim_offsets` leaves the space out of the offsets of its token."""
    tokenizer = with_words(["a", "Ġb"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trimmed = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    offsets = trimmed("a b", return_offsets_mapping=True)["offset_mapping"]
    assert offsets == [(0, 1), (2, 3)]
    space_is_marked = Labelled("a", "a b", 0.0, [(1, 2)])
    assert row_of(space_is_marked, trimmed)["marked"] == [1]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (Labelled("p", "another", 0.0, [(0, 2)], [(0, 2), (2, 7)]), "a unit begins inside a token"),
        (Labelled("p", "a b c", 0.0), "longer than the model's 3 tokens"),
        (Labelled("p", "", 0.0), "no token"),
        (Labelled("", "another", 0.0), "no token"),
    ],
)
def test_a_completion_that_cannot_be_scored_is_refused_with_the_reason(tokenizer, one, reason):
    with pytest.raises(UnfitError, match=reason):
        row_of(one, tokenizer, max_position_embeddings=3)
