"""
What token credit would cost on large models: a projection by arithmetic, not a measurement.

One rollout batch of the paper (128 prompts × 16 responses) on 8 GPUs, every GPU with an eighth of the tokens. Times
are of one GPU, without generation and communication:

    forward         2 P + 2 T·A FLOPs per token     P parameters without the input embedding; attention over T/2 tokens
    training        3 forwards, 4 with gradient checkpointing
    hidden states   N d values of 2 bytes           N tokens per GPU, d the hidden size
    coefficients    2 (K + 1) reads of them         from GPU memory, or over PCIe from main memory
    K + 2 passes    3 forwards                      the paper's way
    full            2 forwards with backward and 4 probes (central differences, as in bfloat16)

    python scripts/project_overhead.py --tokens 4096
"""

import argparse


PROMPTS, RESPONSES, GPUS, K = 128, 16, 8, 1
# hidden size, layers, intermediate size, query heads, key-value heads, head size, vocabulary
SHAPES = {
    "Qwen3-8B": (4096, 36, 12288, 32, 8, 128, 151936),
    "Qwen3-14B": (5120, 40, 17408, 40, 8, 128, 151936),
    "Llama-3.3-70B": (8192, 80, 28672, 64, 8, 128, 128256),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096, help="per response, on average")
    parser.add_argument("--tflops", type=float, default=989, help="of one GPU in bfloat16; an H100 SXM's by default")
    parser.add_argument("--utilisation", type=float, default=0.4, help="share of these FLOPs that is reached")
    parser.add_argument("--memory-bandwidth", type=float, default=3.35, help="TB/s")
    parser.add_argument("--pcie", type=float, default=50, help="GB/s")
    args = parser.parse_args()

    N = PROMPTS * RESPONSES * args.tokens // GPUS
    print(f"{N:,} tokens per GPU, {args.tflops:g} TFLOP/s at {args.utilisation:.0%}, {args.memory_bandwidth:g} TB/s,")
    print(f"{args.pcie:g} GB/s over PCIe, K = {K}\n")
    print("| model | a forward | plain step | hidden states | coefficients, device | cpu | K + 2 passes | full |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (d, layers, intermediate, heads, kv_heads, head_dim, vocabulary) in SHAPES.items():
        P = layers * (2 * d * (heads + kv_heads) * head_dim + 3 * d * intermediate) + d * vocabulary
        attention = 2 * args.tokens * heads * head_dim * layers  # queries with keys, weights with values
        forward = N * (2 * P + attention) / (args.tflops * 1e12 * args.utilisation)
        step = forward * (1 + 4)  # old log-probabilities, and training with gradient checkpointing
        size = N * d * 2
        device = 2 * (K + 1) * size / (args.memory_bandwidth * 1e12)
        cpu = 2 * (K + 1) * size / (args.pcie * 1e9)
        extra = [device, cpu, (K + 2) * forward, (2 * 4 + 4) * forward]
        cells = [f"{seconds:.{0 if seconds > 10 else 2}f} s ({seconds / step:.1%})" for seconds in extra]
        print(f"| {name} | {forward:.0f} s | {step:.0f} s | {size / 1e9:.1f} GB | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
