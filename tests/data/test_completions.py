"""Completions from a file of JSON lines: what cannot be used is named with its line."""

import json

import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.data.completions import read_completions

from ..corpus.tiny import PAIR


def lines(*rows):
    return "\n".join(map(json.dumps, rows))


def with_row(**changes):
    return lines(*PAIR, {**PAIR[0], **changes})


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "data.jsonl"

    def read(text):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_completions(path)

    return read


@pytest.mark.parametrize("right", [1, 1.0, True])
def test_groups_are_prompts(read, right):
    text = {"prompt": "1+1=", "completion": "2", "reward": right}
    chat = {"prompt": [{"role": "user", "content": "1+1="}], "completion": "2", "reward": None}
    rows = read("\n" + lines(text, chat, PAIR[1]) + "\n\n")
    found = [(row["line"], row["group"], repr(row["reward"])) for row in rows]
    assert found == [
        (2, 0, "1.0"),
        (4, 0, "0.0"),
        (3, 1, "None"),
    ]


def test_the_order_of_a_message_s_keys_makes_no_other_prompt(read):
    one_way = [{"role": "user", "content": "1+1="}]
    the_other = [{"content": "1+1=", "role": "user"}]
    rows = read(lines(PAIR[0] | {"prompt": one_way}, PAIR[1] | {"prompt": the_other}))
    assert [row["group"] for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[" * 100_000, 1),
        (b'{"prompt": "\xff"}', 1),
        ('{"prompt": "a"}', 1),
        ('{"prompt": "a", "completion": "b"}', 1),
        (with_row(prompt=""), 3),
        (with_row(prompt=[{"content": "a"}]), 3),
        ("\n\n" + with_row(completion=3), 5),
        (with_row(reward=float("nan")), 3),
        (with_row(reward=float("-inf")), 3),
        (with_row(reward=10**400), 3),  # no float
        (with_row(reward="1"), 3),
        (with_row(token_ids=[2]), 3),
        (with_row(turns=[1]), 3),
        (with_row(token_ids=[2], turns=[True]), 3),
        (with_row(token_ids=[], turns=[]), 3),
        (with_row(token_ids=[2.0], turns=[1]), 3),
        (with_row(token_ids=[2], turns=[1, 1]), 3),
        (with_row(token_ids=[2, 3], turns="12"), 3),
    ],
    ids=lambda x: str(x)[:40],
)
def test_mistakes_name_the_line(read, text, line):
    with pytest.raises(UsageError, match=rf"data\.jsonl, line {line}: "):
        read(text)


def test_what_is_not_json_is_named_with_its_character(read):
    with pytest.raises(UsageError, match="line 2: not JSON, Expecting value at character 12"):
        read('\n{"prompt": a}')


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_completions(tmp_path)


def test_only_line_feeds_end_a_line(read):
    """Not what ends lines of texts, and stands in them unescaped."""
    text = "1\u2028\x851"
    rows = [row | {"completion": text} for row in PAIR]
    written = "\r\n".join([*(json.dumps(row, ensure_ascii=False) for row in rows), "", " "])
    assert [(row["line"], row["completion"]) for row in read(written)] == [(1, text), (2, text)]


def test_an_empty_completion_is_named(read):
    with pytest.raises(UsageError, match="line 3: empty completion"):
        read(with_row(completion=""))


RIGHT, WRONG = PAIR


@pytest.mark.parametrize(
    "rows",
    [
        [RIGHT | {"reward": None}, WRONG],
        [RIGHT, WRONG | {"reward": 1}],
        [RIGHT, WRONG | {"prompt": "1+2="}],
    ],
    ids=["one reward", "equal rewards", "two prompts"],
)
def test_nothing_to_contrast(read, rows):
    with pytest.raises(UsageError, match=r"data\.jsonl"):
        read(lines(*rows))
