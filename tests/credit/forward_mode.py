"""Exact scores of full gradients by forward-mode differentiation, in float64. Difference quotients must be close."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class _Closure(nn.Module):
    """A module around `log_probs`, so that `functional_call` can swap the parameters of the model that it calls."""

    def __init__(self, model: nn.Module, log_probs: Callable[[int], torch.Tensor]):
        super().__init__()
        self.model, self.log_probs = model, log_probs

    def forward(self, i: int) -> torch.Tensor:
        return self.log_probs(i)


def exact_scores(model: nn.Module, log_probs: Callable, n_batches: int, weights: torch.Tensor) -> torch.Tensor:
    """<v_j, Σ_k c_k v_k> of all tokens of the micro-batches, for weights c of shape (N,)."""
    closure = _Closure(model.double(), log_probs)
    parameters = {name: p for name, p in closure.named_parameters() if p.requires_grad}
    of_all = torch.cat([closure(i) for i in range(n_batches)])
    gradients = torch.autograd.grad((weights.double() * of_all).sum(), list(parameters.values()), allow_unused=True)
    tangents = {
        name: torch.zeros_like(p) if gradient is None else gradient
        for (name, p), gradient in zip(parameters.items(), gradients, strict=True)
    }
    primals = {name: p.detach() for name, p in parameters.items()}

    def score(i: int) -> torch.Tensor:
        def at(values):
            return torch.func.functional_call(closure, values, (i,))

        return torch.func.jvp(at, (primals,), (tangents,))[1]

    with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no forward derivative
        return torch.cat([score(i) for i in range(n_batches)])
