"""The labelled answers of `tests/corpus/answers`. Errors that are known stand there, as `known`."""

from collections import Counter

import pytest

from delta_trl.rewards import MathReward

from ..corpus.answers import labelled_answers


CASES = labelled_answers()
PARTS = 6
FALSE_POSITIVES, FALSE_NEGATIVES = 0.01, 0.04  # at most; None counts as a false negative


def test_each_case_once_and_enough_of_every_kind():
    asked = {(repr(case["gold"]), repr(case["completion"]), case["prompt"]) for case in CASES}
    assert len(asked) == len(CASES) >= 3400
    assert 5 <= min(Counter(case["kind"] for case in CASES).values())


def test_few_errors_are_known():
    errors = [case["known"] for case in CASES if case.get("known", case["label"]) != case["label"]]
    assert errors.count(1.0) <= FALSE_POSITIVES * len(CASES)
    assert len(errors) - errors.count(1.0) <= FALSE_NEGATIVES * len(CASES)


@pytest.mark.parametrize("part", range(PARTS))
def test_labelled_answers(part):
    """In parts, which several processes may share. Each has one worker: a second one would fill its caches anew."""
    cases = CASES[len(CASES) * part // PARTS : len(CASES) * (part + 1) // PARTS]
    columns = {name: [case[name] for case in cases] for name in ("completion", "gold", "prompt")}
    scores = MathReward(num_workers=1)(columns["completion"], columns["gold"], prompts=columns["prompt"])
    wrong = [
        f"{case['kind']}: gold {case['gold']!r}, {case['completion']!r}: {score} instead of {case['label']}"
        for case, score in zip(cases, scores, strict=True)
        if score not in (case["label"], case.get("known", case["label"]))
    ]
    assert not wrong, "\n".join(wrong)
