"""Exact gradients against brute force: each token's gradient over all trainable parameters, one by one, in float64."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from delta_trl.credit import FullGradients, token_coefficients

from .. import tiny


def models():
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return {
        "qwen3": tiny.model(tie_word_embeddings=False),
        "tied embeddings": tiny.model(tie_word_embeddings=True),
        "lora": get_peft_model(tiny.model(), lora, autocast_adapter_dtype=False),
    }


def scorer(model):
    """Log-probs of two micro-batches of two sequences of ten tokens."""
    ids = torch.randint(2, 39, (4, 10), generator=torch.Generator().manual_seed(0))

    def log_probs(i):
        x = ids[2 * i : 2 * i + 2]
        log_p = model(input_ids=x).logits[:, :-1].log_softmax(dim=-1)
        return log_p.gather(2, x[:, 1:, None]).flatten()

    return log_probs


def brute_force(model) -> torch.Tensor:  # (N, parameters)
    log_probs, parameters = scorer(model), [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(2):
        for value in log_probs(i):
            gradients = torch.autograd.grad(value, parameters, retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in gradients]))
    return torch.stack(rows).double()


def relative_error(ours, exact):
    return ((ours.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize(("estimator", "tolerance"), [("forward", 1e-6), ("difference", 1e-4)])
def test_scores_equal_brute_force(name, estimator, tolerance):
    model = models()[name].double()
    v = brute_force(model)
    c = torch.randn(len(v), dtype=torch.float64)
    gradients = FullGradients(model, scorer(model), 2, estimator)
    direction = gradients.combine(c)
    assert relative_error(torch.cat([d.flatten() for d in direction]), c @ v) < 1e-6
    assert relative_error(gradients.score(direction), v @ (c @ v)) < tolerance


@pytest.mark.parametrize(
    ("dtype", "tolerance", "correlation"), [(torch.float32, 1e-4, 0.99999), (torch.bfloat16, 0.15, 0.99)], ids=str
)
def test_difference_by_dtype(dtype, tolerance, correlation):
    model = tiny.model().to(dtype)
    v = brute_force(model.double())
    model = model.to(dtype)
    c = torch.randn(len(v))
    gradients = FullGradients(model, scorer(model), 2)
    ours, exact = gradients.score(gradients.combine(c)).double(), v @ (c.double() @ v)
    error, r = relative_error(ours, exact), torch.corrcoef(torch.stack([ours, exact]))[0, 1].item()
    print(f"central difference in {dtype}: relative error {error:.1e}, correlation {r:.5f}")
    assert error < tolerance
    assert r > correlation


@pytest.mark.parametrize("K", [0, 1, 2])
def test_coefficients_equal_the_oracle(K):
    from . import oracle

    model = tiny.model().double()
    v, advantages = brute_force(model), torch.randn(36, dtype=torch.float64)
    expected, _ = oracle.coefficients(v, advantages, K=K)
    for estimator, tolerance in (("forward", 1e-5), ("difference", 1e-3)):
        gradients = FullGradients(model, scorer(model), 2, estimator)
        ours = token_coefficients(gradients, advantages, refinement_steps=K)
        torch.testing.assert_close(ours.double(), torch.tensor(expected), atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fail_at", [None, 0, 1, 2, 3])
def test_parameters_are_restored_to_the_bit(dtype, fail_at):
    """Also when one of the four probing forwards raises."""
    model = tiny.model().to(dtype)
    log_probs, calls = scorer(model), []

    def failing(i):
        calls.append(i)
        if fail_at is not None and not torch.is_grad_enabled() and len(calls) > 2 + fail_at:
            raise RuntimeError("out of memory")
        return log_probs(i)

    before = [p.detach().clone() for p in model.parameters()]
    gradients = FullGradients(model, failing, 2)
    direction = gradients.combine(torch.randn(36))
    if fail_at is None:
        gradients.score(direction)
    else:
        with pytest.raises(RuntimeError, match="out of memory"):
            gradients.score(direction)
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, q)
        assert p.grad is None


def test_optimiser_gradients_are_left_alone():
    model = tiny.model()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    gradients = FullGradients(model, scorer(model), 2)
    gradients.score(gradients.combine(torch.randn(36)))
    assert all((p.grad == 1).all() for p in model.parameters())


@pytest.mark.parametrize("estimator", ["forward", "difference"])
def test_dropout_is_the_same_in_every_forward(estimator):
    """Otherwise two probes would differ by their noise. The global generator is left as it was."""
    model = tiny.model(attention_dropout=0.2).train()
    before = torch.get_rng_state()
    gradients = FullGradients(model, scorer(model), 2, estimator)
    first = gradients.score(gradients.combine(torch.ones(36)))
    assert torch.equal(torch.get_rng_state(), before)
    other = FullGradients(model, scorer(model), 2, "forward" if estimator == "difference" else "difference")
    assert relative_error(first, other.score(other.combine(torch.ones(36))).double()) < 1e-3


def test_no_direction_gives_no_score():
    model = tiny.model()
    gradients = FullGradients(model, scorer(model), 2)
    assert (gradients.score(gradients.combine(torch.zeros(36))) == 0).all()


@pytest.mark.parametrize("estimator", ["forward", "difference"])
def test_last_blocks(estimator):
    """As if all other parameters were frozen."""
    model, frozen = tiny.model().double(), tiny.model().double()
    frozen.load_state_dict(model.state_dict())
    for name, p in frozen.named_parameters():
        p.requires_grad_("layers.1." in name)
    v, c = brute_force(frozen), torch.randn(36, dtype=torch.float64)
    gradients = FullGradients(model, scorer(model), 2, estimator, last_blocks=1)
    assert relative_error(gradients.score(gradients.combine(c)), v @ (c @ v)) < 1e-4
    with pytest.raises(ValueError, match="in its last 1 blocks"):
        FullGradients(frozen.requires_grad_(False), scorer(model), 2, last_blocks=1)


def test_errors():
    with pytest.raises(ValueError, match="estimator='exact'"):
        FullGradients(tiny.model(), None, 1, "exact")
    with pytest.raises(ValueError, match="no parameter of Qwen3ForCausalLM"):
        FullGradients(tiny.model().requires_grad_(False), None, 1)
