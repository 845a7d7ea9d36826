r"""
The exact gradient of every token over all trainable parameters, which the paper calls computationally prohibitive.

Nothing is materialised per token. The algorithm needs only

    combine(c)   = Σ_j c_j ∇θ log π(o_j) = ∇θ Σ_j c_j log π(o_j)             one backward pass
    score(D)     = <∇θ log π(o_j), D>    = d/dε log π_{θ + ε D}(o_j) at 0     one directional derivative

so with K = 1 exact DelTA costs two backward passes and two directional derivatives per rollout batch.
"""

import math
import re
from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .distributed import all_reduce


ESTIMATORS = ("difference", "forward")


class FullGradients:
    r"""
    Exact token gradients ∇θ log π(o_j) over all trainable parameters of a model (under LoRA: the adapter's).

    `score` has two estimators. `"forward"` is forward-mode automatic differentiation: exact, needs operations that
    support it (no fused attention or loss kernels) and about twice the activations of a forward. `"difference"` is the
    central difference of two forwards at θ ± ε D / ‖D‖: any kernel. Its error on a tiny Qwen3 is below 1e-4 in
    float32. bfloat16 parameters swallow most of the move: there it keeps the order of tokens rather than the values
    (correlation above 0.99, relative error up to 0.15; `tests/credit/test_full.py` measures both).

    The parameters are moved in place and restored to the bit, also if a forward raises. `score` uses the memory of
    `direction`, which is lost: beyond the model, one copy of its trainable parameters is alive at a time.

    Args:
        model (`torch.nn.Module`):
            The policy, unwrapped. Its parameters with `requires_grad` are θ.
        log_probs (`Callable[[int], torch.Tensor]`):
            Log-probabilities of the valid tokens of micro-batch i at the model's present parameters, shape `(n_i,)`,
            differentiable when gradients are enabled.
        n_batches (`int`):
            Number of micro-batches. Tokens are numbered through them.
        estimator (`str`, *optional*, defaults to `"difference"`):
            `"difference"` or `"forward"`.
        step (`float`, *optional*):
            ε of the difference, relative to ‖θ‖. Defaults to 3e-5, 1e-4 or 3e-3 as the narrowest parameter has 64, 32
            or 16 bits.
        last_blocks (`int`, *optional*):
            Restrict θ to the trainable parameters of the last n transformer blocks.

    Raises:
        ValueError: If no parameter is trainable or the estimator is unknown.
    """

    def __init__(
        self,
        model: nn.Module,
        log_probs: Callable[[int], torch.Tensor],
        n_batches: int,
        estimator: str = "difference",
        step: float | None = None,
        last_blocks: int | None = None,
    ):
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator={estimator!r}: expected one of {', '.join(map(repr, ESTIMATORS))}.")
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if last_blocks is not None:
            block = {name: int(number[1]) for name in trainable if (number := re.search(r"\.(\d+)\.", name))}
            first = max(block.values(), default=-1) - last_blocks + 1
            trainable = {name: trainable[name] for name in block if block[name] >= first}
        if not trainable:
            raise ValueError(
                f"FullGradients: no parameter of {type(model).__name__} requires a gradient"
                + (f" in its last {last_blocks} blocks." if last_blocks is not None else ".")
            )
        self.names, self.parameters = list(trainable), list(trainable.values())
        self.scorer = _Scorer(model, log_probs)
        self.n_batches, self.estimator = n_batches, estimator
        self.forward_passes = 0  # over all tokens so far; those of `combine` have a backward pass each
        self.step = step or {8: 3e-5, 4: 1e-4, 2: 3e-3}[min(p.dtype.itemsize for p in self.parameters)]

    def combine(self, weights: torch.Tensor) -> list[torch.Tensor]:
        self.forward_passes += 1
        direction = [torch.zeros_like(p, dtype=_accumulator(p)) for p in self.parameters]
        start = 0
        for i in range(self.n_batches):
            with torch.enable_grad(), _same_dropout(i):
                log_probs = self.scorer(i)
                total = (weights[start : start + len(log_probs)].to(log_probs) * log_probs).sum()
                # not `backward`: `.grad` belongs to the optimiser
                gradients = torch.autograd.grad(total, self.parameters, allow_unused=True)
            start += len(log_probs)
            for d, gradient in zip(direction, gradients, strict=True):
                if gradient is not None:
                    d += gradient
        return [all_reduce(d) for d in direction]

    def score(self, direction: list[torch.Tensor]) -> torch.Tensor:
        if self.estimator == "forward":
            return self._forward_mode(direction)
        return self._central_difference(direction)

    def _forward_mode(self, direction: list[torch.Tensor]) -> torch.Tensor:
        self.forward_passes += 1
        names = [f"model.{name}" for name in self.names]
        tangents = {name: d.to(p.dtype) for name, d, p in zip(names, direction, self.parameters, strict=True)}
        primals = {name: p.detach() for name, p in zip(names, self.parameters, strict=True)}
        scores = []
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no forward derivative
            for i in range(self.n_batches):
                with _same_dropout(i):
                    _, tangent = torch.func.jvp(
                        lambda values, i=i: torch.func.functional_call(self.scorer, values, (i,)),
                        (primals,),
                        (tangents,),
                    )
                scores.append(tangent)
        return torch.cat(scores)

    def _central_difference(self, direction: list[torch.Tensor]) -> torch.Tensor:
        length = _norm(direction)
        if length == 0 or not math.isfinite(length):
            return self._all_log_probs() * (0.0 if length == 0 else math.nan)
        step = self.step * max(_norm(self.parameters), 1e-12)
        backup = direction  # from here on holds θ
        try:
            for p, d in zip(self.parameters, direction, strict=True):
                moved = p.data.to(d.dtype) + (step / length) * d
                d.copy_(p.data)
                p.data.copy_(moved)
            above = self._all_log_probs()
            for p, theta in zip(self.parameters, backup, strict=True):
                p.data.copy_(2 * theta - p.data.to(theta.dtype))
            below = self._all_log_probs()
        finally:
            for p, theta in zip(self.parameters, backup, strict=True):
                p.data.copy_(theta)
        return (above - below) * (length / (2 * step))

    def _all_log_probs(self) -> torch.Tensor:
        self.forward_passes += 1
        log_probs = []
        with torch.no_grad():
            for i in range(self.n_batches):
                with _same_dropout(i):
                    log_probs.append(self.scorer(i))
        return torch.cat(log_probs)


class _Scorer(nn.Module):
    """A module around the closure, so that `functional_call` can swap the model's parameters beneath it."""

    def __init__(self, model: nn.Module, log_probs: Callable[[int], torch.Tensor]):
        super().__init__()
        self.model = model
        self.log_probs = log_probs

    def forward(self, i: int) -> torch.Tensor:
        return self.log_probs(i)


@contextmanager
def _same_dropout(i: int):
    """Every forward of micro-batch i drops the same units; else log-probs were no function of θ to differentiate."""
    with torch.random.fork_rng():
        torch.manual_seed(i)
        yield


def _accumulator(parameter: torch.Tensor) -> torch.dtype:
    """Wide enough to sum gradients in, and to hold the parameter to the bit."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


def _norm(tensors) -> float:
    return math.sqrt(sum(t.detach().double().square().sum().item() for t in tensors))
