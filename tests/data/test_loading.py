import json
import re
from pathlib import Path

import pytest
from datasets import Dataset, Features, Value

from delta_trl.data.loading import drop_long_prompts, drop_rows_without_gold, load, prepare

from ..corpus import tiny


FIXTURES = Path(__file__).parents[1] / "fixtures"
ROWS = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]


def test_a_local_file_or_folder_is_loaded_as_it_stands(tmp_path):
    path = tmp_path / "data[1].parquet"  # no pattern
    Dataset.from_list(ROWS).to_parquet(path)
    for split in ("train", "test"):  # a file is one split, whatever it is for
        assert load(str(path), split=split).to_list() == ROWS
    assert load(str(path), split="train[1:]").to_list() == ROWS[1:]
    assert load(str(tmp_path)).to_list() == ROWS  # a folder goes the way of a hub dataset
    Dataset.from_list(ROWS).to_csv(tmp_path / "data.CSV")
    assert load(str(tmp_path / "data.CSV")).to_list() == [{**row, "answer": int(row["answer"])} for row in ROWS]


def test_decimals_of_32_bits_keep_their_text(tmp_path):
    data = Dataset.from_dict({"solution": [0.1, None]}, features=Features({"solution": Value("float32")}))
    data.to_parquet(tmp_path / "data.parquet")
    assert load(str(tmp_path / "data.parquet"))["solution"][:] == [0.1, None]


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
    assert templated == [{"role": "user", "content": "Q: 1+1?"}]


@pytest.mark.parametrize("prompt", ["1+1?", [{"role": "user", "content": "1+1?"}]], ids=["text", "chat"])
@pytest.mark.parametrize("own", [[], [{"role": "system", "content": "Theirs."}]], ids=["", "with a system message"])
def test_a_system_prompt_begins_every_chat(prompt, own):
    given = prompt if isinstance(prompt, str) else own + prompt
    expected = [{"role": "system", "content": "Mine."}, {"role": "user", "content": "Q: 1+1?"}]
    assert prepared(given, prompt_template="Q: {prompt}", system_prompt="Mine.") == expected


def test_columns_are_renamed_at_once():
    rows = [{"problem": "1+1?", "solution": "One and one.", "answer": "2"}]  # MATH-500's
    mapping = {"problem": "prompt", "answer": "solution", "solution": "reasoning"}
    expected = [{"prompt": "1+1?", "solution": "2", "reasoning": "One and one."}]
    for order in (mapping.items(), reversed(mapping.items())):
        assert [dict(row) for row in prepare(Dataset.from_list(rows), dict(order))] == expected
    del mapping["solution"]  # a column that has the new name already is replaced
    assert prepare(Dataset.from_list(rows), mapping).to_list() == [{"prompt": "1+1?", "solution": "2"}]


def test_prompts_that_are_conversations_already():
    roles, texts = ("system", "user", "assistant", "user", "assistant"), ("Mine.", "1+1?", "2", "2+2?", "It is")
    chat = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    expected = [*chat[:3], {"role": "user", "content": "Q: 2+2?"}, chat[4]]
    assert prepared(chat, prompt_template="Q: {prompt}") == expected
    first, last, templated = ({"type": "text", "text": text} for text in ("A sum.", "1+1?", "Q: 1+1?"))
    parts = [{"role": "user", "content": [first, last]}]
    assert prepared(parts, conversational=True) == parts
    assert prepared(parts, prompt_template="Q: {prompt}") == [{"role": "user", "content": [first, templated]}]


CHAT = [{"role": "user", "content": "1+1="}]


@pytest.mark.parametrize(
    ("good", "prompt"),
    [("1+1=", None), ("1+1=", " "), (CHAT, []), (CHAT, [{"role": "user"}]), ("1+1=", CHAT)],
    ids=str,
)
def test_malformed_prompts_are_named_by_their_row(tmp_path, good, prompt):
    (tmp_path / "my.jsonl").write_text("\n".join(json.dumps({"prompt": one}) for one in (good, prompt)))
    with pytest.raises(ValueError, match=r"mine, row 2, column 'prompt'"):
        prepare(load(str(tmp_path / "my.jsonl")), name="mine")


# --- rows that are left out ---


def math_like(completions, solution, **kwargs): ...


def code_like(completions, tests, **kwargs): ...


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
    assert drop_rows_without_gold(dataset, [lambda completions, **kwargs: None], name) is dataset  # none takes it


def test_long_prompts_are_left_out_with_a_count(caplog):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    prompts = [[{"role": "user", "content": text}] for text in ("1", "11", "111", "1111")]
    kept = drop_long_prompts(Dataset.from_dict({"prompt": prompts}), tokenizer, 3, "data.jsonl")
    assert len(kept) == 2  # the template adds a token
    assert "data.jsonl: 2 of 4 rows are left out" in caplog.text
    with pytest.raises(ValueError, match="max_prompt_length=0"):
        drop_long_prompts(kept, tokenizer, 0, "data.jsonl")
