"""
Which token credit learns best? GRPO, DAPO, their relatives, DelTA and its ablations on the tasks of
`tasks`, each with the same budget, the same seeds and its learning rate tuned the same way. And how much of
that is the balance of winners against losers, and why? `plans.py` lists the runs of all studies.

    python -m scripts.studies.study --run                  # appends one row per finished run to results/credit.jsonl
    python -m scripts.studies.study --report               # tables and pictures: results/credit*
    python -m scripts.studies.study --study balance --run  # the second study: results/balance.jsonl
    python -m scripts.studies.study --study mechanism --run  # the third (docs/mechanism_plan.md)
    python -m scripts.studies.study --study dynamic_sampling --run  # with and without (docs/language_plan.md)
    python -m scripts.studies.study --study elicit --run     # the fourth, on two kinds of models (docs/elicit_plan.md)
    python -m scripts.studies.study --study language --run   # on a language model (docs/language_plan.md)
    python -m scripts.studies.study --study weights --run    # which weight, where (docs/weights_plan.md)
    python -m scripts.studies.study --study ceiling --run    # could token credit help at all (docs/ceiling_plan.md)

`--run` skips finished runs, so it can be stopped and started at will, and started several times at once: a run that
another process is doing is skipped (by a lock on a file under outputs/study). Start one process per processor core,
each with OMP_NUM_THREADS=1.

The plan of the first study, fixed before its first comparison: every variant tries three learning rates with separate
seeds, in shorter runs, and keeps the one with the best mean training reward in their second half. Then it runs
with every seed. Last, every variant runs at the rate that suits DAPO, where its own is another: tuning is noisy, too.
A seed fixes the order of the problems and the start of all random numbers, so variants are compared seed by seed
(paired). The main outcome is held-out accuracy after training; the second is the area under the reward curve.
The plans of the others are in docs/.
"""

import argparse
import copy
import gc
import hashlib
import logging
import platform
import re
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import datasets
import torch
import transformers
import trl
from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.policy.prompts import prompt_ids
from delta_trl.rewards import math_reward

from .plans import CREDIT, DYNAMIC_SAMPLING, ELICIT, MECHANISM, STUDIES, WEIGHTS, Study
from .rules import labelled
from .runs import GENERATIONS, MINIBATCHES, PROMPTS, Run, read_rows, work
from .start_models import ELICIT_FOLDER, FOLDER, STARTS_FOLDER
from .tasks import TASKS, Task, make_problems
from .tasks.families import TASKS as ELICIT_TASKS
from .tasks.language import FOLDER as LANGUAGE_PROBLEMS
from .tasks.language import MODEL as LANGUAGE_MODEL
from .tasks.language import PROMPTS as LANGUAGE_PROMPTS
from .tasks.language import TASKS as LANGUAGE_TASKS
from .tasks.language import Task as LanguageTask
from .tasks.starts import TASKS as START_TASKS


ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
LOOKS = 4  # evaluations of the policy during a long run, evenly spaced
LOOK_PROBLEMS, LOOK_SAMPLES = 64, 64  # test problems, and samples for each, so that pass@k is known up to 64
BOX = re.compile(r"\\boxed\{\d+\}\Z")


def gist(completion: str) -> str:
    """What decides a completion's reward: its box, if it has only one, at its end, with a number; else all of it."""
    box = BOX.search(completion)
    return box[0] if box and completion.count("\\boxed") == 1 else completion


class RememberedReward:
    """
    A reward that remembers grades by problem and `gist` of the completion, in a file for all processes: runs share
    problems, and a sandbox is slow. What could not be graded is not remembered.
    """

    def __init__(self, reward: Callable, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.reward, self.path, self.known = reward, path, {}
        self.__name__ = reward.__name__
        with self.open() as file:
            file.execute(
                "CREATE TABLE IF NOT EXISTS grades (problem, completion, grade, UNIQUE (problem, completion))"
            )

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def __call__(self, completions: list[str], prompts: list[str], **columns) -> list[float | None]:
        keys = list(zip(prompts, map(gist, completions), strict=True))
        with self.open() as file:
            for key in dict.fromkeys(key for key in keys if key not in self.known):
                found = file.execute("SELECT grade FROM grades WHERE problem = ? AND completion = ?", key).fetchone()
                if found:
                    self.known[key] = found[0]
        new = {key: i for i, key in enumerate(keys) if key not in self.known}
        if new:
            columns = {
                name: [columns[name][i] for i in new.values()] for name in ("solution", "tests") if name in columns
            }
            grades = self.reward([completion for _, completion in new], **columns)
            graded = {key: grade for key, grade in zip(new, grades, strict=True) if grade is not None}
            self.known |= graded
            with self.open() as file:
                rows = [(*key, grade) for key, grade in graded.items()]
                file.executemany("INSERT OR REPLACE INTO grades VALUES (?, ?, ?)", rows)
        return [self.known.get(key) for key in keys]


class Runner:
    """
    Does runs one after the other, with imports, problems, rewards and start models loaded once; on `device`, with the
    start models in `models`. Grades are remembered in `folder`. Trainers write to a temporary folder of this process.
    """

    prompts = PROMPTS  # of a rollout batch
    bf16 = False
    sampled_at_once = 1024  # completions of test problems

    def __init__(
        self,
        study: Study = CREDIT,
        rollouts: dict[str, int] | None = None,
        test_problems: int | None = None,
        device: str = "cpu",
        models: Path = FOLDER,
        folder: Path = ROOT / "outputs" / "study",
    ):
        self.study, self.device, self.models, self.folder = study, torch.device(device), models, folder
        self.scratch = tempfile.TemporaryDirectory(prefix="delta-trl-study-")
        self.commit = commit()
        self.rollouts = rollouts or study.rollouts
        self.test_problems = test_problems
        self.loaded: dict[str, tuple] = {}
        self.digests: dict[str, str] = {}  # of the start models' weights, by task
        self.before: dict[tuple, list[int]] = {}  # what the start model solves, by task, seed, problems and samples
        logging.getLogger("transformers").setLevel(logging.ERROR)
        transformers.utils.logging.disable_progress_bar()
        datasets.disable_progress_bars()

    def load(self, task: Task) -> tuple:
        if task.name not in self.loaded:
            folder = self.models / (task.start_model or task.name)
            if not folder.is_dir():
                raise SystemExit(f"No start model in {folder}. scripts/studies/start_models.py tells how it is made.")
            train, test = make_problems(task)
            self.loaded[task.name] = (
                AutoModelForCausalLM.from_pretrained(folder).to(self.device),
                AutoTokenizer.from_pretrained(folder, padding_side="left"),
                Dataset.from_list(train),
                test[: self.test_problems],
                RememberedReward(task.reward, self.folder / f"{task.name}-grades.sqlite"),
            )
            gc.freeze()  # makes the trainer's garbage collections faster: they skip imports
        return self.loaded[task.name]

    def digest(self, task: Task) -> str:
        """Tells start models apart: two machines may make slightly different ones."""
        if task.name not in self.digests:
            weights = self.load(task)[0].state_dict()
            found = hashlib.sha256()
            for name in sorted(weights):
                found.update(weights[name].cpu().numpy().tobytes())
            self.digests[task.name] = found.hexdigest()[:12]
        return self.digests[task.name]

    def train(self, run: Run, callbacks: tuple[TrainerCallback, ...] = ()) -> DeltaGRPOTrainer:
        task = task_of(run)
        model, tokenizer, train, _, reward = self.load(task)
        trainer = DeltaGRPOTrainer(
            model=copy.deepcopy(model),
            reward_funcs=self.training_reward(task, reward, tokenizer),
            args=self.config(run, task),
            train_dataset=train,
            processing_class=tokenizer,
            callbacks=list(callbacks),
            peft_config=adapters() if run.task.endswith("+lora") else None,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer

    def training_reward(self, task: Task, reward: Callable, tokenizer) -> Callable:
        return labelled(reward, task, tokenizer)

    def __call__(self, run: Run) -> dict:
        start = time.perf_counter()
        looks = Looks(self, run) if run.phase in ("long", "saturation") else None
        trainer = self.train(run, (looks,) if looks else ())
        logged = trainer.state.log_history

        def curve(name):
            # undefined values, such as the variance between sides of a batch without contrast, are logged as None
            values = [entry[name] for entry in logged if name in entry]
            return [None if value is None else float(f"{value:.5g}") for value in values]

        row = {
            **dict(zip(("phase", "task", "variant", "learning_rate", "seed"), run.key, strict=True)),
            "settings": self.study.variants[run.variant],
            "commit": self.commit,
            "processor": processor(),
            "start_model": self.digest(task_of(run)),
            "reward": curve("reward"),
            "grad_norm": curve("grad_norm"),
            "entropy": curve("entropy"),
            "length": curve("completions/mean_length"),
            "winners": curve("credit/coefficient_mean_positive"),
            "losers": curve("credit/coefficient_mean_negative"),
            "between_sides_variance": curve("credit/between_sides_variance"),
            "step_seconds": curve("step_time"),
            "dynamic_sampling": {
                name.removeprefix("dynamic_sampling/"): curve(name)
                for name in logged[0]
                if name.startswith("dynamic_sampling/")
            },
            "credit_seconds": round(sum(curve("credit/seconds")), 3),
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "trl": trl.__version__,
            },
        }
        if run.phase != "tune":  # tuning does not use the test problems
            row["solved_before"] = self.solved_before(run, None, self.study.look_samples)
            row["solved_after"] = self.solved(run, trainer.model)
            row |= {f"accuracy_{when}": accuracy(row[f"solved_{when}"]) for when in ("before", "after")}
        if looks:
            row["looks"] = looks.found
        row["seconds"] = round(time.perf_counter() - start, 2)
        return row

    def solved_before(self, run: Run, *args) -> list[int]:
        key = (task_of(run).name, run.seed, *args)
        if key not in self.before:
            self.before[key] = self.solved(run, self.load(task_of(run))[0], *args)
        return self.before[key]

    @torch.no_grad()
    def solved(self, run: Run, model, problems: int | None = None, samples: int | None = None) -> list[int]:
        """
        Counts of the first test problems that 0, 1, ... of their samples at temperature 1 solve, as pass@k needs them.
        The seed is the run's. The state of the random numbers is restored afterwards.
        """
        task, samples = task_of(run), samples or self.study.samples
        _, tokenizer, _, test, reward = self.load(task)
        test = test[:problems]
        every = [problem for problem in test for _ in range(samples)]
        right: list[float] = []
        was_training = model.training
        model.eval()
        precision = torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)
        with precision, torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(run.seed)
            for start in range(0, len(every), self.sampled_at_once):
                part = every[start : start + self.sampled_at_once]
                columns = {name: [problem[name] for problem in part] for name in part[0]}
                prompts = {"input_ids": prompt_ids(tokenizer, columns["prompt"])}
                inputs = tokenizer.pad(prompts, return_tensors="pt").to(self.device)
                ids = model.generate(
                    **inputs,
                    max_new_tokens=task.max_completion_length,
                    do_sample=True,
                    temperature=1.0,
                    top_k=0,
                    top_p=1.0,
                )
                texts = tokenizer.batch_decode(ids[:, inputs.input_ids.size(1) :], skip_special_tokens=True)
                right += reward(completions=texts, prompts=columns.pop("prompt"), **columns)
        model.train(was_training)
        counts = torch.tensor(right).view(len(test), samples).sum(dim=1).long()
        return counts.bincount(minlength=samples + 1).tolist()

    def config(self, run: Run, task: Task) -> DeltaGRPOConfig:
        options = {"steps_per_generation": MINIBATCHES, **self.study.variants[run.variant]}
        steps = options["steps_per_generation"]
        return DeltaGRPOConfig(
            output_dir=self.scratch.name,
            seed=run.seed,
            learning_rate=run.learning_rate,
            lr_scheduler_type="constant",
            max_steps=self.rollouts[run.phase] * steps,
            per_device_train_batch_size=self.prompts * GENERATIONS // steps,
            num_generations=GENERATIONS,
            max_completion_length=task.max_completion_length,
            use_cpu=self.device.type == "cpu",
            bf16=self.bf16,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **options,
        )


class LanguageRunner(Runner):
    """Runs of SmolLM2-135M-Instruct, as `make language-model` builds it in `models`, at the sizes of its recipes."""

    prompts = LANGUAGE_PROMPTS
    bf16 = True
    sampled_at_once = 128

    def load(self, task: LanguageTask) -> tuple:
        if task.name not in self.loaded:
            train, test = (
                load_dataset("json", data_files=str(LANGUAGE_PROBLEMS / f"{task.name}_{split}.jsonl"), split="train")
                for split in ("train", "test")
            )
            folder = self.models / LANGUAGE_MODEL.name
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(self.device)
            tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
            self.loaded[task.name] = (model, tokenizer, train, test.to_list()[: self.test_problems], math_reward)
            gc.freeze()
        return self.loaded[task.name]

    def training_reward(self, task: LanguageTask, reward: Callable, tokenizer) -> Callable:
        return reward


class Looks(TrainerCallback):
    """Accuracy and pass@k before and during a long run. Looks do not affect the run."""

    def __init__(self, runner: Runner, run: Run):
        self.runner, self.run = runner, run
        self.every = max(1, runner.rollouts[run.phase] // LOOKS)
        few = runner.study.look_samples
        self.shown = (None, few) if few else (LOOK_PROBLEMS, LOOK_SAMPLES)
        self.found = [{"rollouts": 0, "solved": runner.solved_before(run, *self.shown), "accuracy": None}]

    def on_step_end(self, args, state, control, model=None, **kwargs):
        rollouts, within = divmod(state.global_step, MINIBATCHES)
        if not within and not rollouts % self.every:
            solved = self.runner.solved(self.run, model, *self.shown)
            of_all = solved if self.runner.study.look_samples else self.runner.solved(self.run, model)
            self.found.append({"rollouts": rollouts, "solved": solved, "accuracy": accuracy(of_all)})


def adapters():
    from peft import LoraConfig  # which runs without adapters do not need

    return LoraConfig(r=8, target_modules="all-linear")


def commit() -> str | None:
    """The commit of the running code, marked if its files have been changed since; `None` outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "delta_trl", "scripts", f":!{RESULTS.relative_to(ROOT)}")
    return git("rev-parse", "HEAD") + "-dirty" * bool(changed) or None


def processor() -> str:
    """The processor's name: two processors may round otherwise."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def task_of(run: Run) -> Task | LanguageTask:
    return (TASKS | LANGUAGE_TASKS | ELICIT_TASKS | START_TASKS)[run.task.removesuffix("+lora")]


def runner_of(study: Study, task: str) -> Runner:
    """What does a study's runs of a task."""
    if task in LANGUAGE_TASKS:
        return LanguageRunner(study, test_problems=64, models=LANGUAGE_MODEL.parent)
    if task in ELICIT_TASKS:
        return Runner(study, test_problems=256, models=ELICIT_FOLDER)
    return Runner(study, models=STARTS_FOLDER) if task in START_TASKS else Runner(study)


def accuracy(solved: list[int]) -> float:
    """Share of right samples, from the counts of problems that 0, 1, ... of them solve."""
    return sum(i * count for i, count in enumerate(solved)) / ((len(solved) - 1) * sum(solved))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=STUDIES, default=CREDIT.name)
    parser.add_argument("--run", action="store_true", help="do what has no row yet")
    parser.add_argument("--report", action="store_true", help="write tables and pictures beside the rows")
    parser.add_argument("--results", type=Path, help="rows, scripts/studies/results/STUDY.jsonl by default")
    parser.add_argument("--tasks", nargs="+", help="of the study, all by default")
    parser.add_argument("--variants", nargs="+", help="of the study, all by default")
    parser.add_argument("--seeds", type=int, help="how many")
    args = parser.parse_args()
    study = STUDIES[args.study]
    args.results = args.results or RESULTS / f"{study.name}.jsonl"
    if unknown := {*(args.tasks or ()), *(args.variants or ())} - {*study.tasks, *study.variants, *study.best_of}:
        parser.error(f"unknown in this study: {', '.join(sorted(unknown))}")
    if args.report and (args.tasks or args.variants or args.seeds):
        parser.error("--report is of all rows: --tasks, --variants and --seeds are for --run")
    if args.run:
        torch.set_num_threads(1)
        runners: dict[str, Runner] = {}
        locks = ROOT / "outputs" / "study" / "locks"

        def execute(run: Run) -> dict:
            if run.task not in runners:
                runners[run.task] = runner_of(study, run.task)
            row = runners[run.task](run)
            print(*run.key, row["reward"][-1], row.get("accuracy_after"), f"{row['seconds']} s", flush=True)
            return row

        def chosen(cell: tuple[str, str]) -> bool:
            return cell[0] in (args.tasks or study.tasks) and (not args.variants or cell[1] in args.variants)

        seeds = args.seeds or max(section.seeds for section in study.sections)
        for runs in study.stages(chosen, seeds, lambda: read_rows(args.results)):
            work(runs, args.results, execute, locks)
    if args.report:
        # here, because they need matplotlib and scipy, and runs do not
        if study is MECHANISM:
            from .mechanism import write_report
        elif study is DYNAMIC_SAMPLING:
            from .dynamic_sampling import write_report
        elif study is ELICIT:
            from .elicit import write_report
        elif study is WEIGHTS:
            from .weights import write_report
        else:
            from .report import write_report

        write_report(study, read_rows(args.results), args.results.with_suffix(""))


if __name__ == "__main__":
    main()
