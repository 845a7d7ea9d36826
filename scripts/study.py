"""
Which token credit learns best? GRPO, DAPO, their relatives, DelTA and its ablations on the tasks of
delta_trl.tasks, each with the same budget, the same seeds and its learning rate tuned the same way.

    python scripts/study.py --run                 # appends one row per finished run to docs/results/study.jsonl
    python scripts/study.py --report              # the tables in docs/study.md and the rest of docs/results/study*

`--run` skips what is finished, so it can be stopped and started at will, and started several times at once: a run that
another process is at is left to it (by a lock on a file under outputs/study). Start one process per processor core,
each with OMP_NUM_THREADS=1.

The plan, fixed before the first comparison: every variant tries three learning rates with a seed of their own, in
shorter runs, and keeps the one with the best mean training reward in their second half. Then it runs with every seed.
Last, every variant runs at the rate that suits DAPO, where its own is another: tuning is noisy, too.
A seed fixes the order of the problems and the start of all random numbers, so variants are compared seed by seed
(paired). The main outcome is held-out accuracy after training; the second is the area under the reward curve.
"""

import argparse
import copy
import gc
import logging
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import datasets
import torch
import transformers
import trl
from datasets import Dataset
from make_study_models import FOLDER
from study_runs import (
    GENERATIONS,
    MINIBATCHES,
    PROMPTS,
    ROLLOUTS,
    SEEDS,
    VARIANTS,
    Run,
    common_rates,
    read_rows,
    study_runs,
    tuned_rates,
    tuning_runs,
    work,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, set_seed

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.tasks import TASKS, Task, make_problems


ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "results" / "study.jsonl", ROOT / "docs" / "study.md"


class RememberedReward:
    """
    A reward that grades no (problem, completion) twice, also not in another process: runs share problems, and a
    sandbox takes its time. What could not be graded is not remembered.
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
        keys = list(zip(prompts, completions, strict=True))
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
    """Does runs one after the other, with imports, problems, rewards and start models loaded once."""

    def __init__(self, rollouts: dict[str, int] = ROLLOUTS, test_problems: int | None = None):
        self.rollouts = rollouts
        self.test_problems = test_problems
        self.loaded: dict[str, tuple] = {}
        self.before: dict[tuple, float] = {}  # accuracy of the start model by task and seed
        logging.getLogger("transformers").setLevel(logging.ERROR)
        transformers.utils.logging.disable_progress_bar()
        datasets.disable_progress_bars()

    def load(self, task: Task) -> tuple:
        if task.name not in self.loaded:
            folder = FOLDER / task.name
            train, test = make_problems(task)
            self.loaded[task.name] = (
                AutoModelForCausalLM.from_pretrained(folder),
                AutoTokenizer.from_pretrained(folder, padding_side="left"),
                Dataset.from_list(train),
                test[: self.test_problems],
                RememberedReward(task.reward, ROOT / "outputs" / "study" / f"{task.name}-grades.sqlite"),
            )
            gc.freeze()  # the trainer collects garbage, slowly among all that is imported
        return self.loaded[task.name]

    def train(self, run: Run) -> DeltaGRPOTrainer:
        task = TASKS[run.task]
        model, tokenizer, train, _, reward = self.load(task)
        trainer = DeltaGRPOTrainer(
            model=copy.deepcopy(model),
            reward_funcs=reward,
            args=self.config(run, task),
            train_dataset=train,
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer

    def __call__(self, run: Run) -> dict:
        start = time.perf_counter()
        trainer = self.train(run)
        logged = trainer.state.log_history

        def curve(name):
            # what is undefined, as the variance between sides of a batch without contrast, is logged as None
            values = [entry[name] for entry in logged if name in entry]
            return [None if value is None else float(f"{value:.5g}") for value in values]

        row = {
            **dict(zip(("phase", "task", "variant", "learning_rate", "seed"), run.key, strict=True)),
            "reward": curve("reward"),
            "grad_norm": curve("grad_norm"),
            "entropy": curve("entropy"),
            "between_sides_variance": curve("credit/between_sides_variance"),
            "credit_seconds": round(sum(curve("credit/seconds")), 3),
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "trl": trl.__version__,
            },
        }
        if run.phase == "study":  # tuning does not look at the test problems
            row["accuracy_before"] = self.accuracy_before(run)
            row["accuracy_after"] = self.sampled_accuracy(run, trainer.model)
        row["seconds"] = round(time.perf_counter() - start, 2)
        return row

    def accuracy_before(self, run: Run) -> float:
        if (run.task, run.seed) not in self.before:
            self.before[run.task, run.seed] = self.sampled_accuracy(run, self.loaded[run.task][0])
        return self.before[run.task, run.seed]

    @torch.no_grad()
    def sampled_accuracy(self, run: Run, model) -> float:
        """Share of the test problems that a sample at temperature 1 solves. The seed is the run's."""
        _, tokenizer, _, problems, reward = self.loaded[run.task]
        set_seed(run.seed)
        model.eval()
        prompts = [problem["prompt"] for problem in problems]
        inputs = tokenizer(prompts, return_tensors="pt", padding=True)
        length = TASKS[run.task].max_completion_length
        ids = model.generate(**inputs, max_new_tokens=length, do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
        completions = tokenizer.batch_decode(ids[:, inputs.input_ids.size(1) :], skip_special_tokens=True)
        columns = {name: [problem[name] for problem in problems] for name in problems[0] if name != "prompt"}
        return statistics.fmean(reward(completions, prompts, **columns))

    def config(self, run: Run, task: Task) -> DeltaGRPOConfig:
        return DeltaGRPOConfig(
            output_dir=str(ROOT / "outputs" / "study" / "run"),
            seed=run.seed,
            learning_rate=run.learning_rate,
            lr_scheduler_type="constant",
            max_steps=self.rollouts[run.phase] * MINIBATCHES,
            per_device_train_batch_size=PROMPTS * GENERATIONS // MINIBATCHES,
            steps_per_generation=MINIBATCHES,
            num_generations=GENERATIONS,
            max_completion_length=task.max_completion_length,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **VARIANTS[run.variant],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="do what has no row yet")
    parser.add_argument("--report", action="store_true", help="write tables and pictures")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, help="for the tables: docs/study.md, or beside other --results")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    args = parser.parse_args()
    chosen = (args.tasks, args.variants)
    if args.run:
        torch.set_num_threads(1)
        runner, locks = Runner(), ROOT / "outputs" / "study" / "locks"

        def execute(run: Run) -> dict:
            row = runner(run)
            print(*run.key, row["reward"][-1], row.get("accuracy_after"), f"{row['seconds']} s", flush=True)
            return row

        work(tuning_runs(*chosen), args.results, execute, locks)
        for rates in (tuned_rates(read_rows(args.results), *chosen), common_rates(*chosen)):
            work(study_runs(rates, range(args.seeds)), args.results, execute, locks)
    if args.report:
        from study_report import write_report  # matplotlib and scipy, which runs do not need

        rows = read_rows(args.results)
        stem = args.results.with_suffix("")
        page = args.page or (PAGE if args.results == RESULTS else stem.with_suffix(".md"))
        write_report(rows, tuned_rates(rows, *chosen), common_rates(*chosen), stem, page)


if __name__ == "__main__":
    main()
