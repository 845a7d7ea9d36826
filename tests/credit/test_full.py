"""Gradients over all trainable parameters against double backward passes in float64."""

import copy
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM, AutoTokenizer

from delta_trl.credit import FullGradients

from ..corpus import tiny


QUICKSTART_MODEL = Path(__file__).parents[2] / "recipes/quickstart/model"
RANDOM_IDS = torch.randint(2, 39, (4, 10), generator=torch.Generator().manual_seed(0))


def with_adapter():
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(tiny.model(), lora, autocast_adapter_dtype=False)
    for name, p in model.named_parameters():
        p.data *= 0.1 if "lora_B" in name else 1  # drawn at random, it would outweigh the model
    return model


def scorer(model, ids=RANDOM_IDS, autocast=False, dtype=torch.bfloat16):
    """Log-probs of two micro-batches, by default of two sequences of ten tokens each."""

    def log_probs(i):
        x = ids.chunk(2)[i]
        with torch.autocast(ids.device.type, dtype, enabled=autocast):
            logits = model(input_ids=x).logits[:, :-1]
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
        return log_p.gather(2, x[:, 1:, None]).flatten()

    return log_probs


def exact_products(model, log_probs, weights) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ_k c_k v_k (parameters,) for weights c (N,), and its products (N,) with every v_j, in float64."""
    parameters = [p for p in model.double().parameters() if p.requires_grad]
    c = weights.double().clone().requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
        total = (c * torch.cat([log_probs(i) for i in range(2)])).sum()
        gradients = torch.autograd.grad(total, parameters, create_graph=True)
    direction = torch.cat([g.flatten() for g in gradients])  # linear in c: its derivative by c_j is v_j
    (products,) = torch.autograd.grad(direction, c, grad_outputs=direction.detach())
    return direction.detach(), products


def relative_error(ours, exact):
    return ((ours.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(
    "make", [lambda: tiny.model(tie_word_embeddings=True), with_adapter], ids=["tied embeddings", "lora"]
)
def test_sums_and_scores_are_exact(make):
    model = make().double()
    first, second = torch.randn(2, 36, dtype=torch.float64)
    for dtype, tolerance in ((None, 1e-4), (torch.float32, 5e-3)):  # central, one-sided
        gradients = FullGradients(model, scorer(model), 2, dtype=dtype)
        assert gradients.one_sided == (dtype is torch.float32)
        for c, allowed in ((first, tolerance), (second, 2e-2)):  # whose step is corrected as the first one's
            exact_direction, exact = exact_products(model, scorer(model), c)
            direction = gradients.combine(c)
            assert relative_error(torch.cat([d.flatten() for d in direction]), exact_direction) < 1e-6
            assert relative_error(gradients.score(direction), exact) < allowed


@pytest.fixture(scope="module", params=["random", "warmed up"])
def measured(request):
    """
    A model in float64, token ids, weights of their tokens and exact scores. The warmed-up model is the quickstart's,
    on its own completions: sharper than a random one by orders of magnitude.
    """
    torch.manual_seed(0)
    model, ids = tiny.model(), RANDOM_IDS
    if request.param == "warmed up":
        model = AutoModelForCausalLM.from_pretrained(QUICKSTART_MODEL)
        prompts = AutoTokenizer.from_pretrained(QUICKSTART_MODEL)(["345+567=", "981+209="] * 3, return_tensors="pt")
        ids = model.generate(**prompts, do_sample=True, top_k=0, min_new_tokens=44, max_new_tokens=44)
    c = torch.randn(ids[:, 1:].numel())
    return model, ids, c, exact_products(model, scorer(model, ids), c)[1]


@pytest.mark.parametrize(
    ("dtype", "autocast", "scale", "tolerance", "correlation"),
    [
        (torch.float32, False, 1e3, 1e-2, 0.9999),  # the direction's scale has no influence on the step
        (torch.float32, True, 1, 0.25, 0.98),  # 0.16 on an Intel Xeon
        (torch.bfloat16, False, 1, 0.8, 0.95),
    ],
    ids=["float32", "autocast to bfloat16", "bfloat16"],
)
def test_differences_are_as_exact_as_the_dtype(measured, dtype, autocast, scale, tolerance, correlation):
    assert_near_exact(measured, dtype, autocast, tolerance, correlation, scale)


def assert_near_exact(measured, dtype, autocast, tolerance, correlation, scale=1):
    model, ids, c, exact = measured
    model = copy.deepcopy(model).to(dtype)
    gradients = FullGradients(model, scorer(model, ids, autocast), 2, dtype=torch.bfloat16 if autocast else None)
    assert gradients.one_sided == (dtype is torch.float32 and not autocast)
    ours = gradients.score(gradients.combine(scale * c)).double() / scale
    assert relative_error(ours, exact) < tolerance
    assert torch.corrcoef(torch.stack([ours, exact]))[0, 1] > correlation


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fails", [None, "a forward", "a move"])
def test_parameters_are_restored_to_the_bit(dtype, fails):
    """Also when a probing forward raises, or the second parameter cannot be moved. Gradients are left alone."""
    model = tiny.model().to(dtype)
    before = copy.deepcopy(model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    gradients = FullGradients(model, scorer(model), 2, dtype=torch.float64)  # two forwards to score
    direction = gradients.combine(torch.randn(36))
    if fails == "a forward":
        gradients.log_probs_of = lambda i: [][i]
    elif fails == "a move":
        direction[1] = direction[1].flatten()[:-1]
    with pytest.raises((IndexError, RuntimeError)) if fails else nullcontext():
        gradients.score(direction)
    for p, q in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(p, q)
        assert (p.grad == 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # one-sided, central
def test_dropout_is_the_same_in_every_forward(dtype):
    """Otherwise two probes would differ by their noise. The global generator is left as it was."""
    model = tiny.model(attention_dropout=0.2).train()
    before = torch.get_rng_state()
    gradients = FullGradients(model, scorer(model), 2, dtype=dtype)
    first = gradients.score(gradients.combine(torch.ones(36)))
    assert torch.equal(torch.get_rng_state(), before)

    def seeded(i):
        torch.manual_seed(i)
        return scorer(model)(i)

    assert relative_error(first, exact_products(model, seeded, torch.ones(36))[1]) < 5e-3


def test_small_weights_do_not_vanish_in_float16():
    """Those of a rollout batch of ten million tokens."""
    model, weights = tiny.model(hidden_size=64), torch.randn(36) / 1e7
    with torch.no_grad():
        for p in model.parameters():
            p *= 4 if p.ndim == 2 else 1
    exact = FullGradients(model, scorer(model), 2).combine(weights)
    half = FullGradients(model, scorer(model, RANDOM_IDS, True, torch.float16), 2, torch.float16).combine(weights)
    half, exact = (torch.cat([d.flatten() for d in direction]) for direction in (half, exact))
    assert relative_error(half, exact.double()) < 0.01


def test_nothing_to_move():
    model = tiny.model()
    gradients = FullGradients(model, scorer(model), 2)
    assert (gradients.score(gradients.combine(torch.zeros(36))) == 0).all()
    with pytest.raises(ValueError, match="no parameter of Qwen3ForCausalLM"):
        FullGradients(model.requires_grad_(False), None, 1)
