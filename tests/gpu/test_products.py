"""Products with hidden states against float64, at the shapes that matter to a GPU's kernels."""

import pytest
import torch

from delta_trl.credit import OutputRowGradients, token_coefficients
from delta_trl.credit.hidden_states import combine_rows, matmul_rows, score_rows

from ..credit import oracle
from ..credit.batches import explicit_vectors, random_batch


SHAPES = [(1, 8), (7, 8), (33, 64), (1000, 257), (2048, 1024)]  # odd ones are not aligned
LARGE = [(65_537, 4096), (1_000_003, 512)]


@pytest.fixture(params=["highest", "high"])
def _precision(request):
    """Also where a user has allowed TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield
    torch.set_float32_matmul_precision(before)


def error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative, of the whole."""
    return float((ours.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.usefixtures("_precision")
def test_scores_and_sums(device, on_gpu, dtype):
    for n, d in SHAPES + LARGE * on_gpu:
        states = (torch.randn(n, d, device=device) + 1).to(dtype)
        direction, weights = torch.randn(d, device=device), torch.randn(2, n, device=device)
        states64 = states.double()  # at most 4 GB
        assert error(score_rows(states, direction), states64 @ direction.double()) < 1e-5, (n, d)
        tolerance = 2e-5 if n < 10**5 else 1e-4  # of a sum of so many float32 products
        exact = weights.double() @ states64
        assert error(combine_rows(weights, states), exact) < tolerance, (n, d)
        assert error(combine_rows(weights[0], states), exact[0]) < tolerance, (n, d)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_logits(device, dtype):
    for n, d in SHAPES:
        for vocabulary in (37, 1024):
            states = torch.randn(n, d, device=device).to(dtype)
            weight = torch.randn(vocabulary, d, device=device).to(dtype)
            tile = torch.empty(n, vocabulary, device=device)
            logits = matmul_rows(states, weight)
            assert torch.equal(matmul_rows(states, weight, out=tile), logits)
            assert logits.dtype == torch.float32
            assert error(logits, states.double() @ weight.double().T) < 1e-5, (n, d, vocabulary)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.usefixtures("_precision")
def test_coefficients_against_the_oracle(device, dtype):
    hidden, log_probs, advantages = random_batch(0, n=5000, d=256)
    hidden = hidden.to(dtype)  # what counts as exact
    expected, _ = oracle.coefficients(explicit_vectors(hidden, log_probs), advantages)
    gradients = OutputRowGradients(hidden.to(device), log_probs.float().to(device))
    ours = token_coefficients(gradients, advantages.float().to(device)).cpu()
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float32), atol=1e-4, rtol=0)
