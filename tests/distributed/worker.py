"""
One training process of test_trainer.py: trains tiny models on given rollouts and writes down what they were credited.

    accelerate launch --config_file CONFIG tests/distributed/worker.py OUTPUT_FOLDER MODE [DEVICE SCENARIO...]

The rollouts come from `rollout_func` and depend on the prompt alone, so that they are the same however many processes
share them.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import DistributedType
from datasets import Dataset
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.distributed.tensor import DTensor
from transformers import Trainer

from delta_trl import DeltaGRPOTrainer
from delta_trl.arguments.errors import UsageError
from delta_trl.cli import main as command_line
from delta_trl.credit.gradients import full
from delta_trl.data.records import FOLDER
from tests.corpus import tiny
from tests.trainer.test_dynamic_sampling import CREDIT, G, run, texts
from tests.trainers import LORA, credit, logged, make_trainer


PROMPTS, RESPONSES, LONGEST = 4, 4, 12
MODES = {
    "single": DistributedType.NO,
    "ddp": DistributedType.MULTI_CPU,
    "fsdp2": DistributedType.FSDP,
    "zero2": DistributedType.DEEPSPEED,
    "zero3": DistributedType.DEEPSPEED,
}
ADAPTER = {"trainer_options": LORA}
ALIGNED = {"num_iterations": 1}  # token credit needs a forward pass of its own
MASKED = {"mask_truncated_completions": True}
SCENARIOS = {
    "full": {},
    "lora": ADAPTER,
    "reference": {**ALIGNED, **ADAPTER, "beta": 0.1},
    "empty_rank": {**ALIGNED, **MASKED},
    "all_masked": MASKED,
    "contrast_on_one_rank": {},
    "shuffled": {"token_credit": "shuffled"},
}
# what needs whole parameters, and ZeRO-3 refuses
WHOLE_PARAMETERS = {
    "lm_head": credit(token_gradient="lm_head"),
    "exact": credit(token_gradient="full"),
    "exact_lora": {**credit(token_gradient="full"), **ADAPTER},
}
OPTIONS = {**SCENARIOS, **WHOLE_PARAMETERS, "bf16": {"bf16": True, "beta": 0.1}, "broken": {}, "layouts": {}}


def completion(row: int, rows: int, prompt: str, scenario: str) -> list[int]:
    """Token ids for row `row` of the rollout batch's `rows`, the same in every run."""
    generator = random.Random(f"{prompt} {row}")
    ids = [generator.randrange(2, tiny.SIZES["vocab_size"]) for _ in range(generator.randrange(3, LONGEST))]
    cut_off = scenario == "all_masked" or (scenario == "empty_rank" and row >= rows // 2)
    return ids if cut_off else [*ids, 1]  # without <eos>, `mask_truncated_completions` masks it


def rollout(scenario):
    def rollout_func(prompts, trainer):
        first = trainer.accelerator.process_index * len(prompts)
        rows = trainer.accelerator.num_processes * len(prompts)
        tokenizer = trainer.processing_class
        return {
            "prompt_ids": tokenizer(prompts)["input_ids"],
            "completion_ids": [completion(first + i, rows, prompt, scenario) for i, prompt in enumerate(prompts)],
            "logprobs": None,
        }

    return rollout_func


def save_model(folder: Path) -> Path:
    """A tiny model on disk, a copy for each process. ZeRO-3 draws other weights when it initialises a model itself."""
    path = folder / f"model-{os.environ.get('RANK', 0)}"
    torch.manual_seed(0)
    tiny.model().save_pretrained(path)
    return path


def make(folder: Path, model: Path, scenario: str, processes: int, **changes) -> DeltaGRPOTrainer:
    def reward(prompts, completion_ids, **kwargs):
        """Where the second process has no contrast, none of its rows trains."""
        values = []
        for prompt, ids in zip(prompts, completion_ids, strict=True):
            is_of_second = int(prompt[0]) % PROMPTS >= PROMPTS // 2
            is_equal = scenario == "contrast_on_one_rank" and is_of_second
            values.append(1.0 if is_equal else float(sum(ids) % 2))
        return values

    options = {
        "output_dir": str(folder / scenario),
        # a step trains on the whole rollout batch: TRL shuffles it on each process, so its parts would differ
        "per_device_train_batch_size": PROMPTS * RESPONSES // processes,
        "num_iterations": 2,
        "num_generations": RESPONSES,
        "max_completion_length": LONGEST,
        "optim": "sgd",  # Adam turns rounding in near-zero gradients into steps of full size
        "learning_rate": 0.5,
        "shuffle_dataset": False,
        "num_completions_to_print": 0,
        "log_token_credit": 1,
        "log_token_credit_completions": 1000,
        "train_dataset": Dataset.from_dict({"prompt": [f"{i}+{i}=" for i in range(2 * PROMPTS)]}),
        **OPTIONS[scenario],
        **changes,
    }
    options.setdefault("max_steps", 2 * options["num_iterations"])  # two rollout batches
    options["trainer_options"] = {"rollout_func": rollout(scenario), **options.get("trainer_options", {})}
    return make_trainer(str(model), reward_funcs=reward, **options)


def check_mode(trainer: DeltaGRPOTrainer, mode: str, processes: int):
    """Several ways of asking for a distributed mode on CPU silently give another one."""
    accelerator = trainer.accelerator
    assert accelerator.num_processes == processes, accelerator.num_processes
    assert accelerator.distributed_type == MODES[mode], accelerator.distributed_type
    if mode in ("fsdp2", "zero3") and processes > 1:
        whole = here = 0
        for parameter in accelerator.unwrap_model(trainer.model_wrapped).parameters():
            whole += getattr(parameter, "ds_numel", parameter.numel())
            shard = parameter.ds_tensor if mode == "zero3" else parameter.to_local()
            here += shard.numel()
        assert 0.4 * whole < here < 0.7 * whole, (here, whole)
    if mode == "zero2":
        assert accelerator.state.deepspeed_plugin.zero_stage == 2


def write(path: Path, found) -> None:
    path.write_text(json.dumps(found))


def main(folder: Path, mode: str, device: str = "cpu", *scenarios: str):
    torch.set_num_threads(1)
    processes = int(os.environ.get("WORLD_SIZE", 1))
    model = save_model(folder)
    refused = WHOLE_PARAMETERS if mode == "zero3" else ()
    own = ["bf16"] if mode == "fsdp2" else []
    for scenario in scenarios or (*SCENARIOS, *WHOLE_PARAMETERS, *own):
        if scenario in refused:
            continue
        options = {"use_cpu": device == "cpu"}
        if (mode, scenario) == ("ddp", "full"):
            options |= {"save_strategy": "steps", "save_steps": 2}
            be_late_with_checkpoints()
        trainer = make(folder, model, scenario, processes, **options)
        trainer.train()
        check_mode(trainer, mode, processes)
        if trainer.accelerator.is_main_process:
            write(folder / f"{mode}-{scenario}.json", results(trainer))
    rank = trainer.accelerator.process_index
    if not scenarios:
        write(folder / f"{mode}_broken-{rank}.json", break_down(folder, model, processes))
        write(folder / f"sampled-{rank}.json", sample(folder / "sampling", model, processes))
    if mode == "ddp" and not scenarios:
        write(folder / f"layouts-{rank}.json", layouts(folder, model, processes))
    if mode == "ddp":  # last: a command ends its processes' group
        sys.path.insert(0, str(folder))  # where the recipe's rule is
        assert command_line(["train", "--config", str(folder / "run.yaml")]) == 0


def layouts(folder: Path, model: Path, processes: int) -> list[str | None]:
    """Of rows before and after one process has got a hook that mixes them."""
    trainer = make(folder, model, "layouts", processes)
    policy = trainer.model.model
    found = []
    for is_hooked in (False, True):
        if is_hooked and trainer.accelerator.process_index == 1:
            policy.norm.register_forward_hook(lambda module, args, output: output + output.mean())
        trainer.layouts.before_rollout()
        found.append(trainer.layouts.current)
    return found


def logs_of(trainer: DeltaGRPOTrainer) -> list[dict]:
    """Of its steps."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def read_tables(folder: Path) -> list[list[dict]]:
    return [pq.read_table(path).to_pylist(maps_as_pydicts="strict") for path in sorted(folder.iterdir())]


def results(trainer: DeltaGRPOTrainer) -> dict:
    """Logs of a run's steps, and what it recorded of each rollout batch."""
    return {"logs": logs_of(trainer), "records": read_tables(Path(trainer.args.output_dir, FOLDER))}


def make_broken(folder: Path, model: Path, processes: int, **options) -> DeltaGRPOTrainer:
    return make(folder, model, "broken", processes, save_strategy="steps", save_steps=1, max_steps=9, **options)


def break_down(folder: Path, model: Path, processes: int) -> dict:
    """
    What trainers raise if the last process's loss is NaN from the second step on; if the weights overflow; and if they
    resume from a checkpoint of one process, which lies in the folder `of_one`. The first one's model is saved.
    """

    class LastIsBroken(DeltaGRPOTrainer):
        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            is_last = self.accelerator.process_index == self.accelerator.num_processes - 1
            breaks = is_last and self.state.global_step > 0
            return loss * (torch.nan if breaks else 1.0)

    def error_of(trainer: DeltaGRPOTrainer, resume: str | None = None) -> str:
        with pytest.raises((FloatingPointError, UsageError)) as error:
            trainer.train(resume_from_checkpoint=resume)
        return str(error.value)

    found = {}
    trainer = make_broken(folder, model, processes, trainer_class=LastIsBroken)
    found["skipped"] = error_of(trainer)
    found["skipped_updates"] = logged(trainer, "skipped_updates")
    trainer.save_model(str(folder / "broken-model"))
    overflows = {"learning_rate": 3e38, "weight_decay": 1e6, "output_dir": str(folder / "overflow")}
    found["overflow"] = error_of(make_broken(folder, model, processes, **overflows))
    if processes > 1 and trainer.accelerator.distributed_type != DistributedType.MULTI_CPU:
        other = str(folder / "of_one" / "checkpoint-5")
        found["other"] = error_of(make_broken(folder, model, processes, output_dir=str(folder / "other")), other)
    return found


def sample(folder: Path, model: Path, processes: int) -> dict[str, list]:
    """
    Dynamic sampling with groups that lie across processes, and the same run resumed: logs of both, and the whole one's
    tables of completions.
    """
    options = {
        "model": str(model),
        "per_device_train_batch_size": 3 * G // processes,
        "max_steps": 4,
        "optim": "sgd",
        "learning_rate": 0.5,
        "save_strategy": "steps",
        "save_steps": 2,
        **CREDIT[0],
    }
    whole = run(make_trainer, folder, texts(17), **options)
    tables = read_tables(folder / "completions") if whole.accelerator.is_main_process else []
    resumed = run(make_trainer, folder, texts(17), resume="checkpoint-2", **options)
    return {"whole": logs_of(whole), "resumed": logs_of(resumed), "tables": tables}


def be_late_with_checkpoints() -> None:
    """The second process writes its part of a checkpoint late."""
    save_random_numbers = Trainer._save_rng_state

    def save_late(self, output_dir):
        time.sleep(2 * self.accelerator.process_index)
        save_random_numbers(self, output_dir)

    Trainer._save_rng_state = save_late


def let_fsdp_run_on_cpu():
    """accelerate asks for FSDP on accelerators only and gives DDP on CPU; FSDP2 itself runs over gloo."""
    initialize = PartialState.__init__

    def init(self, *args, **kwargs):
        initialize(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = init


def leave_the_head_s_group_as_torch_2_11_does():
    """There, the group of an LM head that TRL does not call counts as running after a forward."""
    reshard = full._reshard

    def of_torch_2_11(model):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                group = module._get_fsdp_state()._fsdp_param_group
                if group is not None and not group._reshard_after_forward:
                    group._training_state = TrainingState.FORWARD
        reshard(model)
        assert all(isinstance(p, DTensor) for p in model.parameters() if p.requires_grad)

    full._reshard = of_torch_2_11


def let_deepspeed_do_without_a_compiler():
    """On a CPU it compiles sums in shared memory, which takes a minute. Without them it takes gloo's."""
    from deepspeed.ops import __compatible_ops__ as can_be_built

    can_be_built["deepspeed_shm_comm"] = False


if __name__ == "__main__":
    folder, mode, *rest = sys.argv[1:]
    on_cpu = "cuda" not in rest
    if on_cpu and mode == "fsdp2":
        let_fsdp_run_on_cpu()
        leave_the_head_s_group_as_torch_2_11_does()
    if on_cpu and mode in ("zero2", "zero3"):
        let_deepspeed_do_without_a_compiler()
    main(Path(folder), mode, *rest)
    if dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit
