"""
One training process of test_processes.py: trains with vLLM in the same process and writes down its checks.

    accelerate launch --config_file CONFIG tests/vllm/worker.py OUTPUT_FOLDER SCENARIO...
"""

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

from tests.distributed.worker import let_deepspeed_do_without_a_compiler
from tests.vllm import engine
from tests.vllm.checked import make


SCENARIOS = {
    "full": {},
    "lora": {"lora": True},
    "tensor_parallel": {"vllm_tensor_parallel_size": 2},
}


def main(folder: Path, scenarios: list[str]) -> None:
    engine.install()
    let_deepspeed_do_without_a_compiler()
    for scenario in scenarios:
        trainer = make(folder / scenario, processes=2, steps_per_generation=4, **SCENARIOS[scenario])
        trainer.train()
        result = {
            "checks": trainer.checks,
            "tensor_parallel": trainer.vllm_generation.llm.llm_engine.vllm_config.parallel_config.tensor_parallel_size,
        }
        (folder / f"{scenario}-{trainer.accelerator.process_index}.json").write_text(json.dumps(result))
    dist.barrier()
    os._exit(0)  # gloo sometimes aborts at exit, after everything is done


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
