"""The rules by exact labels that the studies name."""

import math
import random

import pytest
import torch

from delta_trl.credit import HiddenStates, Tokens, make_rule
from scripts.studies import rules as study_rules
from scripts.studies.tasks import TASKS, first_mistake, make_problems, right_tokens
from scripts.studies.tasks.models import tokenizer_of


@pytest.fixture
def tokens() -> Tokens:
    """Two prompts of three responses: lost, lost, won; and won, lost (cut off), won. With labels."""
    ids = torch.arange(1, 31).view(6, 5)
    lengths = torch.tensor([5, 3, 5, 4, 2, 5])
    mask = torch.arange(5) < lengths[:, None]
    study_rules.LABELS.ids = [row[:n].tolist() for row, n in zip(ids, lengths.tolist(), strict=True)]
    study_rules.LABELS.mistakes = [1, 2, None, None, None, 3]
    advantages = torch.tensor([-0.5, -0.5, 1.0, 0.5, -1.0, 0.5])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    return Tokens(ids, mask, advantages, rewards=(advantages > 0).float(), groups=groups)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0, 1, 0, 0, 0], [0, 0, 1], [1] * 5, [1] * 4, [0, 0], [1] * 5]),
        ({"winners": True}, [[0, 1, 0, 0, 0], [0, 0, 1], [0, 1, 1, 0, 0], [0] * 4, [0, 0], [0] * 5]),
        ({"rest": 0.2}, [[0.2, 1, 0.2, 0.2, 0.2], [0.2, 0.2, 1], [1] * 5, [1] * 4, [0.2] * 2, [1] * 5]),
    ],
    ids=str,
)
def test_oracle_weighs_first_mistakes_and_where_siblings_made_them(tokens, options, expected):
    weights = make_rule("scripts.studies.rules.Oracle", options).of_rollout(tokens).weights
    assert weights.mean() == pytest.approx(1)
    relative = weights / weights.max()
    assert [relative[tokens.row == row].tolist() for row in range(6)] == [pytest.approx(row) for row in expected]


def test_labels_are_the_first_mistakes_of_the_completions_in_their_order():
    task, rng = TASKS["arithmetic"], random.Random(0)
    tokenizer, problems = tokenizer_of(task), make_problems(task)[1][:20]
    texts = [task.demonstrate(problem, rng) for problem in problems]
    ids = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts]
    solutions, prompts = ([problem[name] for problem in problems] for name in ("solution", "prompt"))

    def reward(completions, prompts, solution):
        return task.reward(completions, solution)

    given = study_rules.labelled(reward, task, tokenizer)(
        completions=texts, prompts=prompts, completion_ids=ids, solution=solutions
    )
    for problem, row, mistake, grade in zip(problems, ids, study_rules.LABELS.mistakes, given, strict=True):
        assert mistake == first_mistake(right_tokens(task, problem), tokenizer.convert_ids_to_tokens(row))
        assert grade == 1 or mistake is not None  # two mistakes may cancel, but none of the losers has none
    assert 3 < sum(m is None for m in study_rules.LABELS.mistakes) < 17


@pytest.mark.parametrize("low", [0.1, 0.33])
def test_sibling_value_by_its_formula(low):
    """Against loops in float64: two groups of three responses, of one to five tokens."""
    torch.manual_seed(0)
    lengths, groups = torch.tensor([5, 3, 1, 4, 2, 5]), torch.tensor([0, 0, 0, 1, 1, 1])
    advantages = torch.tensor([-0.5, -0.5, 1.0, 0.5, -1.0, 0.5])
    mask = torch.arange(5) < lengths[:, None]
    states = torch.randn(int(lengths.sum()), 2).double()
    tokens = Tokens(
        torch.arange(30).view(6, 5), mask, advantages, groups=groups, hidden=HiddenStates([states.float()])
    )
    weights = (
        make_rule("scripts.studies.rules.SiblingValue", {"low": low, "bandwidth": 0.3}).of_rollout(tokens).weights
    )
    of_row = [states[tokens.row == row] for row in range(6)]
    towards = []
    for row in range(6):
        siblings = [other for other in range(6) if groups[other] == groups[row]]
        every = torch.cat([of_row[other] for other in siblings])
        h = 0.3 * (every - every.mean(0)).pow(2).mean(0).sum().sqrt()
        values = []
        for state in of_row[row]:
            others = [other for other in siblings if other != row]
            k = [math.exp(-min(float((state - s).norm() / h) ** 2 for s in of_row[other])) for other in others]
            value = sum(a * float(advantages[other]) for a, other in zip(k, others, strict=True)) / (sum(k) + 1e-3)
            values.append(value)
        sign = 1 if advantages[row] > 0 else -1
        towards += [max(0.0, sign * (b - a)) for a, b in zip(values, [*values[1:], values[-1]], strict=True)]
    means = [
        max(1e-3, sum(j for j, a in zip(towards, tokens.advantages, strict=True) if a * sign > 0)
            / sum(a * sign > 0 for a in tokens.advantages))
        for sign in (1, -1)
    ]  # fmt: skip
    x = [j / float(means[a < 0]) for j, a in zip(towards, tokens.advantages.tolist(), strict=True)]
    expected = torch.tensor([low + (1 - low) * one / (1 + one) for one in x])
    torch.testing.assert_close(weights, expected / expected.mean(), atol=1e-5, rtol=1e-5)


def test_a_line_s_step_reward_is_its_change_of_value(monkeypatch):
    """Continuations win half of the time after the first line, always after the second one of the first completion."""
    task = TASKS["arithmetic_0"]
    tokenizer = tokenizer_of(task)
    texts = [
        "ones 7+5=12 write 2 carry 1\ntens 4+8+1=13 write 3 carry 1\n\\boxed{132}",
        "ones 7+5=12 write 2 carry 1\n",
    ]
    ids = [tokenizer(text).input_ids for text in texts]
    asked = []

    def values_of(starts, prompts, completion_ids, columns):
        asked.extend(tokenizer.decode(completion_ids[row][:end]) for row, end in starts)
        return [1.0 if "tens" in text else 0.5 for text in asked]

    monkeypatch.setattr(study_rules, "values_of", values_of)
    rollout = study_rules.ROLLOUT
    monkeypatch.setattr(rollout, "trainer", type("Trainer", (), {"num_generations": 2, "processing_class": tokenizer}))
    monkeypatch.setattr(rollout, "reward", task.reward)
    found = study_rules.line_values(
        completions=texts, prompts=["47+85="] * 2, completion_ids=ids, solution=["132"] * 2
    )
    first, second = texts[0].index("\n") + 1, texts[0].rindex("\n") + 1
    assert found[0] == [(0, first, 0.0), (first, second, 0.5), (second, len(texts[0]), 0.0)]
    assert found[1] == [(0, first, -0.5)]  # it ends there, and is not right
    assert sorted(asked, key=len) == [texts[1], texts[1], texts[0][:second]]
