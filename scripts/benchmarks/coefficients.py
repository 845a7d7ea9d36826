"""
Time of the coefficients of a rollout batch once its hidden states are there, compared with the time to read these
2 (K + 1) = 4 times, as K + 1 combines and scores do. The centroids' cosine, one more reading, is included. With
`--vocabulary`, coefficients by the whole LM head, compared with the 9 products of states and head that they need (one
for the normaliser, two for each combine and score). On a machine without a GPU, seconds are processor time.

    python -m scripts.benchmarks.coefficients --tokens 65536 --dim 1024
    python -m scripts.benchmarks.coefficients --tokens 1024 --dim 576 --dtype float32 --vocabulary 49152
    python -m scripts.benchmarks.coefficients --tokens 1000000 --dim 4096   # on a GPU
"""

import argparse
import statistics

import torch

from delta_trl.credit import (
    HiddenStates,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    compare_centroids,
    token_coefficients,
)

from .timing import repeated


READS, PRODUCTS = 4, 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--vocabulary", type=int, default=0)
    parser.add_argument("--repetitions", type=int, default=7)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, args.dtype)
    torch.manual_seed(0)
    sizes = [min(8192, args.tokens - start) for start in range(0, args.tokens, 8192)]
    states = HiddenStates([torch.randn(n, args.dim, device=device).to(dtype) for n in sizes])
    log_probs, advantages = -torch.rand(args.tokens, device=device), torch.randn(args.tokens, device=device)
    head = LMHead(torch.randn(args.vocabulary, args.dim, device=device).to(dtype) / args.dim**0.5)
    ids = torch.randint(0, max(1, args.vocabulary), (args.tokens,), device=device)
    # a product of float32 matrix and vector reads the same bytes and does little else
    vector = torch.randn(args.dim * dtype.itemsize // 4, device=device)

    def compute() -> None:
        gradients = OutputRowGradients(states, log_probs)
        compare_centroids(gradients, advantages)
        token_coefficients(gradients, advantages)

    def read() -> None:
        for _, block in states.chunks():
            block.view(torch.float32) @ vector

    def compute_by_head() -> None:
        token_coefficients(LMHeadGradients(states, ids, head), advantages)

    logits = torch.empty(512, args.vocabulary, dtype=dtype, device=device)

    def multiply() -> None:
        for _, block in states.chunks():
            for part in block.split(len(logits)):
                torch.mm(part, head.weight.T, out=logits[: len(part)])

    pair, least, what = (compute, read), READS, "reading"
    if args.vocabulary:
        pair, least, what = (compute_by_head, multiply), PRODUCTS, "product"
    ours, once = (statistics.median(repeated(work, args.repetitions, device)) for work in pair)
    print(f"{args.tokens:,} tokens * {args.dim:,} in {args.dtype} on {device.type}; torch {torch.__version__}")
    print(f"coefficients {ours:.4f} s, one {what} {once:.4f} s; ratio to {least} of them {ours / least / once:.2f}")


if __name__ == "__main__":
    main()
