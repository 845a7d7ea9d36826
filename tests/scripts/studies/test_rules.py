"""The rules by exact labels that the studies name."""

import random
from types import SimpleNamespace

import pytest
import torch

from delta_trl.credit import HiddenStates, Tokens, make_rule
from scripts.studies import rules as study_rules
from scripts.studies.tasks import TASKS, first_mistake, make_problems, right_tokens
from scripts.studies.tasks.models import tokenizer_of
from scripts.studies.tasks.task import END


@pytest.fixture
def tokens() -> Tokens:
    """Two prompts of three responses: lost, lost, won; and won, lost (cut off), won. With labels and hidden states."""
    ids = torch.arange(1, 31).view(6, 5)
    lengths = [5, 3, 5, 4, 2, 5]
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    study_rules.LABELS.ids = [row[:n] for row, n in zip(ids.tolist(), lengths, strict=True)]
    study_rules.LABELS.mistakes = [1, 2, None, None, None, 3]
    advantages = torch.tensor([-0.5, -0.5, 1.0, 0.5, -1.0, 0.5])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    hidden = HiddenStates([torch.randn(sum(lengths), 2)])
    return Tokens(ids, mask, advantages, rewards=(advantages > 0).float(), groups=groups, hidden=hidden)


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
    task = TASKS["arithmetic"]
    rng = random.Random(0)
    tokenizer = tokenizer_of(task)
    problems = make_problems(task)[1][:20]
    texts = [task.demonstrate(problem, rng) for problem in problems]
    ids = tokenizer([text + END for text in texts]).input_ids
    prompts = [problem["prompt"] for problem in problems]
    solutions = [problem["solution"] for problem in problems]

    def reward(completions, prompts, solution):
        return task.reward(completions, solution)

    given = study_rules.labelled(reward, task, tokenizer)(
        completions=texts, prompts=prompts, completion_ids=ids, solution=solutions
    )
    mistakes = study_rules.LABELS.mistakes
    for problem, row, mistake, grade in zip(problems, ids, mistakes, given, strict=True):
        assert mistake == first_mistake(right_tokens(task, problem), tokenizer.convert_ids_to_tokens(row))
        assert grade == 1 or mistake is not None  # two mistakes may cancel, but none of the losers has none
    assert 3 < mistakes.count(None) < 17


@pytest.mark.parametrize("low", [0.1, 0.33])
def test_sibling_value_by_its_formula(tokens, low):
    """Row by row, in float64."""
    options = {"low": low, "bandwidth": 0.3}
    weights = make_rule("scripts.studies.rules.SiblingValue", options).of_rollout(tokens).weights
    states = study_rules.all_states(tokens.hidden).double()
    of_row = [states[tokens.row == row] for row in range(6)]
    of_group = [torch.cat(of_row[:3]), torch.cat(of_row[3:])]
    A = torch.tensor([-0.5, -0.5, 1.0, 0.5, -1.0, 0.5]).double()
    towards = []
    for row, own in enumerate(of_row):
        h = 0.3 * of_group[row // 3].std(dim=0, correction=0).norm()
        siblings = [other for other in range(6) if other // 3 == row // 3 and other != row]
        nearest = [torch.cdist(own, of_row[other]).amin(dim=1) for other in siblings]
        k = torch.exp(-((torch.stack(nearest) / h) ** 2))
        value = A[siblings] @ k / (k.sum(dim=0) + 1e-3)
        jumps = value.diff(append=value[-1:])
        towards.append((A[row].sign() * jumps).clamp(min=0))
    x = torch.cat(towards)
    won = tokens.advantages > 0
    for side in (won, ~won):
        x[side] /= x[side].mean().clamp(min=1e-3)
    expected = low + (1 - low) * x / (1 + x)
    torch.testing.assert_close(weights.double(), expected / expected.mean(), atol=1e-5, rtol=1e-5)


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
    trainer = SimpleNamespace(num_generations=2, processing_class=tokenizer)
    monkeypatch.setattr(study_rules.ROLLOUT, "trainer", trainer)
    monkeypatch.setattr(study_rules.ROLLOUT, "reward", task.reward)
    found = study_rules.line_values(
        completions=texts, prompts=["47+85="] * 2, completion_ids=ids, solution=["132"] * 2
    )
    first = texts[0].index("\n") + 1
    second = texts[0].rindex("\n") + 1
    assert found[0] == [(0, first, 0.0), (first, second, 0.5), (second, len(texts[0]), 0.0)]
    assert found[1] == [(0, first, -0.5)]  # it ends there, and is not right
    assert sorted(asked, key=len) == [texts[1], texts[1], texts[0][:second]]
