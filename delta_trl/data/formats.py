"""
Public datasets by name, for `dataset_format`. Each is a function from a row of the source's own schema to `prompt` and
`solution` or `tests`, as users write theirs. A gold that cannot be used is an empty text.
"""

import base64
import builtins
import hashlib
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable
from typing import Any


Row = dict[str, Any]


# --- mathematics ---


def deepmath(row: Row) -> Row:
    """zwhe99/DeepMath-103K"""
    return {"prompt": row["question"], "solution": row["final_answer"]}


def gsm8k(row: Row) -> Row:
    """openai/gsm8k. The text before "####" is reasoning."""
    _, mark, gold = row["answer"].rpartition("####")
    return {"prompt": row["question"], "solution": gold.strip() if mark else ""}


def matharena(row: Row) -> Row:
    """MathArena/aime_2025 and its other competitions, HuggingFaceH4/aime_2024, MATH-500. Some answers are numbers."""
    answer = row["answer"]
    return {"prompt": row["problem"], "solution": "" if answer is None else str(answer)}


# --- code ---


def eurus_code(row: Row) -> Row:
    """PRIME-RL/Eurus-2-RL-Data. Its rows of mathematics get no tests, and so are left out."""
    tests = ""
    if row["ability"] == "code":
        tests = _read_tests(row["reward_model"]["ground_truth"])
    return {"prompt": row["prompt"], "tests": tests}


def _read_tests(text: str) -> str:
    """
    The JSON text of {inputs, outputs, optional fn_name}. It stays a text because the types of inputs differ from row
    to row. Rows that come from APPS have each output of a function in a list, which is removed.
    """
    try:
        tests = json.loads(text)
        inputs = tests["inputs"]
        outputs = tests["outputs"]
    except (ValueError, KeyError, TypeError):
        return ""
    if not inputs or len(inputs) != len(outputs):
        return ""
    are_packed = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    if are_packed and tests.get("fn_name"):
        tests["outputs"] = [output for (output,) in outputs]
    return json.dumps(tests)


def humanevalplus(row: Row) -> Row:
    """evalplus/humanevalplus"""
    # HumanEval/32 as published takes the root for the coefficients, so that no right program passes
    test = row["test"].replace("_poly(*candidate(*inp), inp)", "abs(_poly(list(inp[0]), candidate(*inp)))")
    return {
        "prompt": f"Complete this function:\n\n```python\n{row['prompt'].strip()}\n```",
        "tests": json.dumps({"test": test, "entry_point": row["entry_point"]}),
    }


def mbppplus(row: Row) -> Row:
    """evalplus/mbppplus. Its first tests stand in the prompt, as the description does not name the function."""
    shown = row["test_list"] or []
    # Not graded with those in the prompt, which would earn a part of the reward by themselves
    tests = {"test_imports": row["test_imports"]}
    if row["test"]:
        # a program that empties its argument must not empty that of the reference
        test = row["test"].replace("(*inp), ref_func(*inp)", "(*deepcopy(inp)), ref_func(*inp)")
        # MBPP/737, 787 and 794 as published compare, and assert nothing
        tests["test"] = test.replace("(out is not None)\n", "(out is not None)\n    assert exact_match\n")
    else:
        tests["test_list"] = row["test_list"]
    called = set(re.findall(r"(\w+)\(", " ".join(shown)))
    if len(called) == 1 and hasattr(builtins, *called):  # MBPP/126 asks for a function `sum`
        tests["entry_point"] = called.pop()
    return {
        "prompt": "\n".join([row["prompt"].strip(), "", "Your code should pass these tests:", *shown]),
        "tests": json.dumps(tests),
    }


def livecodebench(row: Row) -> Row:
    """lighteval/code_generation_lite"""
    starter = (row["starter_code"] or "").rstrip()
    how = "Read the input from standard input and write the answer to standard output."
    if starter:
        how = f"Complete this code:\n\n```python\n{starter}\n```"
    try:
        cases = json.loads(row["public_test_cases"] or "[]")
        cases += _hidden_cases(row["private_test_cases"] or "[]")
        tests = {
            "inputs": [case["input"] for case in cases],
            "outputs": [case["output"] for case in cases],
        }
        if any(case["testtype"] == "functional" for case in cases):
            tests["fn_name"] = json.loads(row["metadata"])["func_name"]
    except Exception:  # a damaged pickle may raise anything
        cases = []
    return {
        "prompt": f"{row['question_content'].strip()}\n\n{how}",
        "tests": json.dumps(tests) if cases else "",
    }


def _hidden_cases(text: str) -> list[dict]:
    """Read JSON, or a base64 text of a compressed pickle of it."""
    try:
        return json.loads(text)
    except ValueError:
        packed = base64.b64decode(text, validate=True)
    pickled = zlib.decompress(packed)
    return json.loads(_PlainUnpickler(io.BytesIO(pickled)).load())


class _PlainUnpickler(pickle.Unpickler):
    """Reads texts, numbers and containers. Anything else could run code from the file."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle holds more than plain values: {module}.{name}")


# --- multiple choice ---


def _choices(question: str, choices: list[str], right: int) -> Row:
    lines = [f"{letter}. {choice}" for letter, choice in zip("ABCDEFGHIJ", choices, strict=False)]
    return {
        "prompt": "\n".join([question.strip(), "", *lines]),
        "solution": "ABCDEFGHIJ"[right],
        "choices": choices,
    }


def gpqa(row: Row) -> Row:
    """Idavidrein/gpqa. The right answer has a column of its own, so choices are ordered by a hash: fixed, and the same
    everywhere."""
    columns = (
        "Correct Answer",
        "Incorrect Answer 1",
        "Incorrect Answer 2",
        "Incorrect Answer 3",
    )
    question = row["Question"].strip()
    choices = [row[column].strip() for column in columns]
    right = choices[0]

    def order(choice: str) -> bytes:
        text = f"{question}\n{choice}"
        return hashlib.sha256(text.encode()).digest()

    choices.sort(key=order)
    return _choices(question, choices, choices.index(right))


def mmlu_pro(row: Row) -> Row:
    """TIGER-Lab/MMLU-Pro"""
    choices = [option.strip() for option in row["options"]]
    return _choices(row["question"], choices, row["answer_index"])


FORMATS: dict[str, Callable[[Row], Row]] = {
    read.__name__: read
    for read in (deepmath, gsm8k, matharena, gpqa, mmlu_pro, eurus_code, humanevalplus, mbppplus, livecodebench)
}
