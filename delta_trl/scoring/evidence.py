"""
Whether a model computes without padding what it computes for each row alone.

The truth is a row by itself: unpadded, with positions from 0, as `generate` computes it. Two copies of the row run
together, as a model may treat a batch of one in another way. `comparisons` makes two kinds, on three short rows:

- A layout against the truth, in log-probabilities and gradients. As much is allowed as rounding makes of the truth:
  it runs once more while every module's output is changed by the machine epsilon of the weights' dtype. Autocast is
  off, which is asserted inside the forward pass: for weights in float32 this is about a millionth.
- Runs of the same shapes are equal bit by bit, whatever the dtype: a row's log-probabilities do not depend on the
  tokens of other rows, nor on the highest position of the batch. A prompt does not depend on the completion after it.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from .stand_in import LEFT, PACKED, StandIn, layers_of, positions_of


LEAST = 4.0  # allowed in any case, in units of the machine epsilon
NOISE = 4.0  # allowed, in units of the measured rounding
MOST = 0.1  # relative: more is no rounding
WIDTH = 16  # columns of the probe
PROMPT = 8  # columns of its prompts
NARROW = 3  # tokens of a sliding window in the probe


@dataclass
class Rows:
    """
    Rows as TRL pads them.

    Args:
        ids, mask (`torch.Tensor` of shape `(B, P + T)`): Their tokens.
        n_completion (`int`): T, the columns of completions.
        name (`str`): What comparisons call them.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    n_completion: int
    name: str


@dataclass
class Comparison:
    """Two runs that should agree: what was compared, their relative difference, and what is allowed."""

    what: str
    difference: float
    allowed: float

    @property
    def agrees(self) -> bool:
        return self.difference <= self.allowed  # never with NaN

    def __str__(self) -> str:
        return f"{self.what} differ by {self.difference:.1e}, allowed are {self.allowed:.1e}"


class Evidence:
    """
    Some rows that a model runs in several ways.

    Args:
        score (`Callable`): TRL's scoring method: a model, ids, mask, T and `batch_size` give log-probabilities first.
        model (`Callable`): The model, as TRL calls it.
        parameters (`list[torch.nn.Parameter]`): Whose gradients are compared.
        rows ([`Rows`]): What the model runs.
        eps (`float`): The machine epsilon of the weights' dtype.
        copies (`int`): How many copies of a row run together for the truth.

    Attributes:
        truth (`list[torch.Tensor]`): The outcome of each row by itself.
        allowed (`dict[int, float]`):
            By how much the log-probabilities alone (1), or a whole outcome (its length), may differ from it.
    """

    def __init__(
        self, score: Callable, model: Callable, parameters: list[nn.Parameter], rows: Rows, eps: float, copies: int = 1
    ):
        self.model = model
        self.rows = rows
        self._score = score
        self._parameters = parameters
        self._copies = copies
        self.truth = self.alone()
        with rounding(eps):
            rounded = self.alone()
        self.allowed = {}
        for n in (1, len(rounded)):
            measured = NOISE * distance(rounded[:n], self.truth[:n])
            self.allowed[n] = min(max(LEAST * eps, measured), MOST)

    def alone(self) -> list[torch.Tensor]:
        """The outcome of each row by itself."""
        return self.outcome(StandIn(self.model, LEFT), self._copies)

    def outcome(self, runs: Callable, copies: int | None = None) -> list[torch.Tensor]:
        """Log-probabilities, and gradients of the sum of their squares."""
        with torch.set_grad_enabled(bool(self._parameters)):
            log_probs = self.log_probs(runs, copies=copies)
            if not self._parameters:
                return [log_probs]
            squares = log_probs.square().sum()
        gradients = torch.autograd.grad(squares, self._parameters, materialize_grads=True)
        return [log_probs.detach(), *gradients]

    def log_probs(self, runs: Callable, ids: torch.Tensor | None = None, copies: int | None = None) -> torch.Tensor:
        """
        Log-probabilities (n,) of the tokens of completions.

        Args:
            runs (`Callable`): The model, or what stands in for it.
            ids (`torch.Tensor`, *optional*): Other tokens than those of the rows.
            copies (`int`, *optional*): How many copies of a row run together. By default, all rows run together.
        """
        n_completion = self.rows.n_completion
        n_copies = copies or 1
        ids = self.rows.ids if ids is None else ids
        ids = ids.repeat_interleave(n_copies, dim=0)
        mask = self.rows.mask.repeat_interleave(n_copies, dim=0)
        log_probs, *_ = self._score(runs, ids, mask, n_completion, batch_size=copies)
        scored = mask[::n_copies, -n_completion:] == 1
        return log_probs[::n_copies][scored]

    def compared(self, how: str, outcome: list[torch.Tensor]) -> Comparison:
        """An outcome, or only its log-probabilities, and the truth."""
        n = len(outcome)
        difference = distance(outcome, self.truth[:n])
        return Comparison(f"{self.rows.name} {how} and each row alone", difference, self.allowed[n])

    def padded(self) -> Comparison:
        """Log-probabilities of TRL's padded rows and the truth. Gradients in 16 bit differ by rounding alone."""
        log_probs = self.log_probs(self.model)
        nats = (log_probs - self.truth[0]).abs().max().item()
        return self.compared(f"with padding (by up to {nats:.2g} nats a token)", [log_probs])


def comparisons(evidence: Evidence, stand_in: StandIn, causal: PreTrainedModel) -> Iterator[Comparison]:
    """
    Compare rows in a layout with the truth, and with each other.

    Args:
        evidence ([`Evidence`]): Has the rows of `short_rows`.
        stand_in ([`StandIn`]): Runs the model without padding.
        causal ([`~transformers.PreTrainedModel`]): The causal language model, without wrappers.
    """
    layout = str(stand_in.layout)
    rows = evidence.rows
    config = causal.config.get_text_config()
    yield evidence.compared(layout, evidence.outcome(stand_in))

    # Bits of runs that have the same shapes. Only kernels that add in random order change them.
    log_probs = evidence.log_probs(stand_in)
    repeated = NOISE * distance([evidence.log_probs(stand_in)], [log_probs])
    # Nothing depends on the row before it, nor a prompt that two rows share on the completion of the first.
    for row, first_changed in ((0, 0), (1, PROMPT)):
        others = rows.ids.clone()
        others[row, first_changed:] += 1
        beside_others = evidence.log_probs(stand_in, others % config.vocab_size)
        n_after = int(rows.mask[row + 1 :, PROMPT:].sum())
        difference = distance([beside_others[-n_after:]], [log_probs[-n_after:]])
        yield Comparison("rows beside other rows", difference, repeated)

    limit = positions_of(config)
    if WIDTH < limit < sys.maxsize:
        # Rotary embeddings may depend on the highest position. No log-probability needs that of the last place.
        far = evidence.log_probs(replace(stand_in, model=_far_away(stand_in.model, limit - 1)))
        yield Comparison("rows beside a high position", distance([far], [log_probs]), repeated)

    if layout == PACKED and "DynamicSlidingWindowLayer" in layers_of(config):
        with _narrow_windows(causal):
            narrow = evidence.alone()
            difference = distance(evidence.outcome(stand_in), narrow)
        allowed = evidence.allowed[len(narrow)]
        yield Comparison("packed rows and each row alone, in narrow windows,", difference, allowed)
        # otherwise the windows were not narrow
        yield Comparison("rounding and narrow windows", allowed, distance(narrow, evidence.truth))


def _far_away(model: Callable, position: int) -> Callable:
    """The model with the last place of its rows at a position far away."""

    def run(position_ids: torch.Tensor, **inputs: Any) -> Any:
        far = position_ids.clone()
        far[:, -1] = position
        return model(position_ids=far, **inputs)

    return run


def reached(stand_in: StandIn, layout: str) -> Comparison:
    """Packed rows that do not reach all attention layers have been given up."""
    return Comparison("packed rows and attention layers", float(stand_in.layout != layout), 0.0)


def distance(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """
    The largest relative difference of log-probabilities, which come first, and of gradients. NaN, which no comparison
    accepts, if any of them is NaN.
    """
    sizes = torch.stack([tensor.float().norm() for tensor in theirs])
    least = 1e-2 * sizes[1:].norm()  # smaller gradients may be rounding alone
    sizes[1:] = sizes[1:].clamp(min=least)
    sizes = sizes.clamp(min=torch.finfo(sizes.dtype).tiny)  # zeros agree with zeros
    differences = []
    for our, their in zip(ours, theirs, strict=True):
        difference = our.float() - their.float()
        differences.append(difference.norm())
    return (torch.stack(differences) / sizes).max().item()


def short_rows(causal: PreTrainedModel, device: torch.device, n: int = 3) -> Rows:
    """Rows for a model, three of them or copies of these. The second and third share a prompt."""
    columns = torch.arange(WIDTH, device=device)
    first = torch.tensor([[0], [5], [5]], device=device)
    end = torch.tensor([[11], [15], [13]], device=device)
    mask = (first <= columns) & (columns < end)
    ids = columns.repeat(3, 1)
    ids[1:] += 5  # another prompt
    ids[2, PROMPT:] += 1  # another completion
    vocabulary = causal.config.get_text_config().vocab_size
    chosen = torch.arange(n) % len(ids)
    return Rows(ids[chosen] % vocabulary, mask[chosen].long(), WIDTH - PROMPT, "short rows")


def real_rows(prompts: Sequence[list[int]], completions: Sequence[list[int]], device: torch.device) -> Rows:
    """Prompts and their completions, as TRL pads them."""
    before = _padded(prompts, device, "left")
    after = _padded(completions, device, "right")
    ids = torch.cat([before, after], dim=1)
    return Rows(ids.clamp(min=0), (ids >= 0).long(), after.size(1), "real rows")


def _padded(rows: Sequence[list[int]], device: torch.device, side: str) -> torch.Tensor:
    """Tokens (b, longest), -1 at padding."""
    tensors = [torch.tensor(row, dtype=torch.long, device=device) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=-1, padding_side=side)


def random_states(device: torch.device) -> list[torch.Tensor]:
    """The states of torch's generators on the CPU and on a device."""
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states


# --- contexts of a run ---


@contextmanager
def rounding(eps: float) -> Iterator[None]:
    """The context in which every module's output is changed by up to a machine epsilon."""

    def change(module, args, output):
        if not (isinstance(output, torch.Tensor) and output.is_floating_point()):
            return output
        signs = torch.arange(output.numel(), device=output.device).cos()  # and sizes
        changed = output.float() * (1 + eps * signs.view_as(output))
        return changed.to(output.dtype)

    handle = register_module_forward_hook(change)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """The context in which nothing keeps gradients, and after which generators and a model's buffers are as before."""
    buffers = list(model.buffers())
    kept = [buffer.clone() for buffer in buffers]
    others = [] if device.type == "cpu" else [device]
    with torch.no_grad(), torch.random.fork_rng(others, device_type=device.type):
        try:
            yield
        finally:
            for buffer, values in zip(buffers, kept, strict=True):
                buffer.copy_(values)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The context in which a model evaluates."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def plain_forward(model: nn.Module, causal: PreTrainedModel) -> Iterator[None]:
    """The context in which a model runs without autocast, which accelerate puts into its `forward`."""

    def refuse_autocast(module: nn.Embedding, args: tuple) -> None:
        if torch.is_autocast_enabled(module.weight.device.type):
            raise RuntimeError("autocast is on inside the model")

    wrapped = [module for module in model.modules() if "_original_forward" in vars(module)]
    with ExitStack() as stack:
        # before accelerate has prepared the model, only TRL's scoring method enters autocast
        for module in wrapped or [model]:
            stack.enter_context(_without_autocast(module))
        handle = causal.get_input_embeddings().register_forward_pre_hook(refuse_autocast)
        stack.callback(handle.remove)
        yield


@contextmanager
def _without_autocast(module: nn.Module) -> Iterator[None]:
    attributes = vars(module)
    wrapped = attributes.get("forward")
    original = attributes.get("_original_forward", module.forward)
    device = next(module.parameters()).device.type

    def forward(*args, **options):
        with torch.autocast(device, enabled=False):
            return original(*args, **options)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if wrapped is not None:
            module.forward = wrapped


@contextmanager
def _narrow_windows(causal: PreTrainedModel) -> Iterator[None]:
    """The context in which the model's sliding windows are as narrow as a short row shows."""
    owners = [causal.config.get_text_config(), *causal.modules()]
    owners = [owner for owner in owners if getattr(owner, "sliding_window", None)]
    windows = [owner.sliding_window for owner in owners]
    for owner in owners:
        owner.sliding_window = NARROW
    try:
        yield
    finally:
        for owner, window in zip(owners, windows, strict=True):
            owner.sliding_window = window
