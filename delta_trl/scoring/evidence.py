"""
Whether a model computes without padding what it computes with padding.

`comparisons` run the policy once, before the first rollout batch, on three short rows, two of them of one
prompt. There are two kinds of evidence:

- Runs of the same shapes are equal bit by bit, whatever the dtype: a row's log-probabilities do not depend on the
  tokens of other rows, nor on the highest position of the batch. A prompt does not depend on the completion after it.
- Runs with and without padding agree in log-probabilities and gradients, at low and at high positions. The tolerance
  is the difference that the model's own arithmetic makes between two runs of one row with and without padding, times
  four. Autocast is off, so this is a hundred-thousandth unless the weights themselves have 16 bits.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from .stand_in import PACKED, StandIn, layers_of, positions_of


LEAST = 1e-5  # relative tolerance
NOISE = 4.0  # relative tolerance, in units of the measured noise
MOST = 0.1  # relative: what padding changes by more is no rounding
WIDTH = 16  # columns of the probe
PROMPT = 8  # columns of its prompts
NARROW = 3  # tokens of a sliding window in the probe


def comparisons(
    score: Callable, stand_in: StandIn, causal: nn.Module, parameters: list[nn.Parameter], device: torch.device
) -> Iterator[bool]:
    """
    Compare a model with its stand-in. Yields whether the runs of each comparison agree, one after the other.

    Args:
        score (`Callable`): Takes a model, ids, mask (B, P + T) and T, and returns log-probabilities (B, T) first.
        stand_in ([`StandIn`]): Runs the model without padding.
        causal (`torch.nn.Module`): The causal language model, without wrappers.
        parameters (`list[torch.nn.Parameter]`): Whose gradients are compared.
        device (`torch.device`): Where the model computes.
    """
    layout = stand_in.layout
    model = stand_in.model
    config = causal.config.get_text_config()
    ids, mask, _ = probe_rows(causal, device)
    columns = torch.arange(WIDTH, device=device)

    def log_probs_of(runs: Callable, ids: torch.Tensor = ids, width: int = WIDTH) -> torch.Tensor:
        """Log-probabilities of the valid tokens in the first columns of some rows."""
        valid = mask[: len(ids), :width]
        runs = _without_autocast(runs, device)
        n_completion = width - PROMPT
        log_probs, *_ = score(runs, ids[:, :width], valid, n_completion)
        return log_probs[valid[:, PROMPT:] == 1]

    def outcome(runs: Callable, *rows) -> list[torch.Tensor]:
        """Log-probabilities, and gradients of the sum of their squares."""
        log_probs = log_probs_of(runs, *rows)
        if not parameters:
            return [log_probs]
        gradients = torch.autograd.grad(log_probs.square().sum(), parameters, materialize_grads=True)
        return [log_probs.detach(), *gradients]

    def moved(shift: int | torch.Tensor) -> Callable:
        """The model with its positions moved by `shift`: all of them, or those of each column (WIDTH,)."""

        def run(position_ids=columns, **inputs):
            positions = position_ids + shift
            return model(position_ids=positions.expand_as(inputs["input_ids"]), **inputs)

        return run

    # What the model's own rounding makes of padding.
    # The first row begins in the first column: cut off at its end, it has no padding at all.
    first_row = ids[:1]
    length = int(mask[0].sum())
    rounding = distance(outcome(model, first_row, length), outcome(model, first_row))
    yield rounding <= MOST
    noise = max(LEAST, NOISE * rounding)

    padded = outcome(model)
    unpadded = outcome(stand_in)
    yield distance(unpadded, padded) <= noise

    # Bits of runs that have the same shapes. Only kernels that add in random order change them.
    repeated = NOISE * distance([log_probs_of(model)], padded[:1])
    # Nothing depends on the row before it, nor a prompt that two rows share on the completion of the first.
    for row, first_changed in ((0, 0), (1, PROMPT)):
        others = ids.clone()
        others[row, first_changed:] += 1
        beside_others = log_probs_of(stand_in, others % config.vocab_size)
        n_after = int(mask[row + 1 :, PROMPT:].sum())
        yield distance([beside_others[-n_after:]], [unpadded[0][-n_after:]]) <= repeated

    beyond = positions_of(config) - WIDTH
    if 0 <= beyond < sys.maxsize - WIDTH:
        # Rotary embeddings may depend on the highest position, which padding has here
        only_padding = columns == WIDTH - 1
        near = log_probs_of(moved(0))
        far = log_probs_of(moved(beyond * only_padding))
        yield distance([far], [near]) <= repeated
        stand_in.model = moved(beyond)
        yield distance(outcome(stand_in), outcome(stand_in.model)) <= noise
        stand_in.model = model

    if stand_in.layout == PACKED and "DynamicSlidingWindowLayer" in layers_of(config):
        with _narrow_windows(causal):
            narrow = outcome(model)
            yield distance(outcome(stand_in), narrow) <= noise
        yield distance(narrow, padded) > noise  # otherwise the windows were not narrow
    yield stand_in.layout == layout  # packed rows that do not reach all attention layers are given up


def distance(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """
    The largest relative difference of log-probabilities, which come first, and of gradients. NaN, which no comparison
    accepts, if any of them is NaN.
    """
    sizes = torch.stack([tensor.float().norm() for tensor in theirs])
    least = 1e-2 * sizes[1:].norm()  # smaller gradients may be rounding alone
    sizes[1:] = sizes[1:].clamp(min=least)
    differences = []
    for our, their in zip(ours, theirs, strict=True):
        difference = our.float() - their.float()
        differences.append(difference.norm())
    return (torch.stack(differences) / sizes).max().item()


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


def probe_rows(causal: nn.Module, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and mask (3, WIDTH) of three rows, and how many columns are completions. The last two share a prompt."""
    columns = torch.arange(WIDTH, device=device)
    first = torch.tensor([[0], [5], [5]], device=device)
    end = torch.tensor([[11], [15], [13]], device=device)
    mask = (first <= columns) & (columns < end)
    ids = columns.repeat(3, 1)
    ids[1:] += 5  # another prompt
    ids[2, PROMPT:] += 1  # another completion
    vocabulary = causal.config.get_text_config().vocab_size
    return ids % vocabulary, mask.long(), WIDTH - PROMPT


def _without_autocast(runs: Callable, device: torch.device) -> Callable:
    def run(**inputs):
        with torch.autocast(device.type, enabled=False):
            return runs(**inputs)

    return run


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
