"""
One process of test_sharded.py, as worker.py of tests/distributed, on a GPU where there is one.

    accelerate launch --config_file CONFIG --num_processes 1 tests/gpu/worker.py OUTPUT_FOLDER MODE DEVICE
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate.utils import DistributedType

from tests.distributed.worker import (
    MODES,
    WHOLE_PARAMETERS,
    let_deepspeed_do_without_a_compiler,
    let_fsdp_run_on_cpu,
    make,
    save_model,
)


SCENARIOS = {"full": {}, "lora": {}, **WHOLE_PARAMETERS}


def main(folder: Path, mode: str, device: str) -> None:
    torch.set_num_threads(1)
    model = save_model(folder)
    for scenario, options in SCENARIOS.items():
        if mode == "zero3" and scenario in WHOLE_PARAMETERS:
            continue  # refused
        trainer = make(folder, model, scenario, 1, use_cpu=device == "cpu", **options)
        trainer.train()
        found = trainer.accelerator.distributed_type
        assert found == MODES[mode] or (mode == "single" and found == DistributedType.NO), found
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        result = {"losses": losses, "rollouts": trainer.rollouts}
        (folder / f"{mode}-{scenario}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[2:] == ["fsdp2", "cpu"]:
        let_fsdp_run_on_cpu()
    if sys.argv[2:] in (["zero2", "cpu"], ["zero3", "cpu"]):
        let_deepspeed_do_without_a_compiler()
    main(Path(sys.argv[1]), *sys.argv[2:])
    if dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit
