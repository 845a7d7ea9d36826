"""The labelled answers of `tests/corpus/answers`."""

import os
from collections import Counter

import pytest

from delta_trl.rewards import MathReward

from ..corpus.answers import labelled_answers


CASES = labelled_answers()
COMPARED_EVERY = int(os.environ.get("COMPARED_EVERY", "8"))  # the graders compared with are slow: 1 takes minutes


def score(cases: list[dict], log_extra=None) -> list[float | None]:
    # a second worker would fill its parser's caches anew
    return MathReward(num_workers=1)(
        [case["completion"] for case in cases], [case["gold"] for case in cases], log_extra=log_extra
    )


def test_each_case_once_and_enough_of_every_kind():
    assert len({(repr(case["gold"]), repr(case["completion"])) for case in CASES}) == len(CASES) >= 8150
    assert min(Counter(case["kind"] for case in CASES).values()) >= 5


@pytest.mark.parametrize("every", [32, pytest.param(1, marks=pytest.mark.processes)])
def test_labelled_answers(every):
    """All in one test: several, on several workers, would each fill a parser's caches."""
    columns, cases = {}, CASES[::every]
    rewards = score(cases, columns.__setitem__)
    wrong = [
        f"{case['kind']}: gold {case['gold']!r}, answer {answer!r}: {reward} instead of {case['label']} ({verdict})"
        for case, reward, answer, verdict in zip(
            cases, rewards, columns["extracted_answer"], columns["verdict"], strict=True
        )
        if reward != case["label"]
    ]
    assert not wrong, "\n".join(wrong)


def trl_reward(gold: str, completion: str) -> float | None:
    from trl.rewards import accuracy_reward

    return accuracy_reward([[{"content": completion}]], [gold])[0]


def trl_reward_wrapped(gold: str, completion: str) -> float | None:
    return trl_reward(f"$\\boxed{{{gold}}}$", completion)


def plain_math_verify(gold: str, completion: str) -> float | None:
    from math_verify import parse, verify

    parsed = parse(gold)
    return float(verify(parsed, parse(completion))) if parsed else None


@pytest.mark.slow
def test_against_todays_graders(capsys):
    """Prints the table of docs/rewards.md: what TRL's reward and math-verify make of the same cases."""
    usable = [
        (case, reward)
        for case, reward in zip(CASES, score(CASES), strict=True)
        if isinstance(case["gold"], str) and isinstance(case["completion"], str)
    ][::COMPARED_EVERY]
    graders = {
        "math-verify": plain_math_verify,
        "TRL accuracy_reward": trl_reward,
        "TRL accuracy_reward, gold wrapped": trl_reward_wrapped,
    }
    table = {"math_reward": [reward for _, reward in usable]}
    for name, grade in graders.items():
        table[name] = []
        for case, _ in usable:
            try:
                table[name].append(grade(case["gold"], case["completion"]))
            except Exception:  # a grader that crashes has not graded
                table[name].append(None)
    labels = [case["label"] for case, _ in usable]
    accuracy = {}
    with capsys.disabled():
        print(f"\n{len(labels)} labelled cases{'':20} right  false +  false -  none  0 for an unusable gold")
        for name, rewards in table.items():
            pairs = list(zip(rewards, labels, strict=True))
            accuracy[name] = sum(reward == label for reward, label in pairs) / len(pairs)
            false_positives = sum(reward == 1.0 and label != 1.0 for reward, label in pairs)
            false_negatives = sum(reward == 0.0 and label == 1.0 for reward, label in pairs)
            ungraded = sum(reward is None and label is not None for reward, label in pairs)
            unusable = sum(reward == 0.0 and label is None for reward, label in pairs)
            print(
                f"  {name:35} {accuracy[name]:6.1%} {false_positives:8} {false_negatives:8} {ungraded:5} {unusable:5}"
            )
            assert round((1 - accuracy[name]) * len(pairs)) == (
                false_positives + false_negatives + ungraded + unusable
            )
    assert accuracy["math_reward"] >= 0.98
    assert all(accuracy["math_reward"] > accuracy[name] for name in graders)
