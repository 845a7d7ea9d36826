"""The rules of token credit that the studies name."""

import random

import pytest
import torch

from delta_trl.credit import Tokens, make_rule
from scripts.studies import rules as study_rules
from scripts.studies.tasks import TASKS, first_mistake, make_problems, right_tokens
from scripts.studies.tasks.models import tokenizer_of


def a_batch(**known) -> Tokens:
    """Two prompts of three responses: lost, lost, won; and won, lost (cut off), won. With labels."""
    ids = torch.arange(1, 31).view(6, 5)
    lengths = torch.tensor([5, 3, 5, 4, 2, 5])
    mask = torch.arange(5) < lengths[:, None]
    study_rules.LABELS.ids = [row[:n].tolist() for row, n in zip(ids, lengths.tolist(), strict=True)]
    study_rules.LABELS.mistakes = [1, 2, None, None, None, 3]
    advantages = torch.tensor([-0.5, -0.5, 1.0, 0.5, -1.0, 0.5])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    return Tokens(ids, mask, advantages, rewards=(advantages > 0).float(), groups=groups, **known)


def relative(name: str, tokens: Tokens, **options) -> list[list[float]]:
    """Weights of each response's tokens, the largest as 1."""
    weights = make_rule(name, options).of_rollout(tokens).weights
    assert weights.mean() == pytest.approx(1)
    weights = weights / weights.max()
    return [[round(w, 4) for w in weights[tokens.row == row].tolist()] for row in range(6)]


def test_oracle_weighs_first_mistakes_and_where_siblings_made_them():
    tokens = a_batch()
    losers = relative("scripts.studies.rules.Oracle", tokens)
    assert losers == [[0, 1, 0, 0, 0], [0, 0, 1], [1] * 5, [1] * 4, [0, 0], [1] * 5]
    both = relative("scripts.studies.rules.Oracle", tokens, winners=True)
    assert both == [[0, 1, 0, 0, 0], [0, 0, 1], [0, 1, 1, 0, 0], [0] * 4, [0, 0], [0] * 5]
    rest = relative("scripts.studies.rules.Oracle", tokens, rest=0.2)
    assert rest[0] == [0.2, 1, 0.2, 0.2, 0.2]
    study_rules.LABELS.ids = study_rules.LABELS.ids[::-1]
    with pytest.raises(RuntimeError, match="not those of this rollout batch"):
        relative("scripts.studies.rules.Oracle", tokens)


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


def test_oracle_at_a_side_weight():
    tokens = a_batch()
    credit = make_rule(
        "scripts.studies.rules.AtSideWeight", {"rule": "scripts.studies.rules.Oracle", "losers": 0.5}
    ).of_rollout(tokens)
    won = tokens.advantages > 0
    assert credit.weights[~won].mean() / credit.weights[won].mean() == pytest.approx(0.5)
    assert (credit.weights[~won] > 0).sum() == 2


def test_exact_labels_on_both_sides_at_the_balance_of_dapo():
    tokens = a_batch()
    options = {"rule": "scripts.studies.rules.Oracle", "rule_kwargs": {"winners": True, "rest": 0.1}, "losers": 1.0}
    weights = make_rule("scripts.studies.rules.AtSideWeight", options).of_rollout(tokens).weights
    for side in (tokens.advantages > 0, tokens.advantages < 0):
        assert weights[side].mean() == pytest.approx(1)
        assert weights[side].max() / weights[side].min() == pytest.approx(10)


def test_losers_weigh_what_was_probable():
    tokens = a_batch(log_probs=torch.linspace(-3, 0, 30).view(6, 5))
    weights = relative("scripts.studies.rules.ProbableLosers", tokens)
    assert weights[2] == [1] * 5
    assert weights[0] == pytest.approx(tokens.log_probs[:5].exp().tolist(), abs=1e-4)


def test_losers_weigh_as_much_as_the_pass_rate():
    weights = relative("scripts.studies.rules.PassRateSides", a_batch())
    assert weights[:3] == [[0.5] * 5, [0.5] * 3, [1] * 5]


def test_annealing_and_prompt_weights_by_hand():
    """Of `a_batch`'s 24 tokens 14 win; of the first prompt's completions a third, of the second's two thirds."""
    tokens = a_batch()
    annealed = make_rule("scripts.studies.rules.Annealed", {}).of_rollout(tokens).weights
    f = (1 - 0.8 * 14 / 24) / (0.2 + 0.8 * 14 / 24)
    assert f == pytest.approx(0.8)
    assert annealed.tolist() == pytest.approx([0.8] * 24)
    of_prompts = make_rule("scripts.studies.rules.PromptWeights", {}).of_rollout(tokens).weights
    first, second = 1 - 0.8 / 3, 1 - 0.8 * 2 / 3
    mean = (13 * first + 11 * second) / 24  # tokens of each
    assert of_prompts.tolist() == pytest.approx([first / mean] * 13 + [second / mean] * 11)
    left = make_rule("scripts.studies.rules.NotAnnealed", {}).of_rollout(tokens).weights
    assert left[tokens.advantages > 0].tolist() == pytest.approx([1 / (1 - 0.8 * 14 / 24)] * 14)
    assert left[tokens.advantages < 0].tolist() == pytest.approx([0.2 / (1 - 0.8 * 14 / 24)] * 10)


@pytest.mark.parametrize("losers", [0.0, 0.2, 1.0])
def test_side_weights_are_their_sides_and_their_annealing(losers):
    """On prompts of which some have no contrast; and prompt weights are the pull of side weights, counted out."""
    rng = random.Random(0)
    wins = [[int(rng.random() < p) for _ in range(8)] for p in (0.1, 0.3, 0.6, 0.9)] + [[1] * 8, [0] * 8]
    rewards = torch.tensor(wins).float()
    advantages = (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 1e-4)
    mask = torch.arange(9) < torch.tensor([rng.randint(1, 9) for _ in range(48)])[:, None]
    groups = torch.arange(6).repeat_interleave(8)
    tokens = Tokens(mask.long(), mask, advantages.flatten(), rewards=rewards.flatten(), groups=groups)
    names = {"side_weights": "side_weights"}
    names |= {name: f"scripts.studies.rules.{name}" for name in ("Annealed", "NotAnnealed", "PromptWeights")}
    found = {
        name: make_rule(path, {"losers": losers}).of_rollout(tokens).weights.tolist() for name, path in names.items()
    }

    trains = [a != 0 for a in tokens.advantages.tolist()]
    assert 0 < sum(trains) < len(trains)
    for weights in found.values():
        assert all(weight == 1 for weight, t in zip(weights, trains, strict=True) if not t)
    product = [a * b for a, b in zip(found["Annealed"], found["NotAnnealed"], strict=True)]
    assert product == pytest.approx(found["side_weights"])
    assert len({w for w, t in zip(found["Annealed"], trains, strict=True) if t}) == 1

    # In units of the difference between the sides' mean gradients, a winner's is 1 - p on average and a loser's -p, so
    # that those of all completions cancel; advantages are in the same proportion.
    pulls = []
    for of_prompt in wins:
        p = sum(of_prompt) / 8
        terms = [(1 - p) * (1 - p) if won else losers * (-p) * (-p) for won in of_prompt]
        even = sum((1 - p) * (1 - p) if won else p * p for won in of_prompt)
        pulls.append(sum(terms) / even if even else 0.0)
    expected = [pulls[g] for g in tokens.group.tolist()]
    mean = sum(w for w, t in zip(expected, trains, strict=True) if t) / sum(trains)
    expected = [w / mean if t else 1.0 for w, t in zip(expected, trains, strict=True)]
    assert found["PromptWeights"] == pytest.approx(expected, rel=1e-5)
