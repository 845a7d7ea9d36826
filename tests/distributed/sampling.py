"""
One process of test_dynamic_sampling.py: a run with groups that lie across processes, and the same run resumed.

    accelerate launch --config_file CONFIG tests/distributed/sampling.py OUTPUT_FOLDER
"""

import json
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from datasets import Dataset

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from tests.corpus import tiny
from tests.trainer.test_dynamic_sampling import G, first, rollout_func, second, texts


GROUPS = 3


def main(folder: Path, processes: int) -> dict[str, list[dict]]:
    """Logs of the whole and of the resumed run, and the whole one's tables of completions."""
    runs = {}
    for name in ("whole", "resumed"):
        torch.manual_seed(0)
        model = tiny.model()  # before the arguments, which let DeepSpeed draw the weights in another way
        args = DeltaGRPOConfig(
            str(folder / "run"),
            **{**tiny.OPTIONS, "per_device_train_batch_size": GROUPS * G // processes},
            dynamic_sampling=True,
            dynamic_sampling_max_rounds=2,
            max_steps=4,
            save_steps=2,
            logging_steps=1,
            learning_rate=0.5,
            optim="sgd",
            report_to="none",
            disable_tqdm=True,
            log_completions=True,
            num_completions_to_print=0,
        )
        data = Dataset.from_dict({"prompt": texts(13)})
        options = {"processing_class": tiny.tokenizer(), "rollout_func": rollout_func}
        trainer = DeltaGRPOTrainer(model, [first, second], args, data, **options)
        trainer.train(str(folder / "run" / "checkpoint-2") if name == "resumed" else None)
        runs[name] = [entry for entry in trainer.state.log_history if "loss" in entry]
        if name == "whole" and trainer.accelerator.is_main_process:
            runs["tables"] = [pq.read_table(p).to_pylist() for p in sorted((folder / "run/completions").iterdir())]
    return runs


if __name__ == "__main__":
    results = main(Path(sys.argv[1]), 2)
    Path(sys.argv[1], f"{os.environ['RANK']}.json").write_text(json.dumps(results))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit
