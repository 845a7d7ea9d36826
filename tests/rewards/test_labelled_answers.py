"""The labelled answers of `tests/corpus/answers`. Errors that are known stand there, as `known`."""

from collections import Counter

import pytest

from delta_trl.rewards import MathReward

from ..corpus.answers import labelled_answers


CASES = [{"known": case["label"], **case} for case in labelled_answers()]
PARTS = 6
# at most; None counts as a false negative
FALSE_POSITIVES = 0.01
FALSE_NEGATIVES = 0.04


def test_each_case_once_and_enough_of_every_kind():
    asked = {repr([case["gold"], case["completion"], case["prompt"]]) for case in CASES}
    assert len(asked) == len(CASES)
    assert len(CASES) >= 3400
    kinds = Counter(case["kind"] for case in CASES)
    assert min(kinds.values()) >= 5


def test_few_errors_are_known():
    errors = [case["known"] for case in CASES if case["known"] != case["label"]]
    false_positives = errors.count(1.0)
    false_negatives = len(errors) - false_positives
    assert false_positives <= FALSE_POSITIVES * len(CASES)
    assert false_negatives <= FALSE_NEGATIVES * len(CASES)


@pytest.mark.parametrize("part", range(PARTS))
def test_labelled_answers(part):
    """In parts, which several processes may share. Each has one worker: a second one would fill its caches anew."""
    start = len(CASES) * part // PARTS
    end = len(CASES) * (part + 1) // PARTS
    cases = CASES[start:end]
    completions = [case["completion"] for case in cases]
    golds = [case["gold"] for case in cases]
    prompts = [case["prompt"] for case in cases]
    scores = MathReward(num_workers=1)(completions, golds, prompts=prompts)

    wrong = []
    for case, score in zip(cases, scores, strict=True):
        if score not in (case["label"], case["known"]):
            wrong.append(f"{score} for {case}")
    assert not wrong, "\n".join(wrong)
