"""
How far are streamed coefficients from exact ones?

Trains a recipe with `coefficient_timing: streaming`, computes the exact coefficients of every rollout batch beside it
(they do not train), and compares: Spearman correlation over all tokens with A ≠ 0 and within each side, mean absolute
difference, and the mean of the streamed coefficients, which are normalised by an estimate. Options are those of
`delta-trl train`.

    OMP_NUM_THREADS=1 python scripts/compare_streaming.py --config recipes/quickstart/addition.yaml \\
        --output_dir outputs/streaming --max_steps 80
"""

import json
import statistics
import sys
from pathlib import Path

import torch

from delta_trl import DeltaGRPOTrainer, train
from delta_trl.recipe import RecipeParser
from delta_trl.recording import HiddenStateRecorder


class ComparingTrainer(DeltaGRPOTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.micro_batches, self.results = [], []

    def _start_streaming(self, batch):
        streaming, self._streaming = self._streaming, None
        batch["exact_coefficients"] = self._credit_tokens(batch, HiddenStateRecorder(self._placement))
        self._streaming = streaming
        super()._start_streaming(batch)

    def _stream(self, states, log_probs, inputs):
        super()._stream(states, log_probs, inputs)
        valid = inputs["token_coefficients"] != 0
        advantages = inputs["advantages"][:, None].expand_as(valid)
        tensors = (inputs["token_coefficients"], inputs["exact_coefficients"], advantages)
        self.micro_batches.append([x[valid] for x in tensors])
        if len(self.micro_batches) == self.args.steps_per_generation:
            self.results.append(compare(*(torch.cat(x) for x in zip(*self.micro_batches, strict=True))))
            self.micro_batches = []


def compare(streamed: torch.Tensor, exact: torch.Tensor, advantages: torch.Tensor) -> dict[str, float]:
    result = {}
    sides = {"all": advantages != 0, "winners": advantages > 0, "losers": advantages < 0}
    for name, side in sides.items():
        result[f"spearman, {name}"] = spearman(streamed[side], exact[side])
    contrasting = sides["all"]
    result["mean |difference|"] = (streamed - exact)[contrasting].abs().mean().item()
    result["std of exact"] = exact[contrasting].std().item()
    result["mean of streamed"] = streamed.mean().item()
    return result


def spearman(a: torch.Tensor, b: torch.Tensor) -> float:
    ranks = torch.stack([x.argsort().argsort().double() for x in (a, b)])
    return torch.corrcoef(ranks)[0, 1].item()


def main() -> None:
    train.DeltaGRPOTrainer = ComparingTrainer
    arguments = [*sys.argv[1:], "--coefficient_timing", "streaming"]
    trainer, _ = train.build(*RecipeParser(prog="compare_streaming.py").parse(arguments))
    trainer.train()
    print(f"{len(trainer.results)} rollout batches, median (minimum to maximum)")
    for name in trainer.results[0]:
        values = [result[name] for result in trainer.results]
        print(f"{name:>20}: {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})")
    path = Path(trainer.args.output_dir, "streaming.json")
    path.write_text(json.dumps(trainer.results, indent=2))
    print(f"each of them: {path}")


if __name__ == "__main__":
    main()
