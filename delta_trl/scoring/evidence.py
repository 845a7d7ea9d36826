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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

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
    """

    ids: torch.Tensor
    mask: torch.Tensor
    n_completion: int


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
        allowed (`float`): By how much an outcome may differ from it.
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
        measured = NOISE * distance(rounded, self.truth)
        self.allowed = min(max(LEAST * eps, measured), MOST)

    def alone(self) -> list[torch.Tensor]:
        """The outcome of each row by itself."""
        return self.outcome(StandIn(self.model, LEFT), self._copies)

    def outcome(self, runs: Callable, copies: int | None = None) -> list[torch.Tensor]:
        """Log-probabilities, and gradients of the sum of their squares."""
        log_probs = self.log_probs(runs, copies=copies)
        if not self._parameters:
            return [log_probs]
        gradients = torch.autograd.grad(log_probs.square().sum(), self._parameters, materialize_grads=True)
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

    def compared(self, what: str, outcome: list[torch.Tensor]) -> Comparison:
        """An outcome, or only its log-probabilities, and the truth."""
        difference = distance(outcome, self.truth[: len(outcome)])
        return Comparison(f"{what} and each row alone", difference, self.allowed)

    def padded(self) -> Comparison:
        """Log-probabilities of TRL's padded rows and the truth. Gradients in 16 bit differ by rounding alone."""
        log_probs = self.log_probs(self.model).detach()
        nats = (log_probs - self.truth[0]).abs().max().item()
        return self.compared(f"padded rows (by up to {nats:.2g} nats a token)", [log_probs])


def comparisons(evidence: Evidence, stand_in: StandIn, causal: nn.Module) -> Iterator[Comparison]:
    """
    Compare rows in a layout with the truth, and with each other.

    Args:
        evidence ([`Evidence`]): Has the rows of `probe_rows`.
        stand_in ([`StandIn`]): Runs the model without padding.
        causal (`torch.nn.Module`): The causal language model, without wrappers.
    """
    layout = stand_in.layout
    rows = evidence.rows
    config = causal.config.get_text_config()
    yield evidence.compared(f"rows {layout}", evidence.outcome(stand_in))

    # Bits of runs that have the same shapes. Only kernels that add in random order change them.
    log_probs = evidence.log_probs(stand_in).detach()
    repeated = NOISE * distance([evidence.log_probs(stand_in).detach()], [log_probs])
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
        with _far_away(stand_in, limit - 1):
            far = evidence.log_probs(stand_in)
        yield Comparison("rows beside a high position", distance([far], [log_probs]), repeated)

    if layout == PACKED and "DynamicSlidingWindowLayer" in layers_of(config):
        with _narrow_windows(causal):
            narrow = evidence.alone()
            difference = distance(evidence.outcome(stand_in), narrow)
        yield Comparison("packed rows and each row alone, in narrow windows,", difference, evidence.allowed)
        # otherwise the windows were not narrow
        yield Comparison("rounding and narrow windows", evidence.allowed, distance(narrow, evidence.truth))
    # packed rows that do not reach all attention layers are given up
    yield Comparison("packed rows and attention layers", float(stand_in.layout != layout), 0.0)


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


def probe_rows(causal: nn.Module, device: torch.device) -> Rows:
    """Three short rows for a model. The last two share a prompt."""
    columns = torch.arange(WIDTH, device=device)
    first = torch.tensor([[0], [5], [5]], device=device)
    end = torch.tensor([[11], [15], [13]], device=device)
    mask = (first <= columns) & (columns < end)
    ids = columns.repeat(3, 1)
    ids[1:] += 5  # another prompt
    ids[2, PROMPT:] += 1  # another completion
    vocabulary = causal.config.get_text_config().vocab_size
    return Rows(ids % vocabulary, mask.long(), WIDTH - PROMPT)


def draws_random_numbers(run: Callable, device: torch.device) -> bool:
    """Whether a call draws random numbers of torch's. Leaves the generators as they were."""
    others = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(others, device_type=device.type):
        before = _random_states(others)
        run()
        after = _random_states(others)
    return not all(map(torch.equal, before, after))


def _random_states(devices: list[torch.device]) -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    for device in devices:
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
def plain_forward(model: nn.Module, causal: nn.Module) -> Iterator[None]:
    """The context in which a model runs without autocast, which accelerate puts into its `forward`."""

    def refuse_autocast(module, args):
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
    own = vars(module)
    wrapped = own.get("forward")
    original = own.get("_original_forward", module.forward)
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
def _far_away(stand_in: StandIn, position: int) -> Iterator[None]:
    """The context in which the last place of a stand-in's rows has a position far away."""
    model = stand_in.model

    def run(position_ids: torch.Tensor, **inputs):
        far = position_ids.clone()
        far[:, -1] = position
        return model(position_ids=far, **inputs)

    stand_in.model = run
    try:
        yield
    finally:
        stand_in.model = model


@contextmanager
def _narrow_windows(causal: nn.Module) -> Iterator[None]:
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
