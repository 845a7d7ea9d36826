"""The rules by exact labels that the studies name."""

import random

import pytest
import torch

from delta_trl.credit import Tokens, make_rule
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
