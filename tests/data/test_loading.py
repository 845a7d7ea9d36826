import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from datasets import Dataset, Features, Value
from transformers import Qwen3Config

from delta_trl.data.loading import drop_long_prompts, drop_rows_without_gold, load, local_format, prepare
from delta_trl.data.preflight import preflight
from delta_trl.rewards import MathReward
from delta_trl.scoring.checks import Reader

from ..corpus import tiny
from ..corpus.tiny import message


FIXTURES = Path(__file__).parents[1] / "fixtures"
ROWS = [
    {"question": "1+1?", "answer": "2"},
    {"question": "2+2?", "answer": "4"},
]


def test_an_id_on_the_hub_is_no_file_whatever_it_ends_with():
    assert local_format("org/numina-1.5") is None
    assert local_format("org/numina-1.5.JSONL") == "json"


def test_a_local_file_or_folder_is_loaded_as_it_stands(tmp_path):
    path = str(tmp_path / "data[1].parquet")  # no pattern
    Dataset.from_list(ROWS).to_parquet(path)
    for split in ("train", "test"):  # a file is one split, whatever it is for
        assert load(path, split=split).to_list() == ROWS
    assert load(path, split="train[1:]").to_list() == ROWS[1:]
    assert load(str(tmp_path)).to_list() == ROWS  # a folder goes the way of a hub dataset

    path = str(tmp_path / "data.json")
    Dataset.from_list(ROWS).to_json(path)
    assert load(path).to_list() == ROWS

    path = str(tmp_path / "data.CSV")
    Dataset.from_list(ROWS).to_csv(path)
    assert load(path).to_list() == [{**row, "answer": int(row["answer"])} for row in ROWS]


def test_a_configuration_is_loaded_by_its_name(tmp_path):
    files = []
    for name, row in zip(("one", "other"), ROWS, strict=True):
        Dataset.from_list([row]).to_json(tmp_path / f"{name}.jsonl")
        files.append(f"- {{config_name: {name}, data_files: {name}.jsonl}}")
    (tmp_path / "README.md").write_text("\n".join(["---", "configs:", *files, "---"]))
    for name, row in zip(("one", "other"), ROWS, strict=True):
        assert load(str(tmp_path), name).to_list() == [row]


def test_decimals_of_32_bits_keep_their_text(tmp_path):
    path = str(tmp_path / "data.parquet")
    features = Features({"solution": Value("float32")})
    data = Dataset.from_dict({"solution": [0.1, None]}, features)
    data.to_parquet(path)
    assert load(path)["solution"][:] == [0.1, None]


def test_a_file_that_cannot_be_loaded_is_named(tmp_path):
    (tmp_path / "broken.parquet").write_text("no table")
    with pytest.raises(ValueError, match=r"broken\.parquet' cannot be loaded"):
        load(str(tmp_path / "broken.parquet"))


# --- columns and prompts ---


def prepared(prompt, **options):
    return prepare(Dataset.from_list([{"prompt": prompt}]), **options)[0]["prompt"]


def test_columns_are_renamed_and_prompts_put_into_the_template():
    mapping = {"question": "prompt", "answer": "solution"}
    rows = prepare(Dataset.from_list(ROWS), mapping, prompt_template=r"{prompt} Answer in \boxed{}.")
    assert rows[0] == {"prompt": r"1+1? Answer in \boxed{}.", "solution": "2"}
    templated = prepared("1+1?", prompt_template="Q: {prompt}", conversational=True)
    assert templated == [message("user", "Q: 1+1?")]
    assert prepared(" {1+1}?\n", prompt_template="Q: {prompt}{}\n") == "Q:  {1+1}?\n{}\n"


@pytest.mark.parametrize(
    "prompt",
    [
        "1+1?",
        [message("user", "1+1?")],
        [message("system", "Theirs."), message("user", "1+1?")],
    ],
    ids=["text", "chat", "chat with a system message"],
)
def test_a_system_prompt_begins_every_chat(prompt):
    expected = [message("system", "Mine."), message("user", "Q: 1+1?")]
    assert prepared(prompt, prompt_template="Q: {prompt}", system_prompt="Mine.") == expected


def test_columns_are_renamed_at_once():
    row = {"problem": "1+1?", "solution": "One and one.", "answer": "2"}  # MATH-500's
    data = Dataset.from_list([row])
    mapping = {"problem": "prompt", "answer": "solution", "solution": "reasoning"}
    in_reverse = dict(reversed(mapping.items()))
    expected = {"prompt": "1+1?", "solution": "2", "reasoning": "One and one."}
    assert prepare(data, mapping).to_list() == [expected]
    assert prepare(data, in_reverse).to_list() == [expected]

    del mapping["solution"]  # a column that has the new name already is replaced
    assert prepare(data, mapping).to_list() == [{"prompt": "1+1?", "solution": "2"}]


def test_prompts_that_are_conversations_already():
    chat = [
        message("system", "Mine."),
        message("user", "1+1?"),
        message("assistant", "2"),
        message("user", "2+2?"),
        message("assistant", "It is"),
    ]
    expected = [*chat[:3], message("user", "Q: 2+2?"), chat[4]]
    assert prepared(chat, prompt_template="Q: {prompt}") == expected
    assert prepared(chat, conversational=True) == chat
    assert prepared(chat, system_prompt="Another.") == [message("system", "Another."), *chat[1:]]

    first = {"type": "text", "text": "A sum."}
    last = {"type": "text", "text": "1+1?"}
    image = {"type": "image", "text": None}
    templated = {"type": "text", "text": "Q: 1+1?"}
    parts = [message("user", [first, last, image])]
    assert prepared(parts, conversational=True) == parts
    for nobody_asks in (chat[:1], [message("user", [image])]):
        assert prepared(nobody_asks, prompt_template="Q: {prompt}") == nobody_asks
    assert prepared(parts, prompt_template="Q: {prompt}") == [message("user", [first, templated, image])]


CHAT = [message("user", "1+1=")]


@pytest.mark.parametrize(
    ("good", "prompt"),
    [
        ("1+1=", None),
        ("1+1=", " "),
        (CHAT, []),
        (CHAT, [{"role": "user"}]),
        (CHAT, [message("user", "")]),
        (CHAT, [message("", "1+1=")]),
        ("1+1=", CHAT),
    ],
    ids=str,
)
def test_malformed_prompts_are_named_by_their_row(tmp_path, good, prompt):
    path = tmp_path / "my.jsonl"
    rows = [{"prompt": good}, {"prompt": prompt}]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=r"mine, row 2, column 'prompt'"):
        prepare(load(str(path)), name="mine")


# --- rows that are left out ---


def math_like(completions, solution, **kwargs): ...


def code_like(completions, tests, **kwargs): ...


def takes_no_gold(completions, **kwargs): ...


@pytest.mark.parametrize(
    ("name", "reward", "left_out"),
    [
        ("deepmath", math_like, "1 of 5 rows .* 'solution'"),
        ("eurus_code", code_like, "3 of 5 rows .* 'tests'"),
    ],
)
def test_rows_without_gold_are_counted_and_left_out(caplog, name, reward, left_out):
    dataset = load(str(FIXTURES / f"{name}.jsonl"), dataset_format=name)
    kept = drop_rows_without_gold(dataset, [reward], name)
    assert re.search(f"{name}: {left_out}", caplog.text)
    (column,) = {"solution", "tests"}.intersection(kept.column_names)
    assert all(kept[column])
    assert drop_rows_without_gold(dataset, [takes_no_gold], name) is dataset


BOTH_GOLDS = {"solution": ["1", "1", ""], "tests": ["1", None, "1"]}


@pytest.mark.parametrize(
    ("columns", "rewards", "kept", "golds"),
    [
        ({"solution": [None, 0, 3]}, [math_like], [1, 2], "'solution'"),
        ({"solution": ["", " \n", "0"]}, [math_like, takes_no_gold], [2], "'solution'"),
        (BOTH_GOLDS, [takes_no_gold, math_like], [0, 1], "'solution'"),
        (BOTH_GOLDS, [math_like, code_like], [0], "'solution' or 'tests'"),
    ],
)
def test_rows_with_a_gold_for_each_reward_are_kept(caplog, columns, rewards, kept, golds):
    dataset = Dataset.from_dict({"row": [0, 1, 2], **columns})
    assert drop_rows_without_gold(dataset, rewards, "mine")["row"][:] == kept
    assert f"they have no usable {golds}." in caplog.text


def test_long_prompts_are_left_out_with_a_count(caplog):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = tiny.CHAT + "{% if add_generation_prompt %}={% endif %}{{ suffix }}"
    prompts = [[message("user", text)] for text in ("1", "11", "111", "1111")]
    data = Dataset.from_dict({"prompt": prompts})
    kept = drop_long_prompts(data, tokenizer, 3, "data.jsonl")
    assert len(kept) == 2  # the template adds a token
    assert "data.jsonl: 2 of 4 rows are left out" in caplog.text
    reader = Reader("m", tokenizer, Qwen3Config(), {"suffix": "0"})  # options of a template may add tokens, too
    checked = preflight(data, "data.jsonl", [], [], reader, refuses=True, max_prompt_length=3)
    assert len(checked.dataset) == 1
    assert checked.left_out == 3
    with pytest.raises(ValueError, match="max_prompt_length=0"):
        drop_long_prompts(kept, tokenizer, 0, "data.jsonl")


# --- the preflight ---


def test_rewards_are_told_of_reasoning_where_golds_are_not_tried():
    """As on all processes but the first."""
    tokenizer = tiny.tokenizer("1<think>")
    tokenizer.chat_template = tiny.CHAT + "<think>"
    data = Dataset.from_dict({"prompt": [[message("user", "1")]], "solution": ["1"]})
    reader = Reader("m", tokenizer, Qwen3Config())
    given = MathReward()
    for grades in (False, True):
        checked = preflight(data, "my.jsonl", [given], ["math_reward"], reader, refuses=True, grades=grades)
        [told] = checked.rewards
        assert told.reasoning_opened
    assert given.reasoning_opened is None


def test_a_command_ends_at_every_error_and_a_trainer_at_none():
    data = Dataset.from_dict({"prompt": ["1"], "solution": [datetime(2024, 1, 5)]})
    options = {"rewards": [MathReward()], "names": ["math_reward"], "reader": None}
    with pytest.raises(TypeError, match="datetime"):
        preflight(data, "my.jsonl", **options, refuses=True)
    assert preflight(data, "my.jsonl", **options, refuses=False).warnings == []


def test_warnings_of_columns_and_of_golds_are_told():
    def near(completions, solutions=None, **kwargs): ...

    golds = ["2"] * 7 + [r"\begin{tikzpicture}"] * 2
    data = Dataset.from_dict({"prompt": ["1+1="] * 9, "solution": golds})
    rewards = [near, MathReward()]
    checked = preflight(data, "my.jsonl", rewards, ["near", "math_reward"], None, refuses=True)
    of_columns, of_golds = checked.warnings
    assert "no column 'solutions'" in of_columns
    assert "cannot use 2 of 9 golds" in of_golds
