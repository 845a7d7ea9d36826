"""
Time of the coefficients of a rollout batch once its hidden states are there, compared with the time to read these
2 (K + 1) = 4 times, as K + 1 combines and scores do. The centroids' cosine, one more reading, is included. On a
machine without a GPU, seconds are processor time.

    python -m scripts.benchmarks.coefficients --tokens 65536 --dim 1024
    python -m scripts.benchmarks.coefficients --tokens 1000000 --dim 4096   # on a GPU
"""

import argparse
import statistics

import torch

from delta_trl.credit import HiddenStates, OutputRowGradients, compare_centroids, token_coefficients

from .timing import repeated


READS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--repetitions", type=int, default=7)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, args.dtype)
    torch.manual_seed(0)
    sizes = [min(8192, args.tokens - start) for start in range(0, args.tokens, 8192)]
    states = HiddenStates([torch.randn(n, args.dim, device=device).to(dtype) for n in sizes])
    log_probs, advantages = -torch.rand(args.tokens, device=device), torch.randn(args.tokens, device=device)
    # a product of float32 matrix and vector reads the same bytes and does little else
    vector = torch.randn(args.dim * dtype.itemsize // 4, device=device)

    def compute() -> None:
        gradients = OutputRowGradients(states, log_probs)
        compare_centroids(gradients, advantages)
        token_coefficients(gradients, advantages)

    def read() -> None:
        for _, block in states.chunks():
            block.view(torch.float32) @ vector

    ours, once = (statistics.median(repeated(work, args.repetitions, device)) for work in (compute, read))
    print(f"{args.tokens:,} tokens * {args.dim:,} in {args.dtype} on {device.type}; torch {torch.__version__}")
    print(f"coefficients {ours:.4f} s, reading once {once:.4f} s; ratio to {READS} readings {ours / READS / once:.2f}")


if __name__ == "__main__":
    main()
