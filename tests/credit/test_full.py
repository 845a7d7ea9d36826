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
        if "lora_B" in name:
            p.data *= 0.1  # drawn at random, it would outweigh the model
    return model


def scorer(model, ids=RANDOM_IDS, autocast=False, dtype=torch.bfloat16):
    """Log-probs of two micro-batches, by default of two sequences of ten tokens each."""
    micro_batches = ids.chunk(2)

    def log_probs(i):
        x = micro_batches[i]
        following = x[:, 1:, None]
        with torch.autocast(ids.device.type, dtype, enabled=autocast):
            logits = model(input_ids=x).logits[:, :-1]
        at_least_float32 = torch.promote_types(logits.dtype, torch.float32)
        log_p = logits.to(at_least_float32).log_softmax(dim=-1)
        return log_p.gather(2, following).flatten()

    return log_probs


def flat(tensors) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def exact_products(model, log_probs, weights) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ_k c_k v_k (parameters,) for weights c (N,), and its products (N,) with every v_j, in float64."""
    parameters = [p for p in model.double().parameters() if p.requires_grad]
    c = weights.double().clone().requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
        all_log_probs = torch.cat([log_probs(0), log_probs(1)])
        total = (c * all_log_probs).sum()
        gradients = torch.autograd.grad(total, parameters, create_graph=True)
    direction = flat(gradients)  # linear in c: its derivative by c_j is v_j
    fixed = direction.detach()
    (products,) = torch.autograd.grad(direction, c, grad_outputs=fixed)
    return fixed, products


def relative_error(ours, exact):
    return ((ours.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: tiny.model(tie_word_embeddings=True), id="tied embeddings"),
        pytest.param(with_adapter, id="lora"),
    ],
)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        pytest.param(None, 1e-4, id="central"),
        pytest.param(torch.float32, 5e-3, id="one-sided"),
    ],
)
def test_sums_and_scores_are_exact(make, dtype, tolerance):
    model = make().double()
    gradients = FullGradients(model, scorer(model), 2, dtype=dtype)
    assert gradients.one_sided == (dtype is torch.float32)
    first, second = torch.randn(2, 36, dtype=torch.float64)
    for c, allowed in ((first, tolerance), (second, 2e-2)):  # the second's step is corrected as the first one's
        exact_direction, exact_scores = exact_products(model, scorer(model), c)
        direction = gradients.combine(c)
        assert relative_error(flat(direction), exact_direction) < 1e-6
        scores = gradients.score(direction)  # which may change the direction
        assert relative_error(scores, exact_scores) < allowed


def quickstart() -> tuple[torch.nn.Module, torch.Tensor]:
    """The quickstart's model, and its own completions: sharper than a random model by orders of magnitude."""
    model = AutoModelForCausalLM.from_pretrained(QUICKSTART_MODEL)
    tokenizer = AutoTokenizer.from_pretrained(QUICKSTART_MODEL)
    prompts = tokenizer(["345+567=", "981+209="] * 3, return_tensors="pt")
    ids = model.generate(**prompts, do_sample=True, top_k=0, min_new_tokens=44, max_new_tokens=44)
    return model, ids


@pytest.fixture(scope="module", params=["random", "warmed up"])
def measured(request):
    """A model in float64, token ids, weights of their tokens and exact scores."""
    torch.manual_seed(0)
    model, ids = tiny.model(), RANDOM_IDS
    if request.param == "warmed up":
        model, ids = quickstart()
    c = torch.randn(ids[:, 1:].numel())
    _, scores = exact_products(model, scorer(model, ids), c)
    return model, ids, c, scores


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
    log_probs = scorer(model, ids, autocast)
    gradients = FullGradients(model, log_probs, 2, dtype=torch.bfloat16 if autocast else None)
    assert gradients.one_sided == (dtype is torch.float32 and not autocast)

    direction = gradients.combine(scale * c)
    ours = gradients.score(direction).double() / scale

    assert relative_error(ours, exact) < tolerance
    both = torch.stack([ours, exact])
    found = torch.corrcoef(both)[0, 1]
    assert found > correlation


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fails", [None, "a forward", "a move"])
def test_parameters_are_restored_to_the_bit(dtype, fails):
    """
    Also when a probing forward raises, or the second parameter cannot be moved. Gradients are left alone, and a
    parameter that the forward does not use.
    """
    model = tiny.model().to(dtype)
    model.unused = torch.nn.Parameter(torch.ones(3))
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
    c = torch.ones(36)
    before = torch.get_rng_state()
    gradients = FullGradients(model, scorer(model), 2, dtype=dtype)
    ours = gradients.score(gradients.combine(c))
    assert torch.equal(torch.get_rng_state(), before)

    def seeded(i):
        torch.manual_seed(i)
        return scorer(model)(i)

    _, exact = exact_products(model, seeded, c)
    assert relative_error(ours, exact) < 5e-3


@pytest.mark.parametrize("factor", [0.0, 1e-3])
def test_steps_stay_small_where_the_first_micro_batch_hardly_moves(factor):
    """As where a policy is certain of it."""
    model = tiny.model()
    score = scorer(model)

    def log_probs(i):
        return score(i) if i else factor * score(i)

    c = torch.randn(36)
    gradients = FullGradients(model, log_probs, 2)
    ours = gradients.score(gradients.combine(c))
    _, exact = exact_products(model, log_probs, c)
    assert relative_error(ours, exact) < 0.05


def test_weights_of_8_bits_compute_in_16():
    model = tiny.model()
    of_8_bits = torch.zeros(1, dtype=torch.float8_e4m3fn)
    model.quantised = torch.nn.Parameter(of_8_bits, requires_grad=False)
    assert not FullGradients(model, scorer(model), 2).one_sided


def test_small_weights_do_not_vanish_in_float16():
    """Those of a rollout batch of ten million tokens."""
    model = tiny.model(hidden_size=64)
    weights = torch.randn(36) / 1e7
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p *= 4
    in_half = scorer(model, RANDOM_IDS, autocast=True, dtype=torch.float16)
    exact = FullGradients(model, scorer(model), 2).combine(weights)
    half = FullGradients(model, in_half, 2, torch.float16).combine(weights)
    assert relative_error(flat(half), flat(exact).double()) < 0.01


def test_nothing_to_move():
    model = tiny.model()
    gradients = FullGradients(model, scorer(model), 2)
    direction = gradients.combine(torch.zeros(36))
    assert (gradients.score(direction) == 0).all()

    direction[0][0] = torch.inf
    assert gradients.score(direction).isnan().all()

    frozen = model.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter of Qwen3ForCausalLM"):
        FullGradients(frozen, None, 1)
