"""
What the coefficients of a rollout batch cost once its hidden states are there, against the time to read these
2 (K + 1) times, as often as K + 1 combines and scores do. The centroids' cosine, one more reading, is included.
Seconds are the processor's on a machine without a GPU.

    python scripts/benchmark_coefficients.py --tokens 65536 --dim 1024
    python scripts/benchmark_coefficients.py --tokens 1000000 --dim 4096   # on a GPU
"""

import argparse
import statistics
import time

import torch

from delta_trl.credit import (
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TopKHiddenGradients,
    compare_centroids,
    token_coefficients,
)
from delta_trl.states.cache import HiddenStateCache, Placement


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--cache", default="device", choices=["device", "cpu"])
    parser.add_argument("--token-gradient", default="output_row", choices=["output_row", "topk_hidden", "lm_head"])
    parser.add_argument("--vocabulary", type=int, default=32768, help="of topk_hidden and lm_head")
    parser.add_argument("--refinement-steps", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=7)
    return parser.parse_args()


def main():
    args = parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, args.dtype)
    torch.manual_seed(0)
    kept = HiddenStateCache(Placement(args.cache, device).allocate(args.tokens, args.dim, dtype), device)
    for start in range(0, args.tokens, 8192):
        end = min(start + 8192, args.tokens)
        kept.write(torch.randn(end - start, args.dim, device=device).to(dtype), [(start, end)])
    states = kept.states()
    log_probs, advantages = -torch.rand(args.tokens, device=device), torch.randn(args.tokens, device=device)
    tokens = torch.randint(args.vocabulary, (args.tokens,), device=device)
    if args.token_gradient != "output_row":
        head = LMHead(torch.randn(args.vocabulary, args.dim, device=device).to(dtype))

    def coefficients():
        if args.token_gradient == "output_row":
            gradients = OutputRowGradients(states, log_probs)
        elif args.token_gradient == "topk_hidden":
            gradients = TopKHiddenGradients(states, tokens, head, 20)
        else:
            gradients = LMHeadGradients(states, tokens, head)
        compare_centroids(gradients, advantages)
        token_coefficients(gradients, advantages, refinement_steps=args.refinement_steps)

    # a product of float32 matrix and vector reads the same bytes and does little else
    vector = torch.randn(args.dim * dtype.itemsize // 4, device=device)

    def read():
        for _, block in states.chunks():
            block.view(torch.float32) @ vector

    now = time.perf_counter if device.type == "cuda" else time.process_time

    def seconds(work):
        times = []
        for _ in range(args.repetitions + 1):  # the first warms up
            if device.type == "cuda":
                torch.cuda.synchronize()
            start = now()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(now() - start)
        return statistics.median(times[1:])

    ours, once = seconds(coefficients), seconds(read)
    reads = 2 * (args.refinement_steps + 1)
    shape = f"{args.tokens:,} tokens * {args.dim:,} in {args.dtype}"
    threads = torch.get_num_threads()
    print(f"{args.token_gradient}, {shape} on {device.type}; torch {torch.__version__}, {threads} threads")
    print(f"coefficients {ours:.4f} s, reading once {once:.4f} s; ratio to {reads} readings {ours / reads / once:.2f}")


if __name__ == "__main__":
    main()
