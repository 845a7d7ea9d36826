"""Products with hidden states against float64, at the shapes that matter to a GPU's kernels."""

import pytest
import torch

from delta_trl.credit import OutputRowGradients, token_coefficients
from delta_trl.credit.hidden_states import combine_rows, matmul_rows, score_rows

from ..credit import oracle
from ..credit.batches import explicit_vectors, random_batch


SHAPES = [  # odd ones are not aligned
    (1, 8),
    (7, 8),
    (33, 64),
    (1000, 257),
    (2048, 1024),
]
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
    difference = ours.double() - exact
    return float(difference.norm() / exact.norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.usefixtures("_precision")
def test_scores_and_sums(device, on_gpu, dtype):
    for n, d in SHAPES + LARGE * on_gpu:
        noise = torch.randn(n, d, device=device)
        states = (noise + 1).to(dtype)
        states64 = states.double()  # at most 4 GB

        direction = torch.randn(d, device=device)
        scores = score_rows(states, direction)
        assert error(scores, states64 @ direction.double()) < 1e-5, (n, d)

        weights = torch.randn(2, n, device=device)
        exact = weights.double() @ states64
        tolerance = 2e-5 if n < 10**5 else 1e-4  # of a sum of so many float32 products
        both = combine_rows(weights, states)
        assert error(both, exact) < tolerance, (n, d)
        first = combine_rows(weights[0], states)
        assert error(first, exact[0]) < tolerance, (n, d)


@pytest.mark.parametrize("vocabulary", [37, 1024])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_logits(device, dtype, vocabulary):
    for n, d in SHAPES:
        states = torch.randn(n, d, device=device).to(dtype)
        weight = torch.randn(vocabulary, d, device=device).to(dtype)
        logits = matmul_rows(states, weight)
        assert logits.dtype == torch.float32
        exact = states.double() @ weight.double().T
        assert error(logits, exact) < 1e-5, (n, d)

        tile = torch.empty(n, vocabulary, device=device)
        assert torch.equal(matmul_rows(states, weight, out=tile), logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.usefixtures("_precision")
def test_coefficients_against_the_oracle(device, dtype):
    hidden, log_probs, advantages = random_batch(0, n=5000, d=256)
    hidden = hidden.to(dtype)  # what counts as exact
    vectors = explicit_vectors(hidden, log_probs)
    coefficients, _ = oracle.coefficients(vectors, advantages)
    expected = torch.tensor(coefficients, dtype=torch.float32)

    on_device = advantages.float().to(device)
    gradients = OutputRowGradients(hidden.to(device), log_probs.float().to(device))
    ours = token_coefficients(gradients, on_device)
    torch.testing.assert_close(ours.cpu(), expected, atol=1e-4, rtol=0)
