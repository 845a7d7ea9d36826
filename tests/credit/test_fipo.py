from types import SimpleNamespace

import pytest
import torch
from trl import GRPOConfig

from delta_trl.credit import FIPO, Tokens
from delta_trl.credit.rules.fipo import discounted_future_sum


@pytest.mark.parametrize("T", [1, 5, 128, 129, 300])
def test_discounted_future_sum(T):
    x, gamma = torch.randn(3, T, dtype=torch.float64), 0.97
    powers = gamma ** torch.arange(T, dtype=torch.float64)
    expected = torch.stack([(powers[: T - t] * x[:, t:]).sum(dim=1) for t in range(T)], dim=1)
    torch.testing.assert_close(discounted_future_sum(x, gamma), expected)


def test_weights_by_hand():
    """Three tokens, decay 1 (γ = 1/2): a future that is being reinforced counts more, up to the clip."""
    old = torch.zeros(2, 3)
    new = torch.tensor([[0.0, 0.1, 0.1], [0.0, -1.0, 2.5]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 1]])
    f = FIPO(decay=1.0).weights(new, old, torch.tensor([1.0, -1.0]), mask)
    by_hand = torch.tensor([[0.075, 0.15, 0.1], [0.125, 0.25, 2.5]]).exp()
    # the last token of the losing response has a ratio of e^2.5 > 10: it is not amplified
    expected = torch.stack([by_hand[0].clamp(1, 1.2), by_hand[1].clamp(1, 1.2)])
    expected[1, 2] = 1.0
    torch.testing.assert_close(f, expected)


def test_a_suppressed_future_does_not_weaken():
    f = FIPO().weights(torch.full((1, 4), -1.0), torch.zeros(1, 4), torch.ones(1), torch.ones(1, 4))
    assert (f == 1).all()


def test_padding_and_dual_clipped_tokens_have_no_future():
    new, old = torch.tensor([[0.0, 0.05, 3.0]]), torch.zeros(1, 3)
    mask = torch.tensor([[1, 1, 0]])
    masked = FIPO().weights(new, old, torch.ones(1), mask)
    clipped = FIPO(dual_clip=10.0).weights(new, old, torch.ones(1), torch.ones(1, 3))
    torch.testing.assert_close(masked[:, :2], clipped[:, :2])
    assert masked[0, 0] < 1.06


def test_nothing_moved():
    x = torch.randn(2, 7)
    assert (FIPO().weights(x, x, torch.tensor([1.0, -1.0]), torch.ones(2, 7)) == 1).all()


@pytest.mark.parametrize(("given", "loss", "used"), [(None, None, None), (None, 4.0, 4.0), (3.0, 40.0, 3.0)])
def test_the_dual_clip_is_that_of_the_loss_unless_it_is_given(given, loss, used):
    args = GRPOConfig("unused", delta=loss, steps_per_generation=2, use_cpu=True)
    rule = FIPO(dual_clip=given)
    rule.check(SimpleNamespace(args=args))
    new, old, mask, advantages = (
        torch.tensor([[0.0, 0.05, 1.2, 2.0]]),
        torch.zeros(1, 4),
        torch.ones(1, 4),
        torch.ones(1),
    )
    tokens = Tokens(torch.zeros(1, 4).long(), mask, advantages, log_probs=new, old_log_probs=old)
    expected = FIPO(dual_clip=used).weights(new, old, advantages, mask)
    torch.testing.assert_close(rule.of_micro_batch(tokens).weights, expected[0])


@pytest.mark.parametrize("value", [-1.0, 0, "a", True])
def test_a_dual_clip_out_of_range(value):
    with pytest.raises(ValueError, match="dual_clip="):
        FIPO(dual_clip=value)
