"""`delta-trl compare`: does a rule of token credit help on one's own recipe? Trains all arms, seed by seed."""

import fcntl
import hashlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm
from transformers import HfArgumentParser

from ..arguments.credit import CreditArguments
from ..arguments.differences import differences, in_words
from ..arguments.errors import UsageError, mistakes
from ..arguments.parser import parse
from ..arguments.values import check_options
from ..evaluation.arguments import EvalArguments
from ..evaluation.benchmarks import resolve
from ..evaluation.evaluate import NO_ADAPTER_IN_VLLM, read_benchmarks
from ..files import STATE, last_whole_checkpoint, read_json, write_json
from ..report.compare_page import BEFORE, BENCHMARKS, OUTCOMES, write_outcomes
from ..trainer.config import DeltaGRPOConfig
from ..trainer.settings import as_json, without_secrets
from .arguments import CompareArguments
from .arms import arms_of
from .recipe import parse_recipe


ATTEMPTS = 3  # of a run, each from its last checkpoint
PLAN = "plan.json"
FOR_ALL_RUNS = ["--resume_from_checkpoint", "true", "--push_to_hub", "false"]
# Options of `delta-trl eval`. The command gives the first four; `eval_dataset_format` and `eval_column_mapping` are
# options of training, and hold for benchmarks, too
OF_RUN = {"model_name_or_path", "adapter_name_or_path", "output_dir", "benchmarks"}
NO_OPTIONS = {*OF_RUN, "dataset_format", "column_mapping"}
OF_EVAL = [field for field in fields(EvalArguments) if field.name not in NO_OPTIONS]
OF_DATA = ("eval_dataset_format", "eval_column_mapping")
# What may change in a folder: trained arms stay, and are evaluated again
MAY_CHANGE = ("evaluation", "outcomes", "primary")


class RecipeConfig(DeltaGRPOConfig):
    """The options as a recipe has them. The dry run checks what depends on devices and processes."""

    def __post_init__(self):
        CreditArguments.__post_init__(self)


@dataclass(frozen=True)
class SeedRun:
    """
    The run of an arm with a seed.

    Attributes:
        seed (`int`), arm (`str`), folder (`Path`): Which it is, and its output_dir.
        train (`list[str]`): The command that trains it.
        evaluate (`list[str]`): The command that evaluates the trained model on the benchmarks.
        results (`list[Path]`): What that writes; empty without benchmarks.
    """

    seed: int
    arm: str
    folder: Path
    train: list[str]
    evaluate: list[str]
    results: list[Path]

    @property
    def is_trained(self) -> bool:
        return bool(read_json(self.folder / STATE))

    @property
    def is_finished(self) -> bool:
        return self.is_trained and all(path.is_file() for path in self.results)


def main(args: list[str]) -> None:
    """Compare, or go on. Raises `UsageError` for a user's mistake."""
    with mistakes():
        folder, plan, runs, before = read_call(args)
        begin(folder, plan, runs)
    evaluate_before(folder, plan, before)
    left_out = work(folder, plan, runs)
    if not (seeds := finished_seeds(runs)):
        sys.exit(f"Nothing can be compared. {' '.join(left_out.values())}")
    print(write_outcomes(folder, plan, seeds, left_out))
    print(f"The page with curves, differences by seed and a report of each run: {folder / 'compare.html'}")


def read_call(args: list[str]) -> tuple[Path, dict[str, Any], list[SeedRun], list[str]]:
    """
    What a command line asks for: the folder, the content of plan.json, the runs, and the command that evaluates the
    model before training. Raises `ValueError`, `OSError` or `ImportError` for what does not fit.
    """
    parser = HfArgumentParser(CompareArguments, prog="delta-trl compare", allow_abbrev=False, add_help=False)
    for option in OF_EVAL:
        is_flag = option.type is bool
        parser.add_argument(f"--eval_{option.name}", **({"nargs": "?", "const": "true"} if is_flag else {}))
    comparison, of_eval, options = parser.parse_args_into_dataclasses(args, return_remaining_strings=True)
    recipe = parse_recipe(options, RecipeConfig)
    run_args, config, model = recipe
    for name in OF_DATA:
        if value := getattr(run_args, name):
            setattr(of_eval, name, value if isinstance(value, str) else json.dumps(value))  # JSON is YAML
    launcher = shlex.split(comparison.launcher) or [sys.executable]
    check_options(comparison)
    refuse_call(launcher[0], config)
    leaves_adapter = model.use_peft or bool(run_args.adapter_name_or_path)
    start = ["--model_name_or_path", str(model.model_name_or_path)]
    if run_args.adapter_name_or_path:
        start += ["--adapter_name_or_path", run_args.adapter_name_or_path]
    if model.model_revision:
        start += ["--model_revision", model.model_revision]
    evaluate, evaluation = evaluation_command(comparison.benchmarks, of_eval, config.use_cpu, start, leaves_adapter)
    benchmarks = resolve(comparison.benchmarks)
    rule, arms = arms_of(comparison.arms, config)
    outcomes = [*OUTCOMES]
    if not comparison.benchmarks:
        outcomes.remove("accuracy")
    if config.eval_strategy == "no":
        outcomes.remove("eval_reward")
    settings: dict[str, Any] = {}
    for part in (comparison, *recipe):
        settings |= vars(part)
    of_evaluation = OF_DATA if config.eval_strategy == "no" else ()
    for name in ("output_dir", "benchmarks", *of_evaluation):
        del settings[name]
    seeds = list(range(config.seed, config.seed + comparison.seeds))
    plan = {
        "arms": arms,
        "rule": rule,
        "seeds": seeds,
        "outcomes": outcomes,
        "primary": outcomes[0],
        "settings": as_json(without_secrets(settings)),
        "evaluation": {"benchmarks": list(benchmarks), **evaluation},
    }
    folder = Path(config.output_dir or "trainer_output")
    train = [*launcher, "-m", "delta_trl", "train", *options, *FOR_ALL_RUNS]
    runs = []
    for seed in seeds:  # the arms of a seed before the next seed, so that whatever is finished is paired
        for arm, kwargs in arms.items():
            run_folder = folder / f"seed-{seed}" / arm
            credit = ["--token_credit", arm, "--token_credit_kwargs", json.dumps(kwargs)]  # JSON is YAML
            results = run_folder / BENCHMARKS / evaluation["folder"]
            runs.append(
                SeedRun(
                    seed,
                    arm,
                    run_folder,
                    train=[*train, *credit, "--seed", str(seed), "--output_dir", str(run_folder)],
                    evaluate=[*evaluate, "--model_name_or_path", str(run_folder), "--output_dir", str(results)],
                    results=[results / f"{name}.json" for name in benchmarks],
                )
            )
    results = folder / BEFORE / evaluation["folder"]
    before = [*evaluate, *start, "--output_dir", str(results)]
    return folder, plan, runs, before


def evaluation_command(
    benchmarks: list[str], options: Namespace, use_cpu: bool, start: list[str], leaves_adapter: bool
) -> tuple[list[str], dict[str, Any]]:
    """
    The command that evaluates any of the models; and its options, with the folder in which its results are kept apart
    from those of other options. Raises `ValueError` for what it would refuse of the model that all runs begin with.
    """
    eval_options = {name.removeprefix("eval_"): value for name, value in vars(options).items() if value is not None}
    words = ["--benchmarks", *benchmarks]
    for name, value in {"use_cpu": str(use_cpu), **eval_options}.items():
        words += [f"--{name}", value]
    folder = hashlib.sha256(json.dumps(eval_options, sort_keys=True).encode()).hexdigest()[:8]
    if benchmarks:
        [args] = parse([EvalArguments], [*words, *start, "--output_dir", ""], "delta-trl eval")
        if args.use_vllm and leaves_adapter:
            raise UsageError(f"--eval_use_vllm: {NO_ADAPTER_IN_VLLM} Each run of this recipe leaves an adapter.")
        read_benchmarks(args)
    return [sys.executable, "-m", "delta_trl", "eval", *words], {"options": eval_options, "folder": folder}


def refuse_call(program: str, config: RecipeConfig) -> None:
    """Raise `UsageError` if nothing can be run, or its runs would have nothing to compare."""
    problem = None
    if not shutil.which(program):
        problem = f"--launcher: there is no program {program!r}. Install it, or give its path."
    elif config.logging_strategy == "no" or 0 < config.max_steps < config.logging_steps:
        problem = (
            f"The recipe logs no reward: logging_strategy={config.logging_strategy!r}, logging_steps="
            f"{config.logging_steps:g}, max_steps={config.max_steps}. Log at least once in a run."
        )
    if problem:
        raise UsageError(problem)


def begin(folder: Path, plan: dict[str, Any], runs: list[SeedRun]) -> None:
    """
    Write plan.json, at first after a dry run. Raises `UsageError` if the folder holds another plan, or something else.
    """
    path = folder / PLAN
    is_new = not path.is_file()
    if is_new:
        held = ", ".join(path.name for path in folder.glob("*"))
    else:
        changed = differences(json.loads(path.read_text()), plan)
        held = in_words({name: both for name, both in changed.items() if not name.startswith(MAY_CHANGE)})
    if held:
        raise UsageError(
            f"output_dir={str(folder)!r} holds something else than this comparison: {held}. Choose another folder."
        )
    if is_new:
        of_rule = next(run for run in runs if run.arm == plan["rule"])
        if code := call([*of_rule.train, "--dry_run"]):
            sys.exit(code)  # it has said why
    write_json(plan, path)


def evaluate_before(folder: Path, plan: dict[str, Any], command: list[str]) -> None:
    """Evaluate the model that all runs begin with, once. Says nothing of a failure: after a run it comes again."""
    evaluation = plan["evaluation"]
    results = folder / BEFORE / evaluation["folder"]
    if not all((results / f"{name}.json").is_file() for name in evaluation["benchmarks"]):
        path = folder / f"{BEFORE}.log"
        print(f"Evaluating the model before training. The log: {path}", flush=True)
        with path.open("a") as log:
            subprocess.call(command, stdout=log, stderr=log)


def finished_seeds(runs: list[SeedRun]) -> list[int]:
    """The seeds of which all arms are finished."""
    unfinished = {run.seed for run in runs if not run.is_finished}
    return sorted({run.seed for run in runs} - unfinished)


def work(folder: Path, plan: dict[str, Any], runs: list[SeedRun]) -> dict[int, str]:
    """Do the runs that are not finished. Returns the seeds that are left out, with the reason."""
    todo = [run for run in runs if not run.is_finished]
    print(f"{len(plan['arms'])} arms * {len(plan['seeds'])} seeds = {len(runs)} runs, {len(todo)} to do.")
    print(f"Primary outcome: {plan['primary']}.", flush=True)
    left_out: dict[int, str] = {}
    for run in tqdm(todo, unit="run"):
        if run.seed in left_out:
            continue
        if not execute(run):
            left_out[run.seed] = f"Seed {run.seed} is left out: {run.arm} failed {ATTEMPTS} times."
            continue
        seeds = finished_seeds(runs)
        if run.seed in seeds:  # only a whole seed changes what can be said
            write_outcomes(folder, plan, seeds, left_out)
    return left_out


def execute(run: SeedRun) -> bool:
    """Do what is left of a run, from its last checkpoint; if it fails, try again. Returns whether it is finished."""
    path = run.folder.with_name(f"{run.arm}.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        tqdm.write(f"{run.folder}, attempt {attempt} of {ATTEMPTS}. Its log: {path}")
        with path.open("a") as log:
            # A run holds this lock, too. If this command is killed, the run still trains; the next call waits for it.
            fcntl.flock(log, fcntl.LOCK_EX)
            if not run.is_trained:
                if not last_whole_checkpoint(run.folder):
                    # training would not write over what a killed run left
                    shutil.rmtree(run.folder, ignore_errors=True)
                call(run.train, stdout=log, stderr=log)
            if run.results and run.is_trained:
                call(run.evaluate, stdout=log, stderr=log)
        if run.is_finished:
            return True
    return False


def call(command: list[str], **output: Any) -> int:
    """The exit code of a command. If this process is told to end, so is the command, and all that it has started."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with subprocess.Popen(command, **output) as process:
            try:
                return process.wait()
            except BaseException:  # SIGTERM, or Ctrl-C
                end_family(process.pid)
                raise
    finally:
        signal.signal(signal.SIGTERM, before)


def end_family(pid: int) -> None:
    """Tell a process and its descendants to end: a launcher may end without its ranks."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            if process.is_running():
                process.terminate()
