"""Does a plan's runs: trains one arm on one task with one seed, and makes the row."""

import copy
import gc
import hashlib
import logging
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import datasets
import torch
import transformers
import trl
from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.rewards import math_reward

from ..benchmarks.timing import processor
from .plans import Plan
from .rows import KEY, Run
from .rules import ROLLOUT, labelled
from .sampling import sample
from .start_models import folder_of
from .tasks import OTHER_STARTS, TASKS, language, make_problems


ROOT = Path(__file__).resolve().parents[2]
# Of a rollout batch. There are as many optimiser steps as mini-batches.
PROMPTS = 16
GENERATIONS = 8
MINIBATCHES = 4
BOX = re.compile(r"\\boxed\{\d+\}\Z")


@dataclass
class Loaded:
    """What the runs of a task share."""

    model: torch.nn.Module
    tokenizer: transformers.PreTrainedTokenizerBase
    train: Dataset
    test: list[dict]
    reward: Callable
    training_reward: Callable  # also records what rules need
    max_completion_length: int
    prompts: int = PROMPTS
    bf16: bool = False
    sampled_at_once: int = 256  # completions of test problems


class RememberedReward:
    """A reward that remembers grades: runs share problems, and a sandbox is slow. `None` is not remembered."""

    def __init__(self, reward: Callable):
        self.reward = reward
        self.known = {}  # by prompt and gist
        self.__name__ = reward.__name__

    def __call__(self, completions: list[str], prompts: list[str], **columns) -> list[float | None]:
        keys = list(zip(prompts, map(gist, completions), strict=True))
        new = {key: i for i, key in enumerate(keys) if key not in self.known}
        if new:
            texts = [text for _, text in new]
            of_new = {}
            for name in ("solution", "tests"):
                if name in columns:
                    of_new[name] = [columns[name][i] for i in new.values()]
            grades = zip(new, self.reward(texts, **of_new), strict=True)
            self.known |= {key: grade for key, grade in grades if grade is not None}
        return [self.known.get(key) for key in keys]


def gist(completion: str) -> str:
    """What decides a completion's reward: its box, if it has only one, at its end, with a number; else all of it."""
    box = BOX.search(completion)
    return box[0] if box and completion.count("\\boxed") == 1 else completion


class Runner:
    """
    Does runs one after the other, with imports, problems, rewards and start models loaded once.

    Args:
        plan ([`Plan`]): The study.
        device (`str`, *optional*, defaults to `"cpu"`): Where to train.
    """

    def __init__(self, plan: Plan, device: str = "cpu"):
        self.plan = plan
        self.device = torch.device(device)
        self.scratch = tempfile.TemporaryDirectory(prefix="delta-trl-study-")  # of this process alone
        versions = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "trl": trl.__version__,
        }
        self.code = {"commit": commit(), "versions": versions}
        self.loaded = {}  # by task
        self.before = {}  # what the start model solves, by task and seed
        logging.getLogger("transformers").setLevel(logging.ERROR)
        transformers.utils.logging.disable_progress_bar()
        datasets.disable_progress_bars()

    def load(self, name: str) -> Loaded:
        name = name.removesuffix("+lora")
        if name not in self.loaded:
            load = self._load_language if name in language.TASKS else self._load
            self.loaded[name] = load(name)
            gc.freeze()  # makes the trainer's garbage collections faster: they skip imports
        return self.loaded[name]

    def _load(self, name: str) -> Loaded:
        task = (TASKS | OTHER_STARTS)[name]
        folder = folder_of(name)
        if not folder.is_dir():
            raise SystemExit(f"No start model in {folder}. scripts/studies/start_models.py makes it.")
        train, test = make_problems(task)
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        reward = RememberedReward(task.reward)
        return Loaded(
            model=AutoModelForCausalLM.from_pretrained(folder).to(self.device),
            tokenizer=tokenizer,
            train=Dataset.from_list(train),
            test=test[: self.plan.problems],
            reward=reward,
            training_reward=labelled(reward, task, tokenizer),
            max_completion_length=task.max_completion_length,
        )

    def _load_language(self, name: str) -> Loaded:
        files = {split: str(language.FOLDER / f"{name}_{split}.jsonl") for split in ("train", "test")}
        data = load_dataset("json", data_files=files)
        return Loaded(
            model=AutoModelForCausalLM.from_pretrained(language.MODEL, dtype=torch.float32).to(self.device),
            tokenizer=AutoTokenizer.from_pretrained(language.MODEL, padding_side="left"),
            train=data["train"],
            test=data["test"].to_list()[: self.plan.problems or language.TESTED_PROBLEMS],
            reward=math_reward,
            training_reward=math_reward,
            max_completion_length=language.TASKS[name].max_completion_length,
            prompts=language.PROMPTS,
            bf16=True,
            sampled_at_once=128,
        )

    def config(self, run: Run) -> DeltaGRPOConfig:
        options = {"steps_per_generation": MINIBATCHES, **self.plan.arms[run.arm]}
        steps = options["steps_per_generation"]
        loaded = self.load(run.task)
        return DeltaGRPOConfig(
            output_dir=self.scratch.name,
            seed=run.seed,
            learning_rate=run.learning_rate,
            lr_scheduler_type="constant",
            max_steps=self.plan.phases[run.phase]["rollouts"] * steps,
            per_device_train_batch_size=loaded.prompts * GENERATIONS // steps,
            num_generations=GENERATIONS,
            max_completion_length=loaded.max_completion_length,
            use_cpu=self.device.type == "cpu",
            bf16=loaded.bf16,
            activation_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **options,
        )

    def train(self, run: Run, callbacks: tuple[TrainerCallback, ...] = ()) -> DeltaGRPOTrainer:
        loaded = self.load(run.task)
        trainer = DeltaGRPOTrainer(
            model=copy.deepcopy(loaded.model),
            reward_funcs=loaded.training_reward,
            args=self.config(run),
            train_dataset=loaded.train,
            processing_class=loaded.tokenizer,
            callbacks=list(callbacks),
            peft_config=adapters() if run.task.endswith("+lora") else None,
        )
        trainer.remove_callback(PrinterCallback)
        ROLLOUT.trainer = trainer
        ROLLOUT.reward = loaded.reward
        ROLLOUT.continued = []
        trainer.train()
        return trainer

    def __call__(self, run: Run) -> dict:
        """The row of a run."""
        start = time.perf_counter()
        looks = Looks(self, run)
        trainer = self.train(run, (looks,) if looks.count else ())
        logged = trainer.state.log_history

        def curve(name: str) -> list[float | None]:
            # undefined values, such as losers' weight in a batch where none lost, are logged as None
            values = [entry[name] for entry in logged if name in entry]
            return [None if value is None else float(f"{value:.5g}") for value in values]

        dynamic_sampling = {}
        for name in logged[0]:
            if name.startswith("dynamic_sampling/"):
                dynamic_sampling[name.removeprefix("dynamic_sampling/")] = curve(name)
        row = {
            **dict(zip(KEY, run.key, strict=True)),
            "settings": self.plan.arms[run.arm],
            **self.code,
            # on another one, sums round differently, and runs part ways
            "processor": processor() if self.device.type == "cpu" else torch.cuda.get_device_name(),
            "start_model": digest(self.load(run.task).model),
            "reward": curve("reward"),
            "grad_norm": curve("grad_norm"),
            "entropy": curve("entropy"),
            "length": curve("completions/mean_length"),
            "winners": curve("credit/coefficient_mean_positive"),
            "losers": curve("credit/coefficient_mean_negative"),
            "step_seconds": curve("step_time"),
            "continued_tokens": ROLLOUT.continued,
            "dynamic_sampling": dynamic_sampling,
        }
        if run.phase != "tune":  # tuning does not use the test problems
            before = self.solved_before(run)
            after = looks.after(trainer.state.global_step) or self.solved(run, trainer.model)
            row |= {"solved_before": before, "solved_after": after}
            row |= {"accuracy_before": accuracy(before), "accuracy_after": accuracy(after)}
        if looks.count:
            row["looks"] = looks.found
        return row | {"seconds": round(time.perf_counter() - start, 2)}

    def solved_before(self, run: Run) -> list[int]:
        key = (run.task.removesuffix("+lora"), run.seed)
        if key not in self.before:
            self.before[key] = self.solved(run, self.load(run.task).model)
        return self.before[key]

    def solved(self, run: Run, model: torch.nn.Module) -> list[int]:
        """
        Counts of the test problems that 0, 1, ... of their samples at temperature 1 solve, as pass@k needs them. The
        seed is the run's. The state of the random numbers is restored afterwards.
        """
        loaded = self.load(run.task)
        samples = self.plan.samples
        every = [problem for problem in loaded.test for _ in range(samples)]
        prompts = [prompt_ids(loaded.tokenizer, problem["prompt"]) for problem in every]
        columns = {name: [problem[name] for problem in every] for name in every[0]}
        precision = torch.autocast(self.device.type, torch.bfloat16, enabled=loaded.bf16)
        gpus = [self.device] if self.device.type == "cuda" else []
        with precision, torch.random.fork_rng(devices=gpus):
            torch.manual_seed(run.seed)
            ids = sample(model, loaded.tokenizer, prompts, loaded.max_completion_length, loaded.sampled_at_once)
        texts = loaded.tokenizer.batch_decode(ids, skip_special_tokens=True)
        right = loaded.reward(completions=texts, prompts=columns.pop("prompt"), **columns)
        of_problems = torch.tensor(right).view(-1, samples)
        counts = of_problems.sum(dim=1).long()
        return counts.bincount(minlength=samples + 1).tolist()


class Looks(TrainerCallback):
    """Accuracy before and during a run, evenly spaced. Looks do not affect the run."""

    def __init__(self, runner: Runner, run: Run):
        phase = runner.plan.phases[run.phase]
        self.runner = runner
        self.run = run
        self.count = phase.get("looks", 0)
        self.every = max(1, phase["rollouts"] // max(1, self.count))
        self.steps = runner.plan.arms[run.arm].get("steps_per_generation", MINIBATCHES)
        self.found = []
        if self.count:
            self._look(0, runner.solved_before(run))

    def on_step_end(self, args, state, control, model=None, **kwargs):
        rollouts, within = divmod(state.global_step, self.steps)
        if not within and not rollouts % self.every:
            self._look(rollouts, self.runner.solved(self.run, model))

    def after(self, step: int) -> list[int] | None:
        """What a look found after an optimiser step, if there was one."""
        for look in self.found:
            if look["rollouts"] * self.steps == step:
                return look["solved"]
        return None

    def _look(self, rollouts: int, solved: list[int]) -> None:
        self.found.append({"rollouts": rollouts, "solved": solved, "accuracy": accuracy(solved)})


def prompt_ids(tokenizer, prompt: str | list[dict]) -> list[int]:
    """Token ids of a text, or of a chat."""
    if isinstance(prompt, str):
        return tokenizer(prompt).input_ids
    return tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]


def adapters():
    from peft import LoraConfig  # which runs without adapters do not need

    return LoraConfig(r=8, target_modules="all-linear")


def accuracy(solved: list[int]) -> float:
    """Share of right samples, from the counts of problems that 0, 1, ... of them solve."""
    samples = len(solved) - 1
    right = sum(i * count for i, count in enumerate(solved))
    return right / (samples * sum(solved))


def digest(model: torch.nn.Module) -> str:
    """Tells start models apart: two machines may make slightly different ones."""
    found = hashlib.sha256()
    weights = model.state_dict()
    for name in sorted(weights):
        found.update(weights[name].cpu().numpy().tobytes())
    return found.hexdigest()[:12]


def commit() -> str | None:
    """The last commit that changed the code, marked if files have been changed since; `None` outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout.strip()

    code = ("--", "delta_trl", "scripts/studies", ":!scripts/studies/results", ":!scripts/studies/*.md")
    found = git("log", "-1", "--format=%H", *code)
    changed = git("status", "--porcelain", *code)
    return (f"{found}-dirty" if changed else found) or None
