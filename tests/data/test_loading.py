import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from datasets import Dataset

from delta_trl.data import formats, loading
from delta_trl.data.columns import check_reward_columns
from delta_trl.data.formats import FORMATS
from delta_trl.data.loading import (
    drop_long_prompts,
    drop_rows_without_gold,
    load,
    prepare,
    standardize,
)
from delta_trl.rewards import get_reward

from ..corpus import tiny


ROWS = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
def test_local_files(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    dataset = Dataset.from_list(ROWS)
    dataset.to_parquet(path) if suffix == "parquet" else dataset.to_json(path, lines=suffix == "jsonl")
    assert load(str(path)).to_list() == ROWS


def test_files_that_cannot_be_loaded(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.parquet"):
        load(str(tmp_path / "missing.parquet"))
    (tmp_path / "data.csv").write_text("a,b")
    with pytest.raises(ValueError, match=r"data\.csv.*\.jsonl"):
        load(str(tmp_path / "data.csv"))
    (tmp_path / "data.parquet").write_text("not parquet")
    with pytest.raises(ValueError, match=r"data\.parquet.*cannot be read"):
        load(str(tmp_path / "data.parquet"))


def test_columns_and_template():
    mapping = {"question": "prompt", "answer": "solution"}
    prepared = prepare(Dataset.from_list(ROWS), mapping, prompt_template=r"{prompt} Answer in \boxed{}.")
    assert prepared[0] == {"prompt": r"1+1? Answer in \boxed{}.", "solution": "2"}


def test_mapping_onto_an_existing_column_replaces_it():
    rows = [{"prompt": "old", "question": "new"}]
    assert prepare(Dataset.from_list(rows), {"question": "prompt"}).to_list() == [{"prompt": "new"}]


def test_columns_are_renamed_at_once():
    rows = [{"problem": "1+1?", "solution": "One and one.", "answer": "2"}]  # MATH-500's
    mapping = {"problem": "prompt", "answer": "solution", "solution": "reasoning"}
    expected = [{"prompt": "1+1?", "solution": "2", "reasoning": "One and one."}]
    for order in (mapping.items(), reversed(mapping.items())):
        assert [dict(row) for row in prepare(Dataset.from_list(rows), dict(order))] == expected
    with pytest.raises(ValueError, match="'answer', 'solution' are all to be called 'solution'"):
        prepare(Dataset.from_list(rows), {"answer": "solution", "solution": "solution"})


def test_texts_that_were_read_as_dates_are_refused(tmp_path):
    path = tmp_path / "data[1].jsonl"  # no pattern, either
    path.write_text(json.dumps({"prompt": "When?", "solution": "2024-01-05"}))
    dataset = load(str(path))
    with pytest.raises(ValueError, match="'solution' as dates"):
        drop_rows_without_gold(dataset, [math_like], str(path))
    with pytest.raises(ValueError, match="'expected' as dates"):
        drop_rows_without_gold(dataset.rename_column("solution", "expected"), [lambda completions, expected: []], "")
    assert drop_rows_without_gold(dataset, [lambda completions, **kwargs: []], "") is dataset
    dataset = Dataset.from_list([{"prompt": "When?", "solution": "2024-01-05"}])
    dataset.to_parquet(tmp_path / "data.parquet")
    assert drop_rows_without_gold(load(str(tmp_path / "data.parquet")), [math_like], "").to_list() == dataset.to_list()


@pytest.mark.parametrize("cells", [["123456789012345678901"], ["9007199254740993", "0.5"]], ids=str)
def test_integers_that_lose_digits_are_refused(tmp_path, cells):
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(f'{{"prompt": "How many?", "solution": {cell}}}' for cell in cells))
    with pytest.raises(ValueError, match=r"column 'solution': integers .* lose digits. Write them as texts"):
        load(str(path))
    path.write_text('{"solution": 9007199254740993}\n{"solution": null}')
    assert load(str(path))["solution"] == [9007199254740993, None]


def test_the_first_bad_line_is_named(tmp_path):
    path = tmp_path / "data.jsonl"
    good = json.dumps({"prompt": "one\u2028two", "level": 1}, ensure_ascii=False)
    path.write_text(good + "\n" + good.replace("1", "1.5") + "\n{broken\n")
    with pytest.raises(ValueError, match="row 3 is not JSON"):
        load(str(path))


def test_rows_are_converted_anew_by_other_code(tmp_path, monkeypatch):
    """`datasets` caches rows by the converter's name alone."""
    monkeypatch.setattr(loading, "_hash_of_code", lambda: "old")
    row = [{"question": "1+1?", "answer": "#### 2"}]
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(row[0]))
    assert load(str(path), dataset_format="gsm8k")["solution"][:] == ["2"]

    def other(row: dict) -> dict:
        return {"prompt": "", "solution": "new"}

    other.__module__, other.__qualname__ = formats._gsm8k.__module__, formats._gsm8k.__qualname__
    monkeypatch.setattr(formats, "_gsm8k", other)
    monkeypatch.setitem(FORMATS, "gsm8k", replace(FORMATS["gsm8k"], convert=other))
    monkeypatch.setattr(loading, "_hash_of_code", lambda: "new")
    assert load(str(path), dataset_format="gsm8k")["solution"][:] == ["new"]


def test_conversational():
    dataset = Dataset.from_list([{"prompt": "1+1?"}])
    system, user = {"role": "system", "content": "Add."}, {"role": "user", "content": "Q: 1+1?"}
    options = {"prompt_template": "Q: {prompt}", "conversational": True}
    assert prepare(dataset, **options)[0]["prompt"] == [user]
    assert prepare(dataset, **options, system_prompt="Add.")[0]["prompt"] == [system, user]


def test_prompts_that_are_conversations_already():
    chat = [
        {"role": "system", "content": "Mine."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2?"},
    ]
    with pytest.raises(ValueError, match="system_prompt has no effect"):
        prepare(Dataset.from_list([{"prompt": chat}]), system_prompt="Add.")
    prepared = prepare(Dataset.from_list([{"prompt": chat}]), prompt_template="Q: {prompt}")
    assert prepared[0]["prompt"] == [*chat[:3], {"role": "user", "content": "Q: 2+2?"}]
    begun = [*chat, {"role": "assistant", "content": "It is"}]
    prepared = prepare(Dataset.from_list([{"prompt": begun}]), prompt_template="Q: {prompt}")
    assert prepared[0]["prompt"] == [*chat[:3], {"role": "user", "content": "Q: 2+2?"}, begun[-1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column_mapping": {"text": "prompt"}}, "no column 'text', the dataset has 'question', 'answer'"),
        ({}, "no column 'prompt', only 'question', 'answer'"),
        ({"column_mapping": {"question": "prompt"}, "prompt_template": "no place"}, "contain {prompt}"),
        ({"column_mapping": {"question": "prompt"}, "system_prompt": "Add."}, "conversational"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        prepare(Dataset.from_list(ROWS), **options)


def test_an_empty_dataset_is_refused():
    with pytest.raises(ValueError, match="empty"):
        prepare(Dataset.from_dict({"prompt": []}))


def test_reward_columns():
    def reward(prompts, completions, answer, tolerance=0.1, *, log_extra=None, **kwargs): ...

    check_reward_columns(list(ROWS[0]), [reward], ["reward"])
    with pytest.raises(ValueError, match="'reward' needs a column 'answer'"):
        check_reward_columns(["prompt"], [reward], ["reward"])


# --- public sources, each fixture in its real schema ---


EXPECTED = {
    "deepmath": ["3", "Yes", "1", r"\pm \sqrt{2}", None],
    "dapo_math": ["8", "6", "2"],
    "gsm8k": ["36", "1,200", "-3", None],
    "math": [r"\frac{5}{6}", "(x-2)(x-3)", "6", None],
}
KEPT = {"deepmath": {"difficulty", "topic"}, "math": {"level", "type"}}
FIXTURES = Path(__file__).parents[1] / "fixtures"


def source(format_name):
    name = str(FIXTURES / f"{format_name}.jsonl")
    return load(name, dataset_format=format_name)


def math_like(completions, solution, **kwargs): ...


def code_like(completions, tests, **kwargs): ...


@pytest.mark.parametrize("format_name", EXPECTED)
def test_mathematics_sources(format_name):
    dataset = source(format_name)
    assert dataset["solution"][:] == EXPECTED[format_name]
    assert set(dataset.column_names) == {"prompt", "solution"} | KEPT.get(format_name, set())
    raw = load(str(FIXTURES / f"{format_name}.jsonl"))
    assert dataset["prompt"][:] == next(raw[c][:] for c in ("question", "problem", "prompt") if c in raw.column_names)


def test_code_source():
    dataset = source("eurus_code")
    assert dataset.column_names == ["prompt", "tests"]
    assert len(dataset) == 4  # the mathematics row is not a code row
    assert [message["role"] for message in dataset[0]["prompt"]] == ["system", "user"]
    assert json.loads(dataset[0]["tests"]) == {"inputs": ["3\n", "10\n"], "outputs": ["9\n", "100\n"]}
    # `total` returns a number, which the source has in a list
    assert json.loads(dataset[1]["tests"]) == {"fn_name": "total", "inputs": [[[1, 2, 3]], [[]]], "outputs": [6, 0]}
    assert dataset["tests"][2:] == [None, None]


def test_a_source_reads_only_its_columns_of_a_hub_dataset(tmp_path, monkeypatch):
    """A folder of Parquet files goes the way of a hub dataset; three worked solutions a row stay unread."""
    load(str(FIXTURES / "deepmath.jsonl")).to_parquet(tmp_path / "train.parquet")
    monkeypatch.setattr(loading, "standardize", lambda dataset, *args: dataset)
    dataset = load(str(tmp_path), dataset_format="deepmath")
    assert dataset.column_names == list(FORMATS["deepmath"].columns)
    assert standardize(dataset, "deepmath", "deepmath")["solution"][:] == EXPECTED["deepmath"]


def test_a_source_reads_a_folder_of_json_files(tmp_path):
    """Files that hold all columns in every row: nothing is read less of them."""
    load(str(FIXTURES / "deepmath.jsonl")).to_json(tmp_path / "train.jsonl")
    assert load(str(tmp_path), dataset_format="deepmath")["solution"][:] == EXPECTED["deepmath"]


@pytest.mark.parametrize(
    ("format_name", "reward", "left_out"),
    [
        ("deepmath", math_like, "1 of 5 rows .* 'solution' .*at 5"),
        ("gsm8k", math_like, "1 of 4 rows .* 'solution' .*at 4"),
        ("eurus_code", code_like, "2 of 4 rows .* 'tests' .*at 3, 4"),
    ],
)
def test_rows_without_gold_are_counted_and_left_out(caplog, format_name, reward, left_out):
    dataset = drop_rows_without_gold(source(format_name), [reward], format_name)
    (column,) = {"solution", "tests"}.intersection(dataset.column_names)
    assert None not in dataset[column][:]
    assert re.search(left_out, caplog.text)


def test_a_gold_that_no_reward_takes_is_not_missed(caplog):
    dataset = source("gsm8k")
    assert drop_rows_without_gold(dataset, [lambda completions, **kwargs: None], "gsm8k") is dataset


def test_no_gold_at_all_is_an_error():
    with pytest.raises(ValueError, match=r"gold\.jsonl: no row has a usable 'solution'"):
        drop_rows_without_gold(Dataset.from_list([{"prompt": "1", "solution": " "}]), [math_like], "gold.jsonl")


def test_math_reward_accepts_every_gold():
    reward = get_reward("math_reward")
    for format_name in EXPECTED:
        golds = [gold for gold in source(format_name)["solution"] if gold is not None]
        assert reward([rf"So it is $\boxed{{{gold}}}$." for gold in golds], solution=golds) == [1.0] * len(golds)


# --- malformed rows are named by file, row and column ---


GOOD = {"prompt": "1+1=", "solution": "2"}


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"prompt": 3, "solution": "2"}, "prompt"),
        ({"prompt": None, "solution": "2"}, "prompt"),
        ({"prompt": " ", "solution": "2"}, "prompt"),
        ({"solution": "2"}, "prompt"),
        ({"prompt": [{"role": "user"}], "solution": "2"}, "prompt"),
    ],
)
def test_malformed_prompts(tmp_path, row, column):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (GOOD, GOOD, row)))
    with pytest.raises(ValueError, match=rf"data\.jsonl.*row 3, column '{column}'"):
        prepare(load(str(path)), name=str(path))


def test_malformed_json_lines(tmp_path):
    path = tmp_path / "data.jsonl"
    for text, problem in [('{"prompt": ', "row 2 is not JSON"), ("[1]", "row 2: expected an object")]:
        path.write_text(json.dumps(GOOD) + "\n" + text)
        with pytest.raises(ValueError, match=rf"data\.jsonl.*{problem}"):
            load(str(path))


def test_the_column_of_a_prompt_is_named_as_in_the_file():
    rows = Dataset.from_list([{"question": "1+1?"}, {"question": ""}])
    with pytest.raises(ValueError, match=r"my\.jsonl, row 2, column 'question': expected a text"):
        prepare(rows, {"question": "prompt"}, name="my.jsonl")


@pytest.mark.parametrize(
    ("format_name", "row", "change", "message"),
    [
        ("deepmath", 1, {"question": None}, "row 2, column 'question'"),
        ("deepmath", 0, {"final_answer": 3}, "row 1, column 'final_answer': expected a text, got 3"),
        ("gsm8k", 2, {"question": ""}, "row 3, column 'question'"),
        ("eurus_code", 2, {"reward_model": "tests"}, "row 3, column 'reward_model': expected a mapping"),
        ("eurus_code", 2, {"prompt": []}, "row 3, column 'prompt': expected a text, or a list of messages"),
    ],
)
def test_malformed_rows_of_a_source(tmp_path, format_name, row, change, message):
    rows = [json.loads(line) for line in (FIXTURES / f"{format_name}.jsonl").read_text().splitlines()]
    rows[row] |= change
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(ValueError, match=rf"data\.jsonl.*{message}"):
        standardize(load(str(path)), format_name, str(path))


def test_wrong_format():
    with pytest.raises(ValueError, match=r"gsm8k.*'question', 'answer'; 'question', 'answer' missing from 'problem'"):
        standardize(load(str(FIXTURES / "math.jsonl")), "gsm8k", "math.jsonl")
    with pytest.raises(ValueError, match="'deepmath'"):
        standardize(load(str(FIXTURES / "math.jsonl")), "deepmth", "math.jsonl")
    with pytest.raises(ValueError, match="looks like `dataset_format: math`"):
        prepare(load(str(FIXTURES / "math.jsonl")))


# --- long prompts ---


@pytest.mark.parametrize("chat", [False, True])
def test_long_prompts_are_left_out_with_a_count(caplog, chat):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    texts = ["1", "11", "111", "1111"]
    prompts = [[{"role": "user", "content": text}] for text in texts] if chat else texts
    kept = drop_long_prompts(Dataset.from_dict({"prompt": prompts}), tokenizer, 3, "data.jsonl")
    assert len(kept) == (2 if chat else 3)  # the template adds a token
    assert f"data.jsonl: {4 - len(kept)} of 4 rows are left out" in caplog.text
    with pytest.raises(ValueError, match="max_prompt_length=0"):
        drop_long_prompts(kept, tokenizer, 0, "data.jsonl")
