import pytest
from datasets import Dataset

from delta_trl.datasets import check_reward_columns, load, prepare


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
    prepared = prepare(Dataset.from_list([{"prompt": chat}]), prompt_template="Q: {prompt}", system_prompt="Add.")
    assert prepared[0]["prompt"] == [*chat[:3], {"role": "user", "content": "Q: 2+2?"}]


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

    check_reward_columns(Dataset.from_list(ROWS), [reward], ["reward"])
    with pytest.raises(ValueError, match="'reward' needs a column 'answer'"):
        check_reward_columns(Dataset.from_list([{"prompt": ""}]), [reward], ["reward"])
