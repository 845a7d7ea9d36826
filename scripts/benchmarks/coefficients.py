"""
Time of the coefficients of a rollout batch once its hidden states are there, compared with the time to read these
2 (K + 1) times, as K + 1 combines and scores do. The centroids' cosine, one more reading, is included. On a machine
without a GPU, seconds are processor time.

    python -m scripts.benchmarks.coefficients --tokens 65536 --dim 1024
    python -m scripts.benchmarks.coefficients --tokens 1000000 --dim 4096   # on a GPU
"""

import argparse
import statistics
from collections.abc import Callable

import torch

from delta_trl.credit import (
    HiddenStates,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TopKHiddenGradients,
    compare_centroids,
    token_coefficients,
)

from .timing import repeated


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--token-gradient", default="output_row", choices=["output_row", "topk_hidden", "lm_head"])
    parser.add_argument("--vocabulary", type=int, default=32768, help="of topk_hidden and lm_head")
    parser.add_argument("--refinement-steps", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=7)
    return parser.parse_args()


def make_states(tokens: int, dim: int, dtype: torch.dtype, device: torch.device) -> HiddenStates:
    """Random hidden states on the device, in blocks."""
    sizes = [min(8192, tokens - start) for start in range(0, tokens, 8192)]
    return HiddenStates([torch.randn(n, dim, device=device).to(dtype) for n in sizes])


def computing(
    token_gradient: str,
    states: HiddenStates,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    tokens: torch.Tensor,
    head: LMHead | None,
    refinement_steps: int = 1,
) -> Callable[[], None]:
    """A function that computes coefficients from hidden states (N, d) and the rest of N tokens, as `DelTA` does."""

    def compute() -> None:
        if token_gradient == "output_row":
            gradients = OutputRowGradients(states, log_probs)
        elif token_gradient == "topk_hidden":
            gradients = TopKHiddenGradients(states, tokens, head, 20)
        else:
            gradients = LMHeadGradients(states, tokens, head)
        if token_gradient != "lm_head":
            compare_centroids(gradients, advantages)
        token_coefficients(gradients, advantages, refinement_steps=refinement_steps)

    return compute


def reading(states: HiddenStates) -> Callable[[], None]:
    """A function that reads hidden states once."""
    # a product of float32 matrix and vector reads the same bytes and does little else
    vector = torch.randn(states.shape[1] * states.dtype.itemsize // 4, device=states.device)

    def read() -> None:
        for _, block in states.chunks():
            block.view(torch.float32) @ vector

    return read


def main():
    args = parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, args.dtype)
    torch.manual_seed(0)
    states = make_states(args.tokens, args.dim, dtype, device)
    log_probs, advantages = -torch.rand(args.tokens, device=device), torch.randn(args.tokens, device=device)
    tokens, head = torch.randint(args.vocabulary, (args.tokens,), device=device), None
    if args.token_gradient != "output_row":
        head = LMHead(torch.randn(args.vocabulary, args.dim, device=device).to(dtype))
    compute = computing(args.token_gradient, states, log_probs, advantages, tokens, head, args.refinement_steps)
    ours, once = (statistics.median(repeated(work, args.repetitions, device)) for work in (compute, reading(states)))
    reads = 2 * (args.refinement_steps + 1)
    shape = f"{args.tokens:,} tokens * {args.dim:,} in {args.dtype}"
    threads = torch.get_num_threads()
    print(f"{args.token_gradient}, {shape} on {device.type}; torch {torch.__version__}, {threads} threads")
    print(f"coefficients {ours:.4f} s, reading once {once:.4f} s; ratio to {reads} readings {ours / reads / once:.2f}")


if __name__ == "__main__":
    main()
