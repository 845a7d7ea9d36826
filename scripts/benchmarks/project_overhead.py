"""
What a step would take on large models: a projection by arithmetic, not a measurement.

One rollout batch of the paper (128 prompts × 16 responses) on 8 GPUs, every GPU with an eighth of the responses, whose
lengths are log-normal. TRL pads all rows of a process to the longest one; packed rows have no padding. Times are of
one GPU, without generation and communication:

    forward         2 P + 2 T·A FLOPs per token     P parameters without the input embedding; attention over T/2 tokens
    step            a forward for old log-probabilities, and training: 3 forwards, 4 with gradient checkpointing
    hidden states   N d values of 2 bytes           N valid tokens per GPU, d the hidden size
    coefficients    2 (K + 1) reads of them         from GPU memory, or over PCIe from main memory
    K + 2 passes    3 forwards                      the paper's way
    full            2 forwards with backward and 4 probes (central differences, as in bfloat16)

    python -m scripts.benchmarks.project_overhead --median 3000
"""

import argparse

import torch


PROMPTS, RESPONSES, GPUS, K = 128, 16, 8, 1
# hidden size, layers, intermediate size, query heads, key-value heads, head size, vocabulary
SHAPES = {
    "Qwen3-8B": (4096, 36, 12288, 32, 8, 128, 151936),
    "Qwen3-14B": (5120, 40, 17408, 40, 8, 128, 151936),
    "Llama-3.3-70B": (8192, 80, 28672, 64, 8, 128, 128256),
}


def forward_flops(shape: tuple[int, ...], width: torch.Tensor) -> float:
    """FLOPs of a forward over rows of these widths, by the formula above."""
    d, layers, intermediate, heads, kv_heads, head_dim, vocabulary = shape
    P = layers * (2 * d * (heads + kv_heads) * head_dim + 3 * d * intermediate) + d * vocabulary
    attention = 2 * width * heads * head_dim * layers  # queries with keys, weights with values
    return float((width * (2 * P + attention)).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--median", type=int, default=3000, help="length of responses")
    parser.add_argument("--spread", type=float, default=1.0, help="standard deviation of the lengths' logarithm")
    parser.add_argument("--longest", type=int, default=20480, help="where responses are cut off")
    parser.add_argument("--prompt", type=int, default=200, help="tokens of a prompt")
    parser.add_argument("--tflops", type=float, default=989, help="of one GPU in bfloat16; an H100 SXM's by default")
    parser.add_argument("--utilisation", type=float, default=0.4, help="share of these FLOPs that is reached")
    parser.add_argument("--memory-bandwidth", type=float, default=3.35, help="TB/s")
    parser.add_argument("--pcie", type=float, default=50, help="GB/s")
    args = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    lengths = args.median * (args.spread * torch.randn(PROMPTS * RESPONSES // GPUS, generator=generator)).exp()
    lengths = lengths.clamp(max=args.longest)
    N = int(lengths.sum())
    ways = {"TRL": lengths.max().expand(len(lengths)), "packed": lengths}  # the width at which every row is run
    print(
        f"{len(lengths)} responses and {N:,} tokens per GPU, mean {lengths.mean():,.0f}, longest {lengths.max():,.0f};"
    )
    rates = f"{args.tflops:g} TFLOP/s at {args.utilisation:.0%}, {args.memory_bandwidth:g} TB/s, {args.pcie:g} GB/s"
    print(f"{rates}, K = {K}")
    columns = ["model", *(f"step, {way}" for way in ways), "hidden states"]
    columns += ["coefficients, device", "cpu", "K + 2 passes", "full"]
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, shape in SHAPES.items():
        rate = args.tflops * 1e12 * args.utilisation
        seconds = {way: forward_flops(shape, width + args.prompt) / rate for way, width in ways.items()}
        step, size = 5 * seconds["packed"], N * shape[0] * 2
        device = 2 * (K + 1) * size / (args.memory_bandwidth * 1e12)
        cpu = 2 * (K + 1) * size / (args.pcie * 1e9)
        extra = [device, cpu, (K + 2) * seconds["packed"], (2 * 4 + 4) * seconds["packed"]]
        cells = [f"{5 * value:.0f} s ({value / seconds['TRL']:.2f})" for value in seconds.values()]
        cells += [f"{size / 1e9:.1f} GB"]
        cells += [f"{value:.{0 if value > 10 else 2}f} s ({value / step:.1%})" for value in extra]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
