"""LM-head and top-K gradients against explicit outer products and autograd, in float64."""

from types import SimpleNamespace

import pytest
import torch

from delta_trl.credit import LMHead, LMHeadGradients, OutputRowGradients, TopKHiddenGradients, token_coefficients
from delta_trl.credit.gradients import vocabulary as module


N, V, D = 40, 23, 6
HEADS = {
    "plain": {},
    "bias": {"bias": torch.linspace(-1, 1, V).double()},
    "temperature": {"temperature": 0.7},
    "softcap and scale": {"softcap": 2.0, "scale": 0.5},
}


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, D, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64).to(dtype)
    tokens = torch.randint(0, V, (N,), generator=generator)
    return hidden, tokens, weight, torch.randn(N, generator=generator, dtype=torch.float64)


def log_probs(hidden, tokens, weight, bias=None, temperature=1.0, scale=1.0, softcap=None):
    """Written out, independently of `LMHead`."""
    logits = torch.nn.functional.linear(hidden, weight, bias) * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return (logits / temperature).log_softmax(dim=1)[torch.arange(len(tokens)), tokens]


def by_autograd(wrt, hidden, tokens, weight, options):
    """∂ log π(o_j) / ∂ W or ∂ h for every token, flattened: (N, …)."""
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    values = log_probs(hidden, tokens, weight, **options)
    rows = []
    for j in range(len(tokens)):
        (gradient,) = torch.autograd.grad(values[j], weight if wrt == "weight" else hidden, retain_graph=True)
        rows.append(gradient.flatten() if wrt == "weight" else gradient[j])
    return torch.stack(rows)


@pytest.fixture(params=[2**24, 50], ids=["one tile", "many tiles"])
def _tiles(request, monkeypatch):
    monkeypatch.setattr(module, "_TILE", request.param)


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_lm_head_equals_autograd(options):
    hidden, tokens, weight, c = batch()
    v = by_autograd("weight", hidden, tokens, weight, options)
    gradients = LMHeadGradients(hidden, tokens, LMHead(weight, **options))
    direction = gradients.combine(c)
    torch.testing.assert_close(direction.flatten(), c @ v)
    torch.testing.assert_close(gradients.score(direction), v @ (c @ v))


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_top_k_with_the_whole_vocabulary_is_the_hidden_gradient(options):
    hidden, tokens, weight, c = batch()
    v = by_autograd("hidden", hidden, tokens, weight, options)
    gradients = TopKHiddenGradients(hidden, tokens, LMHead(weight, **options), k=V)
    torch.testing.assert_close(gradients.combine(c), c @ v)
    torch.testing.assert_close(gradients.score(c @ v), v @ (c @ v))


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize("k", [1, 5])
def test_top_k_equals_explicit_vectors(k):
    hidden, tokens, weight, c = batch()
    v = []
    for h, y in zip(hidden, tokens, strict=True):
        values, ids = (weight @ h).topk(k)
        v.append(weight[y] - values.softmax(0) @ weight[ids])
    v = torch.stack(v)
    gradients = TopKHiddenGradients(hidden, tokens, LMHead(weight), k=k)
    torch.testing.assert_close(gradients.combine(c), c @ v)
    torch.testing.assert_close(gradients.score(c @ v), v @ (c @ v))


def test_output_row_is_a_row_of_the_lm_head_gradient():
    hidden, tokens, weight, _ = batch()
    explicit = by_autograd("weight", hidden, tokens, weight, {}).view(N, V, D)[torch.arange(N), tokens]
    gradients = OutputRowGradients(hidden, log_probs(hidden, tokens, weight))
    for j in range(N):
        torch.testing.assert_close(gradients.combine(torch.eye(N)[j].double()), explicit[j])


@pytest.mark.parametrize("make", [LMHeadGradients, lambda *a: TopKHiddenGradients(*a, k=5)], ids=["lm_head", "top_k"])
def test_low_precision_states(make):
    """bfloat16 states and weights give the coefficients of those very numbers."""
    hidden, tokens, weight, advantages = batch(torch.bfloat16)
    ours = token_coefficients(make(hidden, tokens, LMHead(weight)), advantages)
    exact = token_coefficients(make(hidden.double(), tokens, LMHead(weight.double())), advantages)
    torch.testing.assert_close(ours, exact, atol=1e-4, rtol=0)


def test_never_tokens_times_vocabulary(monkeypatch):
    V, n, tile = 512, 1024, 2**16
    monkeypatch.setattr(module, "_TILE", tile)
    hidden, tokens, weight = torch.randn(n, 8), torch.randint(0, V, (n,)), torch.randn(V, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        for gradients in (
            LMHeadGradients(hidden, tokens, LMHead(weight)),
            TopKHiddenGradients(hidden, tokens, LMHead(weight), k=20),
        ):
            gradients.score(gradients.combine(torch.ones(n)))
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest <= tile * 4 < n * V * 4


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, 1.0),
        ({"logit_scale": 0.25}, 0.25),
        ({"lm_head_multiplier": 0.5}, 0.5),
        ({"output_multiplier": 0.2}, 0.2),
        ({"logits_scaling": 8.0}, 0.125),
        ({"logits_scaling": 8.0, "model_type": "hyperclovax"}, 8.0),
    ],
    ids=str,
)
def test_a_model_s_head_scales_its_logits(settings, factor):
    hidden, _, weight, _ = batch()
    config = SimpleNamespace(**{"model_type": "some", **settings})
    model = SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: config),
        get_output_embeddings=lambda: SimpleNamespace(weight=weight),
    )
    logits, slope = LMHead.of(model, temperature=2.0).logits(hidden)
    torch.testing.assert_close(logits, hidden @ weight.T * factor / 2)
    assert slope.item() == factor / 2


@pytest.mark.parametrize("k", [0, V + 1])
def test_k_is_checked(k):
    hidden, tokens, weight, _ = batch()
    with pytest.raises(ValueError, match=f"k={k} must be between 1 and the vocabulary's size, {V}"):
        TopKHiddenGradients(hidden, tokens, LMHead(weight), k=k)


def test_shapes_are_checked():
    hidden, tokens, weight, _ = batch()
    with pytest.raises(ValueError, match=r"\(N, 6\).*\(40, 5\)"):
        LMHeadGradients(hidden[:, :5], tokens, LMHead(weight))
