r"""
The exact gradient of every token over all trainable parameters, which the paper calls computationally prohibitive.

Nothing is materialised per token. The algorithm needs only

    combine(c)   = Σ_j c_j ∇θ log π(o_j) = ∇θ Σ_j c_j log π(o_j)             one backward pass
    score(D)     = <∇θ log π(o_j), D>    = d/dε log π_{θ + ε D}(o_j) at 0     one directional derivative

so with K = 1 exact DelTA costs two backward passes and two directional derivatives per rollout batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from ..hidden_states import accumulator_of
from ..ranks import all_reduce, mean_over_ranks
from ..rule import Tokens


# Root mean square change of the log-probabilities, by bytes per number. Smaller changes drown in rounding, larger ones
# in curvature.
MOVES = {8: 5e-4, 4: 4e-4, 2: 4e-2}


class FullGradients:
    r"""
    Exact token gradients ∇θ log π(o_j) over all trainable parameters of a model (under LoRA: the adapter's).

    `score` is a difference quotient of log-probabilities, which any kernel supports. In float32 it takes one forward,
    at θ + ε D, compared with the log-probabilities that `combine` saw: its error moves no coefficient.
    Otherwise it takes two, at θ ± ε D, which allows the larger ε that rounding to 16 bits calls for.

    ε is chosen by its effect, so that neither the parameters' scale nor the model's sharpness matters: the
    log-probabilities of the first micro-batch move by a fixed amount. The first guess follows from
    Σ_j c_j <v_j, D> = ‖D‖² for D = Σ_j c_j v_j; one forward of that micro-batch, at the first `score`, corrects it.

    Relative errors are 5e-4 to 3e-3 in float32 and 0.01 to 0.1 under autocast to bfloat16 (correlation above 0.99);
    0.005 to 0.1 in float32 on a LoRA adapter with large random weights.
    Parameters in bfloat16 swallow small moves: on a sharp model values are off by 0.6, and the order is kept only to a
    correlation of 0.96. Keep the parameters in float32, which is TRL's default. `tests/credit/test_full.py` measures
    all this against double backward passes, on a random and on a sharp model.

    Under FSDP2, θ and directions are sharded as the parameters are; scores are those of the whole model.

    The parameters are moved in place and restored to the bit, also if a forward raises. `score` overwrites
    `direction` with θ: beyond the model, one copy of its trainable parameters is alive at a time.

    Args:
        model (`torch.nn.Module`):
            The policy, unwrapped. Its parameters with `requires_grad` are θ.
        log_probs (`Callable[[int], torch.Tensor]`):
            Log-probabilities of the valid tokens of micro-batch i at the model's present parameters, shape `(n_i,)`,
            differentiable when gradients are enabled.
        n_batches (`int`):
            Number of micro-batches. Under FSDP2 the same on all ranks.
        dtype (`torch.dtype`, *optional*):
            The dtype that the forward computes in, if autocast makes it narrower than the model's parameters.
        tokens (`torch.Tensor` of shape `(Σ n_i,)`, *optional*):
            The index of each token of the micro-batches among the N tokens of the rollout batch. Tokens that are in
            no micro-batch get a score of 0. By default, the micro-batches hold all N tokens in order.

    Raises:
        ValueError: If no parameter is trainable.
    """

    def __init__(
        self,
        model: nn.Module,
        log_probs: Callable[[int], torch.Tensor],
        n_batches: int,
        dtype: torch.dtype | None = None,
        tokens: torch.Tensor | None = None,
    ):
        _reshard(model)
        self.model = model
        self.log_probs_of = log_probs
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError(f"FullGradients: no parameter of {type(model).__name__} requires a gradient.")
        self.sharded = any(isinstance(p, DTensor) for p in self.parameters)
        self.n_batches = n_batches
        self.tokens = slice(None) if tokens is None else tokens
        self.forward_passes = 0  # over all tokens, so far; each one of `combine` has a backward pass
        if dtype is None:
            width = min(p.dtype.itemsize for p in model.parameters() if p.is_floating_point())
        else:
            width = dtype.itemsize
        width = max(width, 2)  # weights of 8 bits compute in 16
        self.one_sided = width == 4
        self.move = MOVES[width]
        # Of the latest `combine`
        self.weights = torch.zeros(0)
        self.total_weight = 0.0  # Σ_j |c_j| over all ranks
        self.log_probs = torch.zeros(0)
        self.correction: float | None = None  # of the guessed ε, measured at the first `score`

    @classmethod
    def of(cls, tokens: Tokens) -> "FullGradients":
        """
        The gradients of a rollout batch's tokens, which have a policy. Responses without advantage do not train, and
        their tokens' coefficients do not depend on a score: as many of them as possible are left out. All ranks keep
        the same number of completions, because FSDP needs the same number of forwards on each.
        """
        policy = tokens.policy
        lengths = tokens.mask.sum(dim=1)
        active = torch.zeros(len(lengths), device=lengths.device)  # 1 where a completion trains
        active[tokens.row[tokens.advantages.nan_to_num() != 0]] = 1
        n_rows = max(int(all_reduce(active.sum(), "MAX")), 1)
        # the longest first, so that a micro-batch can end where its own completions do
        order = (lengths * active).argsort(descending=True, stable=True)
        rows = order[:n_rows].split(policy.micro_batch_size)
        numbers = tokens.padded(torch.arange(len(tokens), device=lengths.device))
        return cls(
            policy.model,
            lambda i: tokens.log_probs_at(rows[i]),
            len(rows),
            dtype=policy.dtype,
            tokens=torch.cat([numbers[i][tokens.mask[i]] for i in rows]),
        )

    def combine(self, weights: torch.Tensor) -> list[torch.Tensor]:
        self.forward_passes += 1
        absolute = weights.abs()
        self.weights = weights
        self.total_weight = float(all_reduce(absolute.sum()))
        # The weights of a side add up to 1: in float16, the gradients of a million tokens would vanish. Dividing by a
        # power of two rounds nothing. With weights of at most 1/256, sums do not overflow.
        own_largest = torch.cat([absolute, weights.new_zeros(1)]).amax()  # 0 without tokens
        _, exponent = math.frexp(float(all_reduce(own_largest, "MAX")))
        scale = 2.0 ** (exponent + 8)
        weights = weights[self.tokens] / scale
        direction = [torch.zeros_like(_local(p), dtype=accumulator_of(p.dtype)) for p in self.parameters]
        seen = []
        start = 0
        for i in range(self.n_batches):
            with torch.enable_grad(), _same_dropout(i):
                log_probs = self.log_probs_of(i)
                stop = start + len(log_probs)
                total = (weights[start:stop].to(log_probs) * log_probs).sum()
                gradients = self._backward(total)
            seen.append(log_probs.detach())
            start = stop
            for d, gradient in zip(direction, gradients, strict=True):
                if gradient is not None:
                    d.add_(gradient, alpha=scale)
        self.log_probs = torch.cat(seen)
        return direction if self.sharded else [all_reduce(d) for d in direction]

    def _backward(self, total: torch.Tensor) -> Sequence[torch.Tensor | None]:
        """Gradients of a sum over this rank's tokens; if sharded, of all ranks' tokens for this rank's shards."""
        if not self.sharded:  # not `backward`: `.grad` belongs to the optimiser
            return torch.autograd.grad(total, self.parameters, allow_unused=True)
        # FSDP2 gathers and reduces in hooks of `backward`, and averages over ranks
        kept = [p.grad for p in self.parameters]
        try:
            for p in self.parameters:
                p.grad = None
            total.backward()
            return [None if p.grad is None else _local(p.grad) * dist.get_world_size() for p in self.parameters]
        finally:
            for p, gradient in zip(self.parameters, kept, strict=True):
                p.grad = gradient

    def _square(self, direction: list[torch.Tensor]) -> float:
        """‖D‖² of what `combine` returns, over all shards. Collective if they are sharded."""
        total = torch.stack([d.double().square().sum() for d in direction]).sum()
        return float(all_reduce(total) if self.sharded else total)

    def score(self, direction: list[torch.Tensor]) -> torch.Tensor:
        scores = self._difference_quotient(direction)
        of_all = scores.new_zeros(len(self.weights))
        of_all[self.tokens] = scores
        return of_all

    def _difference_quotient(self, direction: list[torch.Tensor]) -> torch.Tensor:
        square = self._square(direction)
        if square == 0 or not math.isfinite(square):
            return self.log_probs * (0.0 if square == 0 else math.nan)
        # a first guess: on the average over the weights, log-probabilities move by twice as much as they should
        step = (self.correction or 1.0) * self.move * self.total_weight / square
        with self._moved(direction, step) as rescale:
            if self.correction is None:
                self.correction = self._measure_correction()
                step *= self.correction
                rescale(self.correction)
            above = self._all_log_probs()
            if self.one_sided:
                return (above - self.log_probs) / step
            rescale(-1.0)
            return (above - self._all_log_probs()) / (2 * step)

    @contextmanager
    def _moved(self, direction: list[torch.Tensor], step: float) -> Iterator[Callable[[float], None]]:
        """
        Within this context, the parameters are θ + step · direction, and `direction` holds θ. Yields a function that
        multiplies the distance from θ by a factor.
        """
        moved: list[tuple[torch.Tensor, torch.Tensor]] = []

        def rescale(factor: float) -> None:
            for p, theta in moved:
                p.copy_(theta + factor * (p.to(theta.dtype) - theta))

        try:
            for p, d in zip(map(_local, self.parameters), direction, strict=True):
                target = p.to(d.dtype) + step * d
                d.copy_(p)
                moved.append((p, d))
                p.copy_(target)
            yield rescale
        finally:
            for p, theta in moved:
                p.copy_(theta)
            _reshard(self.model)

    def _measure_correction(self) -> float:
        """The factor of ε with which log-probabilities move as intended, from the first micro-batch of every rank."""
        change = self._log_probs(range(1))
        change -= self.log_probs[: len(change)]
        mean_square = mean_over_ranks(change.square(), torch.ones_like(change)[None])
        root_mean_square = float(mean_square.sqrt())
        if not 0 < root_mean_square < math.inf:
            return 1.0
        # larger factors would only magnify the rounding errors of the first guess
        return min(self.move / root_mean_square, 4.0)

    def _all_log_probs(self) -> torch.Tensor:
        self.forward_passes += 1
        return self._log_probs(range(self.n_batches))

    def _log_probs(self, batches: range) -> torch.Tensor:
        _reshard(self.model)
        log_probs = []
        with torch.no_grad():
            for i in batches:
                with _same_dropout(i):
                    log_probs.append(self.log_probs_of(i))
        return torch.cat(log_probs)


@contextmanager
def _same_dropout(i: int) -> Iterator[None]:
    """Every forward of micro-batch i drops the same units: log-probabilities must be a function of θ alone."""
    device = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # by default, of all GPUs
    with torch.random.fork_rng(devices=device):
        torch.manual_seed(i)
        yield


def _reshard(model: nn.Module) -> None:
    """
    FSDP2 keeps some parameters whole between forwards. These would not show that their shards have been moved. In
    torch 2.11, the LM head's group counts as running after a forward, for TRL does not call that module: it is
    sharded again only if that is asked for after every forward.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_reshard_after_forward(True, recurse=False)
            module.reshard()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, outside of autograd; of a sharded one, this rank's part. Shares its memory."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()
