"""Policy gradients against a plain backward pass, and their projections against themselves."""

import pytest
import torch

from delta_trl.audit import gradients
from delta_trl.audit.gradients import policy_gradients
from delta_trl.policy.standalone import given_tokens

from ..corpus import tiny


@pytest.fixture(scope="module")
def batch():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(1)
    model = tiny.model().eval()
    rows = []
    for i, (prompt, length) in enumerate([(3, 5), (2, 1), (4, 7), (3, 4), (1, 6)]):
        ids = torch.randint(3, 30, (prompt + length,), generator=rng).tolist()
        rows.append(
            {"prompt_ids": ids[:prompt], "token_ids": ids[prompt:], "advantage": [1.0, -0.5, 0.0, -2.0, 0.3][i],
             "reward": 1.0, "group": i // 2}
        )  # fmt: skip
    return model, rows


def plain(model, rows, weights, temperature) -> torch.Tensor:
    """Sequence by sequence, without padding."""
    total, start = 0.0, 0
    for row in rows:
        ids = torch.tensor(row["prompt_ids"] + row["token_ids"])
        n = len(row["token_ids"])
        logits = model(input_ids=ids[None]).logits[0, -n - 1 : -1] / temperature
        log_probs = logits.log_softmax(dim=-1)[torch.arange(n), ids[-n:]]
        total = total + (weights[start : start + n] * row["advantage"] * log_probs).sum()
        start += n
    parts = torch.autograd.grad(total / start, list(model.parameters()))
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("micro_batch_size", [1, 2, 5])
def test_gradients_are_those_of_a_plain_backward(batch, micro_batch_size):
    model, rows = batch
    tokens = given_tokens(model, rows, temperature=0.7, micro_batch_size=micro_batch_size)
    weights = {"one": torch.ones(len(tokens)), "other": torch.linspace(-1, 2, len(tokens))}
    found = policy_gradients(tokens, weights, seed=0)
    for name, of_all in weights.items():
        torch.testing.assert_close(found[name], plain(model, rows, of_all, 0.7), atol=1e-6, rtol=1e-4)
    assert all(p.grad is None for p in model.parameters())


def test_without_advantages_nothing_pulls(batch):
    model, rows = batch
    tokens = given_tokens(model, [{**row, "advantage": 0.0} for row in rows])
    assert not policy_gradients(tokens, {"one": torch.ones(len(tokens))}, seed=0)["one"].any()


def test_projections_keep_inner_products(batch, monkeypatch):
    model, rows = batch
    tokens = given_tokens(model, rows, micro_batch_size=2)
    torch.manual_seed(3)
    weights = {str(i): torch.rand(len(tokens)) for i in range(4)}
    whole = torch.stack(list(policy_gradients(tokens, weights, seed=0).values()))
    monkeypatch.setattr(gradients, "SIZE", 2**9)
    monkeypatch.setattr(gradients, "PART", 100)  # parts of parameters have places of their own
    lengths = whole.norm(dim=1)
    errors = []
    for seed in range(8):
        small = torch.stack(list(policy_gradients(tokens, weights, seed=seed).values()))
        assert small.shape == (4, 2**9)
        errors.append((small @ small.T - whole @ whole.T) / (lengths[:, None] * lengths))
    errors = torch.stack(errors)
    assert errors.abs().mean() < 2 / 2**4.5
    assert errors.mean(dim=0).abs().max() < 3 / 2**4.5 / 8**0.5 * 1.5  # without bias
    again = policy_gradients(tokens, weights, seed=0)
    assert torch.equal(again["0"], policy_gradients(tokens, weights, seed=0)["0"])


def test_places_and_signs_are_spread_evenly():
    place, sign = gradients._hash(0, 2**20, seed=5, device=torch.device("cpu"))
    counts = torch.bincount(place, minlength=gradients.SIZE).double()
    expected = 2**20 / gradients.SIZE
    assert ((counts - expected) ** 2 / expected).sum() / gradients.SIZE == pytest.approx(1, abs=0.03)
    assert abs(sign.mean()) < 0.005
    assert abs((sign[1:] * sign[:-1]).mean()) < 0.005
