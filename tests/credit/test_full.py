"""Exact gradients against brute force: each token's gradient over all trainable parameters, one by one, in float64."""

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from delta_trl.credit import FullGradients, token_coefficients

from ..corpus import tiny
from . import oracle
from .forward_mode import exact_scores


QUICKSTART_MODEL = Path(__file__).parents[2] / "recipes/quickstart/model"


def models():
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return {
        "qwen3": tiny.model(tie_word_embeddings=False),
        "tied embeddings": tiny.model(tie_word_embeddings=True),
        "lora": get_peft_model(tiny.model(), lora, autocast_adapter_dtype=False),
    }


RANDOM_IDS = torch.randint(2, 39, (4, 10), generator=torch.Generator().manual_seed(0))


def scorer(model, ids=RANDOM_IDS, autocast=False, dtype=torch.bfloat16):
    """Log-probs of two micro-batches, by default of two sequences of ten tokens each."""

    def log_probs(i):
        x = ids[: len(ids) // 2] if i == 0 else ids[len(ids) // 2 :]
        with torch.autocast("cpu", dtype, enabled=autocast):
            logits = model(input_ids=x).logits[:, :-1]
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
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
def test_scores_equal_brute_force(name):
    model = models()[name].double()
    v = brute_force(model)
    c = torch.randn(len(v), dtype=torch.float64)
    for dtype, tolerance in ((None, 1e-4), (torch.float32, 5e-3)):  # central, one-sided
        gradients = FullGradients(model, scorer(model), 2, dtype=dtype)
        direction = gradients.combine(c)
        assert relative_error(torch.cat([d.flatten() for d in direction]), c @ v) < 1e-6
        assert relative_error(gradients.score(direction), v @ (c @ v)) < tolerance
    assert relative_error(exact_scores(model, scorer(model), 2, c), v @ (c @ v)) < 1e-6


@pytest.fixture(scope="module", params=["random", "warmed up"])
def measured(request):
    """
    A model, token ids, weights of their tokens and exact scores. The warmed-up model is the quickstart's, on its own
    completions: sharper than a random one by orders of magnitude.
    """
    torch.manual_seed(0)
    model, ids = tiny.model(), RANDOM_IDS
    if request.param == "warmed up":
        model = AutoModelForCausalLM.from_pretrained(QUICKSTART_MODEL)
        prompts = AutoTokenizer.from_pretrained(QUICKSTART_MODEL)(["345+567=", "981+209="] * 8, return_tensors="pt")
        ids = model.generate(**prompts, do_sample=True, top_k=0, min_new_tokens=44, max_new_tokens=44)
    c = torch.randn(ids[:, 1:].numel())
    return model, ids, c, exact_scores(model, scorer(model, ids), 2, c)


@pytest.mark.parametrize(
    ("dtype", "autocast", "tolerance", "correlation"),
    [
        (torch.float32, False, 1e-2, 0.9999),
        (torch.float32, True, 0.25, 0.98),  # 0.16 on an Intel Xeon
        (torch.bfloat16, False, 0.8, 0.95),
    ],
    ids=["float32", "autocast to bfloat16", "bfloat16"],
)
def test_difference_by_dtype(measured, dtype, autocast, tolerance, correlation):
    model, ids, c, exact = measured
    model = copy.deepcopy(model).to(dtype)
    for scale in (1e-3, 1e3):  # of the direction: without influence on the step
        width = torch.bfloat16 if autocast else None
        gradients = FullGradients(model, scorer(model, ids, autocast), 2, dtype=width)
        ours = gradients.score(gradients.combine(scale * c)).double() / scale
        error, r = relative_error(ours, exact), torch.corrcoef(torch.stack([ours, exact]))[0, 1].item()
        print(f"difference in {dtype}: relative error {error:.1e}, correlation {r:.5f}")
        assert error < tolerance
        assert r > correlation


@pytest.mark.parametrize(
    ("dtype", "autocast", "one_sided"),
    [
        (torch.float64, None, False),
        (torch.float32, None, True),
        (torch.float32, torch.bfloat16, False),
        (torch.bfloat16, None, False),
    ],
)
def test_the_difference_follows_from_the_dtype(dtype, autocast, one_sided):
    assert FullGradients(tiny.model().to(dtype), None, 1, dtype=autocast).one_sided is one_sided


def test_coefficients_equal_the_oracle():
    model = tiny.model().double()
    v, advantages = brute_force(model), torch.randn(36, dtype=torch.float64)
    for K in range(3):
        expected, _ = oracle.coefficients(v, advantages, K=K)
        for dtype in (None, torch.float32):  # central, one-sided
            gradients = FullGradients(model, scorer(model), 2, dtype=dtype)
            ours = token_coefficients(gradients, advantages, refinement_steps=K)
            torch.testing.assert_close(ours.double(), torch.tensor(expected), atol=1e-3, rtol=0)


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
    gradients = FullGradients(model, failing, 2, dtype=torch.float64)  # two forwards to score
    direction = gradients.combine(torch.randn(36))
    if fail_at is None:
        gradients.score(direction)
    else:
        with pytest.raises(RuntimeError, match="out of memory"):
            gradients.score(direction)
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, q)
        assert p.grad is None


def test_parameters_are_restored_if_there_is_no_room_to_move_them():
    """The second parameter of the model cannot be moved: the first has been, the others have not."""
    model = tiny.model()
    before = [p.detach().clone() for p in model.parameters()]
    gradients = FullGradients(model, scorer(model), 2)
    direction = gradients.combine(torch.randn(36))
    direction[1] = direction[1].flatten()[:-1]
    with pytest.raises(RuntimeError):
        gradients.score(direction)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_optimiser_gradients_are_left_alone():
    model = tiny.model()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    gradients = FullGradients(model, scorer(model), 2)
    gradients.score(gradients.combine(torch.randn(36)))
    assert all((p.grad == 1).all() for p in model.parameters())


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

    assert relative_error(first, exact_scores(model, seeded, 2, torch.ones(36))) < 5e-3


def test_no_direction_gives_no_score():
    model = tiny.model()
    gradients = FullGradients(model, scorer(model), 2)
    assert (gradients.score(gradients.combine(torch.zeros(36))) == 0).all()


def test_frozen_parameters_do_not_count():
    model = tiny.model().double()
    for name, p in model.named_parameters():
        p.requires_grad_("layers.1." in name)
    v, c = brute_force(model), torch.randn(36, dtype=torch.float64)
    gradients = FullGradients(model, scorer(model), 2)
    assert relative_error(gradients.score(gradients.combine(c)), v @ (c @ v)) < 1e-4


def test_small_weights_do_not_vanish_in_float16():
    """Those of a rollout batch of ten million tokens."""
    model = sharp = tiny.model(hidden_size=64)
    with torch.no_grad():
        for p in sharp.parameters():
            p *= 4 if p.ndim == 2 else 1
    weights = torch.randn(36, generator=torch.Generator().manual_seed(1)) / 1e7
    exact, half = (
        torch.cat([d.flatten() for d in FullGradients(model, scores, 2, dtype=dtype).combine(weights)])
        for scores, dtype in (
            (scorer(model), None),
            (scorer(model, autocast=True, dtype=torch.float16), torch.float16),
        )
    )
    assert relative_error(half, exact.double()) < 0.01


def test_errors():
    with pytest.raises(ValueError, match="no parameter of Qwen3ForCausalLM"):
        FullGradients(tiny.model().requires_grad_(False), None, 1)
