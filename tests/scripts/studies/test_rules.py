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


PROMPTS = [0, 0, 0, 1, 1, 1]


@pytest.fixture
def tokens() -> Tokens:
    """Two prompts of three responses: lost, lost, won; and won, lost (cut off), won. With labels and hidden states."""
    ids = torch.arange(1, 31).view(6, 5)
    study_rules.LABELS.ids = [row[:n].tolist() for row, n in zip(ids, LENGTHS, strict=True)]
    study_rules.LABELS.mistakes = [1, 2, None, None, None, 3]
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    hidden = torch.randn(sum(LENGTHS), 2)
    return Tokens(
        ids,
        mask,
        ADVANTAGES,
        groups=torch.tensor(PROMPTS),
        hidden=HiddenStates([hidden]),
    )


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
    rule = make_rule("scripts.studies.rules.Oracle", options)
    weights = rule.of_rollout(tokens).weights
    assert weights.mean() == pytest.approx(1)
    weight_of = {
        "0": 0.0,
        "1": 1.0,
        ".": 0.2,
    }
    signs = expected.replace(" ", "")
    relative = weights / weights.max()
    assert relative.tolist() == pytest.approx([weight_of[sign] for sign in signs])


def test_sibling_value_by_its_formula(tokens):
    """Row by row, in float64."""
    rule = make_rule("scripts.studies.rules.SiblingValue", {"low": 0.33, "bandwidth": 0.3})
    weights = rule.of_rollout(tokens).weights

    [states] = tokens.hidden.blocks
    of_row = states.double().split(LENGTHS)
    A = ADVANTAGES.double()
    towards = []
    for row, own in enumerate(of_row):
        group = [0, 1, 2] if row < 3 else [3, 4, 5]
        siblings = [one for one in group if one != row]
        states_of_group = torch.cat([of_row[one] for one in group])
        spread = states_of_group.std(dim=0, correction=0).norm()
        nearest = []
        for one in siblings:
            distances = torch.cdist(own, of_row[one])
            nearest.append(distances.amin(dim=1))
        relative = torch.stack(nearest) / (0.3 * spread)
        k = torch.exp(-(relative**2))
        value = A[siblings] @ k / (k.sum(dim=0) + 1e-3)
        jumps = value.diff(append=value[-1:])
        gains = A[row].sign() * jumps
        towards.append(gains.clamp(min=0))
    x = torch.cat(towards)
    won = tokens.advantages > 0
    for side in (won, ~won):
        mean = x[side].mean()
        x[side] /= mean.clamp(min=1e-3)
    expected = 0.33 + 0.67 * x / (1 + x)
    expected /= expected.mean()
    torch.testing.assert_close(weights.double(), expected, atol=1e-5, rtol=1e-5)


# --- of one addition, 47+85, and a completion that is right ---

TASK = TASKS["arithmetic_0"]
TOKENIZER = tokenizer_of(TASK)
ONES = "ones 7+5=12 write 2 carry 1\n"
TENS = "tens 4+8+1=13 write 3 carry 1\n"
BOX = r"\boxed{132}"
COLUMNS = {"prompts": ["47+85="] * 2, "solution": ["132"] * 2}


def reward(completions, solution, prompts=None):
    return TASK.reward(completions, solution)


def test_labels_are_the_first_mistakes_of_the_completions_in_their_order():
    before = f"{ONES}tens 4+8+1=13 write "
    right = f"{before}3 carry 1\n{BOX}"
    wrong = f"{before}2 carry 1\n{BOX}"
    ids = TOKENIZER([right + END, wrong + END]).input_ids
    labelled = study_rules.labelled(reward, TASK, TOKENIZER)

    grades = labelled(completions=[right, wrong], completion_ids=ids, **COLUMNS)

    assert grades == [1.0, 1.0]  # the sum was right
    assert study_rules.LABELS.ids == ids
    assert study_rules.LABELS.mistakes == [None, len(TOKENIZER(before).input_ids)]
    assert study_rules.LABELS.offsets == [None, len(before)]


def test_a_line_s_step_reward_is_its_change_of_value(monkeypatch):
    """Continuations win half of the time after the first line, always after the second one of the first completion."""
    whole = ONES + TENS + BOX
    texts = [whole, ONES]
    asked = []

    def values_of(starts, prompts, completion_ids, columns):
        for row, end in starts:
            asked.append(TOKENIZER.decode(completion_ids[row][:end]))
        return [1.0 if "tens" in text else 0.5 for text in asked]

    monkeypatch.setattr(study_rules, "values_of", values_of)
    trainer = SimpleNamespace(num_generations=2, processing_class=TOKENIZER)
    rollout = SimpleNamespace(trainer=trainer, reward=reward)
    monkeypatch.setattr(study_rules, "ROLLOUT", rollout)

    found = study_rules.line_values(completions=texts, completion_ids=TOKENIZER(texts).input_ids, **COLUMNS)

    first = len(ONES)
    second = len(ONES + TENS)
    assert found[0] == [(0, first, 0.0), (first, second, 0.5), (second, len(whole), 0.0)]
    assert found[1] == [(0, first, -0.5)]  # it ends there, and is not right
    assert sorted(asked, key=len) == [ONES, ONES, ONES + TENS]
