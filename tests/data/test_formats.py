"""Public sources, each fixture in its real schema, and formats of one's own."""

import base64
import json
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from delta_trl.data.formats import eurus_code, gsm8k, livecodebench, mbppplus
from delta_trl.data.loading import load


FIXTURES = Path(__file__).parents[1] / "fixtures"
GOLDS = {
    "deepmath": ["3", "Yes", "1", r"\pm \sqrt{2}", ""],
    "gsm8k": ["36", "1,200", "-3", ""],
    "math_500": [r"\left( 3, \frac{\pi}{2} \right)", "6"],
}


@pytest.mark.parametrize("name", GOLDS)
def test_formats_of_mathematics_bring_prompts_and_golds(name):
    file = str(FIXTURES / f"{name}.jsonl")
    dataset = load(file, dataset_format="matharena" if name == "math_500" else name)
    raw = load(file)
    question = "question" if "question" in raw.column_names else "problem"
    assert dataset["prompt"][:] == raw[question][:]
    assert dataset["solution"][:] == GOLDS[name]


def test_an_answer_may_be_the_number_0(tmp_path):
    (tmp_path / "contest.jsonl").write_text('{"problem": "1-1=", "answer": 0}')
    dataset = load(str(tmp_path / "contest.jsonl"), dataset_format="matharena")
    assert dataset["solution"][:] == ["0"]


def test_what_follows_the_last_mark_is_the_answer():
    row = {"question": "1+1=", "answer": "#### is the mark.\n#### 2"}
    assert gsm8k(row)["solution"] == "2"


def test_the_format_of_code_brings_tests():
    dataset = load(str(FIXTURES / "eurus_code.jsonl"), dataset_format="eurus_code")
    assert [message["role"] for message in dataset[0]["prompt"]] == ["system", "user"]
    tests = [json.loads(text) for text in dataset["tests"] if text]
    # `total` returns a number, which the source has in a list; mathematics and rows without tests have none
    assert tests == [
        {"inputs": ["3\n", "10\n"], "outputs": ["9\n", "100\n"]},
        {"fn_name": "total", "inputs": [[[1, 2, 3]], [[]]], "outputs": [6, 0]},
    ]
    assert len(dataset) == 5


def of_eurus(truth, ability="code") -> str:
    row = {"prompt": "p", "ability": ability, "reward_model": {"ground_truth": json.dumps(truth)}}
    return eurus_code(row)["tests"]


@pytest.mark.parametrize("truth", [["1"], {"inputs": ["1"]}, {"inputs": ["1", "2"], "outputs": ["1"]}])
def test_tests_without_an_output_for_each_input_are_none(truth):
    assert of_eurus(truth) == ""


def test_mathematics_has_no_tests():
    assert of_eurus({"inputs": ["1"], "outputs": ["1"]}, ability="math") == ""


@pytest.mark.parametrize(
    ("outputs", "options", "expected"),
    [
        ([[1], [2]], {"fn_name": "f"}, [1, 2]),
        ([[1], [2, 3]], {"fn_name": "f"}, [[1], [2, 3]]),
        ([[1], 2], {"fn_name": "f"}, [[1], 2]),
        ([[1], []], {"fn_name": "f"}, [[1], []]),
        ([["1"], ["2"]], {}, [["1"], ["2"]]),
    ],
)
def test_outputs_of_functions_are_unpacked_if_all_are_packed(outputs, options, expected):
    tests = json.loads(of_eurus({"inputs": [[1], [2]], "outputs": outputs, **options}))
    assert tests["outputs"] == expected


def test_tests_in_the_prompt_count_where_there_are_no_others():
    tests = {"test_imports": ["import math"], "test_list": ["assert f(1) == math.inf"]}
    read = mbppplus({"prompt": "Write f.", "test": None, **tests})
    assert json.loads(read["tests"]) == tests


# --- a format of one's own ---


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The rows of `{"q": "1+1", "a": gold}` for each gold, with what `name` is in the module `own_format`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def read(code, golds, name="row"):
        rows = [f'{{"q": "1+1", "a": {gold}}}\n' for gold in golds]
        Path("data.jsonl").write_text("".join(rows))
        Path("own_format.py").write_text(code)
        sys.modules.pop("own_format", None)
        return load("data.jsonl", dataset_format=f"own_format.{name}").to_list()

    return read


ROW = "def row(row):\n    return {{'prompt': row['q'], 'solution': {}}}\n"


def test_a_function_of_ones_own_is_called_anew_when_its_code_changes(read):
    """`datasets` caches rows by the function's name alone."""
    for version in ("old", "newer"):
        code = ROW.format(f"'{version}'")
        assert read(code, "1") == [{"prompt": "1+1", "solution": version}]


@pytest.mark.processes
def test_a_module_that_the_function_imports_may_change(tmp_path):
    """In another process, as a user's next call."""
    (tmp_path / "data.jsonl").write_text('{"q": "1+1"}')
    (tmp_path / "format_with_helper.py").write_text("import helper\n\n" + ROW.format("helper.gold()"))
    load_golds = (
        "from delta_trl.data.loading import drop_rows_without_gold, load\n"
        "data = load('data.jsonl', dataset_format='format_with_helper.row')\n"
        "print(*drop_rows_without_gold(data, [lambda solution: None], 'data')['solution'])\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "PYTHONPATH": str(FIXTURES.parents[1])}
    found = []
    for gold in ("2", "three"):
        (tmp_path / "helper.py").write_text(f"def gold():\n    return {gold!r}\n")
        call = [sys.executable, "-c", load_golds]
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.strip())
    assert found == ["2", "three"]


@pytest.mark.parametrize("name", ["partly", "reader"])
def test_a_format_may_be_any_callable(read, name):
    code = (
        "from functools import partial\n\n"
        "class Reader:\n    def __call__(self, row, question='q'):\n"
        "        return {'prompt': row[question], 'solution': row['a']}\n\n"
        "reader = Reader()\npartly = partial(reader, question='q')\n"
    )
    assert read(code, "2", name) == [{"prompt": "1+1", "solution": 2}]


@pytest.mark.parametrize(
    ("text", "held", "column", "digits"),
    [
        ("{}", "%s", "solution", "9007199254740993"),
        ("{}", "%s", "tests", "9007199254740993"),
        ("{:.0f}", "%s", "solution", "9007199254740993"),
        (r"\\boxed{{{}}}", "%s", "solution", "9007199254740993"),
        (r"\\boxed{{{}}}", "%s", "solution", "10000000000000000000000"),  # its text is 1e+22
        ("{}", '{"a": [1.5, %s]}', "solution", "9007199254740993"),
    ],
)
def test_a_text_of_a_rounded_number_is_refused(read, text, held, column, digits):
    """Arrow makes 9007199254740993 beside 0.5 to 9007199254740992.0, also inside lists and dicts."""
    code = ROW.format(f"'{text}'.format(row['a'])").replace("solution", column)
    golds = [held % "0.5", held % digits]
    with pytest.raises(ValueError, match=r"row 2: .*(9007199254740992|10000000000000000000000) may have lost digits"):
        read(code, golds)


# --- LiveCodeBench's hidden tests ---


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


CASE = [{"input": "1\n", "output": "1\n", "testtype": "stdin"}]


def hidden_tests(hidden, public="[]", starter=None):
    row = {"question_id": "a", "question_content": "Echo.", "starter_code": starter, "metadata": "{}"}
    return livecodebench({**row, "public_test_cases": public, "private_test_cases": hidden})["tests"]


def test_pickled_tests_are_read():
    pickled = pickle.dumps(json.dumps(CASE))
    tests = json.loads(hidden_tests(packed(pickled)))
    assert tests["outputs"] == ["1\n"]


@pytest.mark.parametrize("starter", [None, "import sys"])
@pytest.mark.parametrize(("hidden", "public"), [(None, json.dumps(CASE)), (json.dumps(CASE), None)])
def test_tests_of_a_program_may_be_all_hidden_or_all_public(hidden, public, starter):
    """Also of one whose beginning is given."""
    tests = json.loads(hidden_tests(hidden, public, starter))
    assert tests == {"inputs": ["1\n"], "outputs": ["1\n"]}


def test_a_problem_may_have_no_tests():
    assert hidden_tests(hidden=None) == ""


@pytest.mark.parametrize("hidden", [packed(pickle.dumps(Evil())), '[{"input": "1"}]'], ids=["evil", "cut off"])
def test_what_else_a_pickle_holds_is_never_executed(capsys, hidden):
    assert hidden_tests(hidden, public=json.dumps(CASE)) == ""
    assert "executed" not in capsys.readouterr().out
