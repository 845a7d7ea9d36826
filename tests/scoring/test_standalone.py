"""Given completions as tokens of a rollout batch, against each of them alone."""

import pytest
import torch

from delta_trl.credit import Credit, TokenCredit
from delta_trl.scoring.standalone import given_tokens, rule_without_training

from ..corpus import tiny
from ..trainers import sharp


def given(group: int, reward: float | None, token_ids: list[int], **turns) -> dict:
    prompt_ids = [[5, 6], [7]][group]
    return {"group": group, "reward": reward, "prompt_ids": prompt_ids, "token_ids": token_ids, **turns}


ROWS = [  # of two prompts that alternate, with a tool's text, without a reward, of unequal lengths
    given(0, 1.0, [7, 8, 9, 10, 1], turns=[1, 1, 0, 0, 2]),
    given(1, None, [3], turns=None),
    given(0, 0, [7, 1]),
    given(1, -1.0, [3, 4, 5]),
    given(1, 2.0, [0, 1]),
]
OF_POLICY = [[1, 1, 0, 0, 1], [1], [1, 1], [1, 1, 1], [1, 1]]


def of_row_alone(model, row: dict, of_policy: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probs, entropies and states of the policy's tokens of one completion, by a plain forward."""
    ids = torch.tensor([row["prompt_ids"] + row["token_ids"]])
    output = model(ids, output_hidden_states=True)
    n_prompt = len(row["prompt_ids"])
    predicting = slice(n_prompt - 1, -1)
    chosen = torch.tensor(of_policy).bool()
    logits = output.logits[0, predicting][chosen]
    of_all = logits.log_softmax(dim=-1)
    token_ids = torch.tensor(row["token_ids"])[chosen]
    log_probs = of_all.gather(1, token_ids[:, None])[:, 0]
    entropies = -(of_all.exp() * of_all).sum(dim=1)
    states = output.hidden_states[-1][0, predicting]
    return log_probs, entropies, states[chosen]


@pytest.mark.parametrize(("micro_batch_size", "progress"), [(1, True), (2, False), (9, False)])
def test_given_completions_are_scored_as_each_alone(capsys, micro_batch_size, progress):
    model = sharp().eval()
    rows = [{"prompt": "1+1=", **row} for row in ROWS]
    options = {"micro_batch_size": micro_batch_size, "progress": progress}
    tokens = given_tokens(model, rows, tiny.tokenizer(), **options)

    with torch.no_grad():
        alone = [of_row_alone(model, row, of_policy) for row, of_policy in zip(ROWS, OF_POLICY, strict=True)]
    log_probs, entropies, hidden = (torch.cat(parts) for parts in zip(*alone, strict=True))
    states = torch.cat([chunk for _, chunk in tokens.hidden.chunks()])
    ours = [tokens.entropies, tokens.log_probs, states]
    torch.testing.assert_close(ours, [entropies, log_probs, hidden], atol=1e-5, rtol=1e-4)
    assert ("scoring" in capsys.readouterr().err) is progress
    for some in ([3, 0], [4, 2]):  # with the longest, and without
        again = tokens.log_probs_at(torch.tensor(some))
        expected = torch.cat([alone[row][0] for row in some])
        torch.testing.assert_close(again, expected, atol=1e-5, rtol=0)
        assert again.requires_grad


def test_given_completions_have_their_rewards_and_advantages():
    """Over each prompt as in GRPO; 0 without a reward."""
    prompts = ["0+1=", "1+1=", "0+1=", "1+1=", "1+1="]
    rows = [{"prompt": prompt, **row} for prompt, row in zip(prompts, ROWS, strict=True)]
    tokens = given_tokens(tiny.model().eval(), rows, tiny.tokenizer(), micro_batch_size=2)
    first = 0.5 / (0.5**0.5 + 1e-4)
    second = 1.5 / (4.5**0.5 + 1e-4)
    advantages = [first, 0.0, -first, -second, second]
    assert [row["advantage"] for row in rows] == pytest.approx(advantages)

    lengths = [sum(of_policy) for of_policy in OF_POLICY]

    def of_tokens(values) -> list:
        return [value for value, n in zip(values, lengths, strict=True) for _ in range(n)]

    assert tokens.advantages.tolist() == pytest.approx(of_tokens(advantages))
    assert tokens.rewards.tolist() == pytest.approx(of_tokens([1.0, torch.nan, 0.0, -1.0, 2.0]), nan_ok=True)
    assert tokens.group.tolist() == of_tokens([0, 1, 0, 1, 1])
    assert tokens.ids.tolist() == [7, 8, 1, 3, 7, 1, 3, 4, 5, 0, 1]
    responses = tokens.policy.responses()
    assert responses.prompts == prompts
    assert responses.completions == ["5 6 7 8", "1", "5", "1 2 3", ""]


class OfBoth(TokenCredit):
    def of_rollout(self, tokens):
        return Credit(torch.ones(len(tokens)))

    def of_micro_batch(self, tokens):
        return Credit(torch.ones(len(tokens)))


class BeginsAnew(TokenCredit):
    state: dict | None = None

    def of_rollout(self, tokens):
        return Credit(torch.ones(len(tokens)))

    def load_state_dict(self, state):
        self.state = state


def test_rules_without_training_begin_anew_and_credit_rollouts_alone():
    assert rule_without_training(f"{__name__}.BeginsAnew").state == {}
    with pytest.raises(ValueError, match=r"OfBoth' credits micro-batches"):
        rule_without_training(f"{__name__}.OfBoth")
