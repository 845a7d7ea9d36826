"""The balance that follows the rollout batch, against the gradient of every response, one by one."""

import math

import pytest
import torch
from transformers import PreTrainedModel

from delta_trl.credit import AdaptiveSides, Tokens
from delta_trl.policy.standalone import given_tokens

from ..corpus import tiny


LONGEST = 6


def completions(advantages: list[float], other: int = 2, seed: int = 0) -> tuple[PreTrainedModel, list[dict]]:
    """Completions of 1 to `LONGEST` tokens; after the first, which has no advantage and consists of tokens `other`."""
    torch.manual_seed(seed)
    model = tiny.model().double()
    ids = torch.randint(2, 39, (1 + len(advantages), 1 + LONGEST))
    ids[0] = other
    lengths = torch.randint(1, LONGEST + 1, (len(ids),))
    lengths[0] = LONGEST
    return model, [
        {"prompt_ids": row[:1], "token_ids": row[1 : 1 + n], "advantage": advantage, "reward": None, "group": 0}
        for row, n, advantage in zip(ids.tolist(), lengths.tolist(), [0.0, *advantages], strict=True)
    ]


def rollout(*options) -> Tokens:
    return given_tokens(*completions(*options), micro_batch_size=3)


def squares(model: PreTrainedModel, rows: list[dict]) -> torch.Tensor:  # (B,)
    """‖∇ log π(y)‖² of every completion, one by one."""
    found = []
    for row in rows:
        ids = torch.tensor(row["prompt_ids"] + row["token_ids"])
        log_probs = model(input_ids=ids[None]).logits[0, :-1].log_softmax(dim=-1)
        total = log_probs.gather(1, ids[1:, None]).sum()
        gradients = torch.autograd.grad(total, list(model.parameters()))
        found.append(sum(g.square().sum() for g in gradients))
    return torch.stack(found)


def by_side(tokens: Tokens, weights: torch.Tensor) -> tuple[float, float]:
    """The weights of winners and losers, of which each side has one."""
    sides = [weights[tokens.advantages > 0].unique(), weights[tokens.advantages < 0].unique()]
    assert [len(side) for side in sides] == [1, 1]
    return sides[0].item(), sides[1].item()


@pytest.mark.parametrize("seed", range(3))
def test_one_response_on_each_side(seed):
    tokens = rollout([0.7, -0.3], 2, seed)
    _, winner, loser = squares(*completions([0.7, -0.3], 2, seed))
    credit = AdaptiveSides().of_rollout(tokens)
    assert credit.metrics["losers"] == pytest.approx((winner / loser).item(), rel=1e-5)
    winners, losers = by_side(tokens, credit.weights)
    assert losers / winners == pytest.approx(credit.metrics["losers"], rel=1e-5)
    trains = tokens.advantages != 0
    assert credit.weights[trains].mean().item() == pytest.approx(1, abs=1e-6)
    assert (credit.weights[~trains] == 1).all()


@pytest.mark.parametrize("seed", [4, 13])  # losers' weight 0.4 and 2.6
def test_many_responses_on_average_over_signs(seed):
    """What one batch says is right on average over the signs, which another completion without advantage changes."""
    advantages = [1.0, -0.2, -0.2, 0.5, -0.2, 2.0, -0.2]
    model, rows = completions(advantages, 2, seed)
    square, A = squares(model, rows)[1:], torch.tensor(advantages)
    moments = {"winners": square[A > 0].mean().item(), "losers": square[A < 0].mean().item()}
    ratios = []
    for other in range(2, 39):
        rows[0]["token_ids"] = [other] * LONGEST
        tokens = given_tokens(model, rows, micro_batch_size=8)
        ratios.append(AdaptiveSides().of_rollout(tokens).metrics["losers"])
    assert len(set(ratios)) > 10
    assert sum(ratios) / len(ratios) == pytest.approx(moments["winners"] / moments["losers"], rel=0.03)


def test_what_it_does_not_depend_on():
    advantages = [1.0, -0.2, -0.2, 0.5]
    tokens = rollout(advantages)
    state = torch.get_rng_state()
    credit = AdaptiveSides().of_rollout(tokens)
    assert torch.equal(torch.get_rng_state(), state)  # sampling goes on as it would
    assert all(p.grad is None for p in tokens.policy.model.parameters())
    larger = rollout([100 * a for a in advantages])
    assert torch.equal(AdaptiveSides().of_rollout(larger).weights, credit.weights)
    for size in (1, 2, 5):
        tokens.policy.micro_batch_size = size
        torch.testing.assert_close(AdaptiveSides().of_rollout(tokens).weights, credit.weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("advantages", [[0.0, 0.0], [1.0, 0.0], [-1.0, -2.0]])
def test_without_both_sides(advantages):
    credit = AdaptiveSides().of_rollout(rollout(advantages))
    assert credit.neutral
    assert (credit.weights == 1).all()
    assert math.isnan(credit.metrics["losers"])


@pytest.mark.parametrize("broken", [0.0, math.inf, math.nan])
@pytest.mark.parametrize("row", [1, 2])
def test_gradients_that_tell_nothing(broken, row, monkeypatch):
    """Those of one response, a winner's or a loser's, vanish or are not finite."""
    tokens = rollout([0.7, -0.3])
    log_probs_at = tokens.policy.log_probs_at
    factor = torch.ones(3, 1, dtype=torch.float64)
    factor[row] = broken
    monkeypatch.setattr(tokens.policy, "log_probs_at", lambda rows, *rest: log_probs_at(rows, *rest) * factor[rows])
    credit = AdaptiveSides().of_rollout(tokens)
    assert credit.neutral
    assert (credit.weights == 1).all()
