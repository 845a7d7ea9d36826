"""The rules by exact labels that the studies name."""

from types import SimpleNamespace

import pytest
import torch

from delta_trl.credit import HiddenStates, Tokens, make_rule
from scripts.studies import rules as study_rules
from scripts.studies.tasks import TASKS
from scripts.studies.tasks.models import tokenizer_of
from scripts.studies.tasks.task import END


ADVANTAGES = torch.tensor([-0.5, -0.5, 1.0, 0.5, -1.0, 0.5])
LENGTHS = [5, 3, 5, 4, 2, 5]


@pytest.fixture
def tokens() -> Tokens:
    """Two prompts of three responses: lost, lost, won; and won, lost (cut off), won. With labels and hidden states."""
    ids = torch.arange(1, 31).view(6, 5)
    study_rules.LABELS.ids = [row[:n] for row, n in zip(ids.tolist(), LENGTHS, strict=True)]
    study_rules.LABELS.mistakes = [1, 2, None, None, None, 3]
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    hidden = HiddenStates([torch.randn(sum(LENGTHS), 2)])
    return Tokens(ids, mask, ADVANTAGES, groups=torch.tensor([0, 0, 0, 1, 1, 1]), hidden=hidden)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "01000 001 11111 1111 00 11111"),
        ({"winners": True}, "01000 001 01100 0000 00 00000"),
        ({"rest": 0.2}, ".1... ..1 11111 1111 .. 11111"),
    ],
    ids=str,
)
def test_oracle_weighs_first_mistakes_and_where_siblings_made_them(tokens, options, expected):
    """Expected: a digit for each token, a point for the rest's weight."""
    weights = make_rule("scripts.studies.rules.Oracle", options).of_rollout(tokens).weights
    assert weights.mean() == pytest.approx(1)
    relative = [0.2 if token == "." else float(token) for token in expected.replace(" ", "")]
    assert (weights / weights.max()).tolist() == pytest.approx(relative)


def test_sibling_value_by_its_formula(tokens):
    """Row by row, in float64."""
    options = {"low": 0.33, "bandwidth": 0.3}
    weights = make_rule("scripts.studies.rules.SiblingValue", options).of_rollout(tokens).weights
    [states] = tokens.hidden.blocks
    of_row = states.double().split(LENGTHS)
    A = ADVANTAGES.double()
    towards = []
    for row, own in enumerate(of_row):
        group = [0, 1, 2] if row < 3 else [3, 4, 5]
        h = 0.3 * torch.cat([of_row[one] for one in group]).std(dim=0, correction=0).norm()
        siblings = [one for one in group if one != row]
        nearest = torch.stack([torch.cdist(own, of_row[one]).amin(dim=1) for one in siblings])
        k = torch.exp(-((nearest / h) ** 2))
        value = A[siblings] @ k / (k.sum(dim=0) + 1e-3)
        jumps = value.diff(append=value[-1:])
        towards.append((A[row].sign() * jumps).clamp(min=0))
    x = torch.cat(towards)
    won = tokens.advantages > 0
    for side in (won, ~won):
        x[side] /= x[side].mean().clamp(min=1e-3)
    expected = 0.33 + 0.67 * x / (1 + x)
    torch.testing.assert_close(weights.double(), expected / expected.mean(), atol=1e-5, rtol=1e-5)


# --- of one addition, 47+85, and a completion that is right ---

TASK = TASKS["arithmetic_0"]
TOKENIZER = tokenizer_of(TASK)
ONES, TENS, BOX = "ones 7+5=12 write 2 carry 1\n", "tens 4+8+1=13 write 3 carry 1\n", r"\boxed{132}"
COLUMNS = {"prompts": ["47+85="] * 2, "solution": ["132"] * 2}


def reward(completions, solution, prompts=None):
    return TASK.reward(completions, solution)


def test_labels_are_the_first_mistakes_of_the_completions_in_their_order():
    right = ONES + TENS + BOX
    place = right.index("3 write")
    texts = [right, right[:place] + "2" + right[place + 1 :]]
    ids = TOKENIZER([text + END for text in texts]).input_ids
    labelled = study_rules.labelled(reward, TASK, TOKENIZER)
    assert labelled(completions=texts, completion_ids=ids, **COLUMNS) == [1.0, 1.0]  # the sum was right
    assert study_rules.LABELS.ids == ids
    assert study_rules.LABELS.mistakes == [None, len(TOKENIZER(right[:place]).input_ids)]
    assert study_rules.LABELS.offsets == [None, place]


def test_a_line_s_step_reward_is_its_change_of_value(monkeypatch):
    """Continuations win half of the time after the first line, always after the second one of the first completion."""
    texts = [ONES + TENS + BOX, ONES]
    asked = []

    def values_of(starts, prompts, completion_ids, columns):
        asked.extend(TOKENIZER.decode(completion_ids[row][:end]) for row, end in starts)
        return [1.0 if "tens" in text else 0.5 for text in asked]

    monkeypatch.setattr(study_rules, "values_of", values_of)
    trainer = SimpleNamespace(num_generations=2, processing_class=TOKENIZER)
    monkeypatch.setattr(study_rules, "ROLLOUT", SimpleNamespace(trainer=trainer, reward=reward))
    found = study_rules.line_values(completions=texts, completion_ids=TOKENIZER(texts).input_ids, **COLUMNS)
    ends = len(ONES), len(ONES + TENS), len(texts[0])
    assert found[0] == [(0, ends[0], 0.0), (ends[0], ends[1], 0.5), (ends[1], ends[2], 0.0)]
    assert found[1] == [(0, ends[0], -0.5)]  # it ends there, and is not right
    assert sorted(asked, key=len) == [ONES, ONES, ONES + TENS]
