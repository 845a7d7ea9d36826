import asyncio
import os
import pickle
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from delta_trl.rewards import (
    AsyncMathReward,
    MathReward,
    async_math_reward,
    code_reward,
    math_reward,
    multiple_choice_reward,
)

from ..corpus.answers import labelled_cases


CASES = list(labelled_cases())
COMPARED_EVERY = int(os.environ.get("COMPARED_EVERY", "8"))  # the graders compared with are slow: 1 takes minutes


def test_enough_cases_of_every_kind():
    kinds = Counter(kind for kind, *_ in CASES)
    assert len(CASES) >= 300
    assert min(kinds.values()) >= 5
    assert len({(repr(gold), repr(completion)) for _, gold, completion, _ in CASES}) == len(CASES)


def score(log_extra=None) -> list[float | None]:
    # a second worker would fill its parser's caches anew
    return MathReward(num_workers=1)([case[2] for case in CASES], [case[1] for case in CASES], log_extra=log_extra)


def test_labelled_cases():
    """All in one test: several, on several workers, would each grade them all."""
    columns = {}
    rewards = score(columns.__setitem__)
    wrong = [
        f"{kind}: gold {gold!r}, answer {answer!r}: {reward} instead of {label} ({verdict})"
        for (kind, gold, _, label), reward, answer, verdict in zip(
            CASES, rewards, columns["extracted_answer"], columns["verdict"], strict=True
        )
        if reward != label
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
    """Prints what TRL's reward and math-verify make of the same cases: the README's claim is this test."""
    usable = [(case, reward) for case, reward in zip(CASES, score(), strict=True) if isinstance(case[1], str)]
    usable = [(case, reward) for case, reward in usable if isinstance(case[2], str)]
    usable = usable[::COMPARED_EVERY]
    graders = {
        "math-verify": plain_math_verify,
        "TRL accuracy_reward": trl_reward,
        "TRL accuracy_reward, gold wrapped": trl_reward_wrapped,
    }
    table = {"math_reward": [reward for _, reward in usable]}
    for name, grade in graders.items():
        table[name] = []
        for (_, gold, completion, _), _ in usable:
            try:
                table[name].append(grade(gold, completion))
            except Exception:  # a grader that crashes has not graded; it counts as an error
                table[name].append("crash")
    labels = [case[3] for case, _ in usable]
    accuracy = {}
    with capsys.disabled():
        print(f"\n{len(labels)} labelled cases{'':20} right  false +  false -")
        for name, rewards in table.items():
            pairs = list(zip(rewards, labels, strict=True))
            accuracy[name] = sum(reward == label for reward, label in pairs) / len(pairs)
            false_positives = sum(reward == 1.0 and label != 1.0 for reward, label in pairs)
            false_negatives = sum(reward != 1.0 and label == 1.0 for reward, label in pairs)
            print(f"  {name:35} {accuracy[name]:6.1%} {false_positives:8} {false_negatives:8}")
    assert accuracy["math_reward"] >= 0.98
    assert all(accuracy["math_reward"] > accuracy[name] for name in graders)


def test_columns_and_metrics():
    columns, metrics = {}, {}
    rewards = math_reward(
        [r"\boxed{1/2}", "?", r"\boxed{\gcd(2,4)}", r"\boxed{1}"],
        ["0.5", "1", "2", ""],
        log_extra=columns.__setitem__,
        log_metric=metrics.__setitem__,
        prompts=["a", "b", "c", "d"],
        timeout=["a column of the data set"] * 4,
    )
    assert rewards == [1.0, 0.0, 0.0, None]
    assert columns["gold"] == ["0.5", "1", "2", ""]
    assert columns["extracted_answer"] == ["1/2", "", r"\gcd(2,4)", "1"]
    assert columns["verdict"] == ["right", "no answer", "refused: restates the problem: gcd", "unusable gold"]
    assert metrics["math_reward/unusable_gold"] == 0.25
    assert metrics["math_reward/timeouts"] == metrics["math_reward/not_checked"] == 0.0


def test_require_boxed():
    strict = MathReward(require_boxed=True)
    assert strict(["Answer: 42", r"\boxed{42}"], ["42", "42"]) == [0.0, 1.0]


def test_empty_batch():
    assert math_reward([], [], log_metric=lambda name, value: None) == []


@pytest.mark.parametrize(
    ("completions", "solution", "message"),
    [
        ("4", "4", "expected lists, one of `solution` for each completion; got completions='4'"),
        (["4", "5"], "45", "got solution='45'"),
        ([None, "4"], ["4", "4"], "completion 1 of 2 is None: expected text or a list of chat messages"),
        ([4], ["4"], "completion 1 of 1 is 4"),
        ([["4"]], ["4"], r"completion 1 of 1 is \['4'\]"),
    ],
)
def test_what_is_no_batch_is_refused(completions, solution, message):
    for reward in (math_reward, multiple_choice_reward):
        with pytest.raises(TypeError, match=message):
            reward(completions, solution)


@pytest.mark.parametrize(
    ("gold", "kind"),
    [(["4"], "list"), ({"answer": "4"}, "dict"), (b"4", "bytes"), (2j, "complex"), (np.array(4), "ndarray")],
)
def test_what_is_no_gold_is_refused(gold, kind):
    for reward in (math_reward, multiple_choice_reward):
        with pytest.raises(TypeError, match=rf"`solution` 2 of 2 is .*, of type {kind}.*: expected .*`dataset.map`"):
            reward(["4", "4"], ["4", gold])


def test_numbers_are_golds():
    golds = [4, 4.0, np.int64(4), np.float32(4), Decimal("4.00"), Fraction(8, 2), np.float32("nan"), Decimal("nan")]
    assert math_reward(["4"] * 8, golds) == [1.0] * 6 + [None] * 2
    assert math_reward(["4", "5"], np.array([4, 4])) == [1.0, 0.0]


def test_parts_of_messages():
    parts = ["So ", {"type": "text", "text": r"\boxed{"}, {"type": "image"}, "4}"]
    assert math_reward([[{"role": "assistant", "content": parts}], [{"content": None}]], ["4", "4"]) == [1.0, 0.0]
    for content in (4, [4], {"text": "4"}):
        with pytest.raises(TypeError, match=r"completion 1 of 1 is .*: expected text or a list of chat messages"):
            math_reward([[{"content": content}]], ["4"])


def test_help_teaches():
    for reward in (math_reward, code_reward):
        assert ">>> " in reward.__doc__
        assert "Args:" in reward.__doc__


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 completions, but 1 of `solution`: expected as many"):
        math_reward([r"\boxed{1}", r"\boxed{1}"], ["1"])


@pytest.mark.parametrize("options", [{"timeout": 0}, {"num_workers": 0}])
def test_options_out_of_range(options):
    with pytest.raises(ValueError, match="timeout > 0 and num_workers >= 1"):
        MathReward(**options)


def test_async_forms_agree():
    async def both():
        batch = [r"\boxed{1}", r"\boxed{2}"], ["1", "1"]
        return await asyncio.gather(async_math_reward(*batch), AsyncMathReward()(*batch))

    assert asyncio.run(both()) == [[1.0, 0.0]] * 2


def test_pickles():
    reward = pickle.loads(pickle.dumps(MathReward(timeout=1.5)))
    assert reward.timeout == 1.5
    assert reward([r"\boxed{1}"], ["1"]) == [1.0]


def test_trl_sees_what_is_async_and_how_it_is_called():
    from trl.trainer.utils import get_callable_name, is_async_callable

    assert [is_async_callable(f) for f in (math_reward, MathReward(), async_math_reward, AsyncMathReward())] == [
        False, False, True, True,
    ]  # fmt: skip
    assert get_callable_name(MathReward()) == "math_reward"


@pytest.mark.parametrize(
    "text",
    [
        "ones 3+4=7 carry 0\n\\boxed{7}",
        "so the sum is 3 +\n\n\\boxed{7}",
        "\\boxed{7}\n- 3 is the first summand",
        "Step 2\n$$\\boxed{7}$$",
    ],
)
def test_a_box_on_a_line_of_its_own(text):
    assert math_reward([text], ["7"]) == [1.0]


@pytest.mark.parametrize("text", ["1\\boxed{7}", "3 + \\boxed{7}", "\\boxed{7} - 3", "\\boxed{7}0", "2^\\boxed{7}"])
def test_a_box_in_an_expression_is_no_answer(text):
    assert math_reward([text], ["7"]) == [0.0]
