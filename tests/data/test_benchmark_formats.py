"""Formats of benchmarks: choices, and tests that are hidden in a pickle."""

import base64
import json
import pickle
import zlib

import pytest
from datasets import Dataset

from delta_trl.data.livecodebench import livecodebench_tests
from delta_trl.data.loading import standardize


def test_the_shuffle_leaves_no_place_out():
    columns = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    rows = [{"Record ID": str(i), "Question": f"Question {i}?", **{c: c for c in columns}} for i in range(400)]
    solutions = standardize(Dataset.from_list(rows), "gpqa", "x")["solution"][:]
    counts = [solutions.count(label) for label in "ABCD"]
    assert sum(counts) == 400
    assert all(70 < count < 130 for count in counts)


def test_malformed_choices():
    row = {"question_id": 1, "question": "Q?", "options": ["a", "b"], "answer_index": 1, "category": "math"}
    for change, message in [
        ({"answer_index": 2}, "column 'answer_index': expected a number from 0 to 1, got 2"),
        ({"answer_index": "1"}, "column 'answer_index': expected a number from 0 to 1, got '1'"),
        ({"options": "ab"}, "column 'options': expected a list of 2 to 10 choices, got 'ab'"),
        ({"question": " "}, "column 'question': expected a text"),
    ]:
        with pytest.raises(ValueError, match=message):
            standardize(Dataset.from_list([row | change]), "mmlu_pro", "x")


@pytest.mark.parametrize("n", [1, 2, 10, 11])
def test_as_many_choices_as_there_are_letters(n):
    options = [f"choice {i}" for i in range(n)]
    row = {"question_id": 1, "question": "Q?", "options": options, "answer_index": n - 1, "category": "math"}
    if 2 <= n <= 10:
        (found,) = standardize(Dataset.from_list([row]), "mmlu_pro", "x").to_list()
        assert found["choices"] == options  # some speak of others: "Both A and B", "None of the Above"
        assert found["choices"]["ABCDEFGHIJ".index(found["solution"])] == options[-1]
        assert all(f". {option}" in found["prompt"] for option in options)
    else:
        with pytest.raises(ValueError, match="column 'options': expected a list of 2 to 10"):
            standardize(Dataset.from_list([row]), "mmlu_pro", "x")


@pytest.mark.parametrize(
    ("answer", "solution"),
    [(42, "42"), (2.0, "2"), (2.5, "2.5"), ("\\frac12", "\\frac12"), ("\\boxed{7}", "7")],
    ids=str,
)
def test_answers_are_numbers_or_texts(answer, solution):
    row = {"id": 1, "problem": "1+1?", "answer": answer}
    assert standardize(Dataset.from_list([row]), "aime", "x")["solution"][:] == [solution]


# --- LiveCodeBench's hidden tests ---


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


CASE = [{"input": "1\n", "output": "1\n", "testtype": "stdin"}]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_tests_are_read(protocol):
    row = {"public_test_cases": "[]", "metadata": "{}"}
    row["private_test_cases"] = packed(pickle.dumps(json.dumps(CASE), protocol))
    tests = livecodebench_tests(row)
    # the protocols before 2 write a text in another way, which nobody uses for these
    assert tests is None if protocol == 0 else json.loads(tests)["outputs"] == ["1\n"]


@pytest.mark.parametrize(
    "hidden",
    [
        packed(pickle.dumps(Evil())),
        packed(pickle.dumps([json.dumps(CASE), Evil()])),
        packed(pickle.dumps([json.dumps(CASE)])),
        packed(b"\x80\x04\x8c\x02[]\x94\x8c\x02[]\x94."),  # two texts
        packed(b"no pickle"),
        base64.b64encode(b"no zlib").decode(),
        "no base64 at all",
        packed(pickle.dumps("no JSON")),
        '[{"input": "1"}]',
        "3",
    ],
    ids=lambda text: text[:12],
)
def test_what_else_a_pickle_holds_is_never_executed(capsys, hidden):
    row = {"public_test_cases": json.dumps(CASE), "private_test_cases": hidden, "metadata": "{}"}
    assert livecodebench_tests(row) is None
    assert "executed" not in capsys.readouterr().out


def test_a_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr("delta_trl.data.livecodebench.MAX_BYTES", 1000)
    text = json.dumps([{**CASE[0], "input": "1" * 2000}])
    row = {"public_test_cases": "[]", "private_test_cases": packed(pickle.dumps(text)), "metadata": "{}"}
    assert livecodebench_tests(row) is None
