"""Labelled answers that are data: `tests/corpus/math/*.jsonl`, one file for each kind of question."""

import json
from collections import Counter
from pathlib import Path

import pytest

from delta_trl.rewards import MathReward


CORPUS = Path(__file__).parents[1] / "corpus" / "math"
REWARD = MathReward(num_workers=1)


def read(name: str) -> list[dict]:
    """Cases with the fields `kind`, `gold`, `label`, and either `completion` or an `answer` that stands in a box."""
    cases = [json.loads(line) for line in (CORPUS / f"{name}.jsonl").read_text().splitlines()]
    for case in cases:
        case.setdefault("completion", f"So the result is $\\boxed{{{case.get('answer')}}}$.")
    return cases


@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.glob("*.jsonl")))
def test_labelled_answers(name):
    cases, columns = read(name), {}
    rewards = REWARD(
        [case["completion"] for case in cases], [case["gold"] for case in cases], log_extra=columns.__setitem__
    )
    wrong = [
        f"{case['kind']}: gold {case['gold']!r}, answer {answer!r}: {reward} instead of {case['label']} ({verdict})"
        for case, reward, answer, verdict in zip(
            cases, rewards, columns["extracted_answer"], columns["verdict"], strict=True
        )
        if reward != case["label"]
    ]
    assert not wrong, "\n".join(wrong)


def test_each_case_once_and_both_labels_of_a_kind():
    cases = [case for path in CORPUS.glob("*.jsonl") for case in read(path.stem)]
    assert len({(case["gold"], case["completion"]) for case in cases}) == len(cases)
    labels = Counter((case["kind"], case["label"]) for case in cases)
    assert all(labels[kind, label] >= 4 for kind, _ in labels for label in (0.0, 1.0))
