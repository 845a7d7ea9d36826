"""
What `SiblingValue` costs: distances between all n states of a group, n² of them, 2 d operations each. Its time is
compared with a matrix product of as many operations, its memory with the group's states.

    python -m scripts.benchmarks.siblings --responses 16 --tokens 512 --dim 512
    python -m scripts.benchmarks.siblings --responses 16 --tokens 8192 --dim 4096   # on a GPU
"""

import argparse

import torch

from delta_trl.credit.rules.sibling_value import sibling_jumps

from .timing import repeated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=512, help="of a response")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--block", type=int, default=4096, help="states whose distances are held at a time")
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    n = args.responses * args.tokens
    states = torch.randn(n, args.dim, device=device)
    rows = torch.arange(args.responses, device=device).repeat_interleave(args.tokens)
    advantages = torch.randn(args.responses, device=device)[rows]
    own = states[: args.tokens]

    def products() -> None:
        for _ in range(args.responses):
            for part in states.split(args.block):
                part @ own.T

    ours = min(repeated(lambda: sibling_jumps(states, advantages, rows, block=args.block), args.repetitions, device))
    theirs = min(repeated(products, args.repetitions, device))
    operations = 2 * n**2 * args.dim
    print(f"{args.responses} responses of {args.tokens:,} tokens, d = {args.dim:,}, float32 on {device.type}")
    print(f"{operations / 1e12:.3g} T operations, {operations / ours / 1e12:.3g} T a second")
    print(f"sibling value {ours:.3f} s, {ours / theirs:.2f} times the products alone")
    held = min(args.block, n) * args.tokens * 4
    print(f"states {states.numel() * 4 / 1e6:,.0f} MB, distances held at a time {held / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
