"""`delta-trl compare`: does a rule of token credit help on one's own recipe? Trains all arms, seed by seed."""

import argparse
import fcntl
import json
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..arguments.errors import UsageError, mistakes
from ..arguments.parser import parse
from ..evaluation.arguments import EvalArguments
from ..evaluation.benchmarks import resolve
from ..files import checkpoints, differences, in_words, is_complete, write_json
from ..report.outcomes import BENCHMARKS, OUTCOMES, write_outcomes
from ..trainer.config import CreditArguments, DeltaGRPOConfig
from ..trainer.settings import as_json, without_secrets
from .arms import arms_of, rule_of
from .recipe import parse_recipe


DESCRIPTION = """\
Does a rule of token credit help on this recipe? Trains with the rule, without token credit, with the same weight per
side, and with the rule's weights at random tokens; then compares them in pairs of the same seed.

All options of `delta-trl train` are options here, and hold for all arms. Called again, the command goes on.
"""
ATTEMPTS = 3  # of a run, each from its last checkpoint
PLAN = "plan.json"
FOR_ALL_RUNS = ["--resume_from_checkpoint", "true", "--push_to_hub", "false"]
OF_MODEL = {"model_name_or_path", "benchmarks", "output_dir"}
OF_TRAINING = {"dataset_format"}  # with `eval_` before it, an option of training
OF_EVAL = sorted({field.name for field in fields(EvalArguments)} - OF_MODEL - OF_TRAINING)


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
    def is_finished(self) -> bool:
        return is_complete(self.folder) and all(path.is_file() for path in self.results)


def main(args: list[str]) -> None:
    """Compare, or go on. Raises `UsageError` for a user's mistake."""
    with mistakes():
        folder, plan, runs = read_call(args)
        refuse_another_plan(folder / PLAN, plan)
        if not (folder / PLAN).is_file():
            of_rule = next(run for run in runs if run.arm == plan["rule"])
            if code := subprocess.call([*of_rule.train, "--dry_run"]):
                sys.exit(code)  # it has said why
            write_json(plan, folder / PLAN)
    left_out = work(folder, plan, runs)
    if not (seeds := finished_seeds(runs)):
        sys.exit(f"Nothing can be compared. {' '.join(left_out.values())}")
    print(write_outcomes(folder, plan, seeds, left_out))
    print(f"The page with the curves: {folder / 'compare.html'}")


def read_call(args: list[str]) -> tuple[Path, dict[str, Any], list[SeedRun]]:
    """
    The folder, the content of plan.json and the runs that a command line asks for. Raises `ValueError`, `OSError` or
    `ImportError` for what does not fit.
    """
    parser = argparse.ArgumentParser(
        "delta-trl compare",
        usage="delta-trl compare --config RECIPE.yaml [--option value ...]",
        description=DESCRIPTION,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--arms", nargs="+", metavar="RULE", help="in place of the four: none delta:lambda_max=1.5")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="number of seeds, from the recipe's on (3)")
    parser.add_argument("--launcher", default="", metavar="WORDS", help='as in "accelerate launch --config_file FILE"')
    parser.add_argument("--benchmarks", nargs="+", default=[], help="what `delta-trl eval` samples after each run")
    for name in OF_EVAL:
        parser.add_argument(f"--eval_{name}", help=f"`--{name}` of `delta-trl eval`")
    given, options = parser.parse_known_args(args)
    recipe = parse_recipe(options, RecipeConfig)
    config = recipe[1]
    launcher = shlex.split(given.launcher) or [sys.executable]
    refuse_call(given.seeds, launcher[0], config)
    has = {"accuracy": bool(given.benchmarks), "eval_reward": config.eval_strategy != "no"}
    outcomes = [name for name in OUTCOMES if has.get(name, True)]
    settings = {name: value for part in (given, *recipe) for name, value in vars(part).items() if name != "output_dir"}
    arms = arms_of(given.arms, config)
    plan = {
        "arms": arms,
        "rule": rule_of(arms),
        "seeds": list(range(config.seed, config.seed + given.seeds)),
        "outcomes": outcomes,
        "primary": outcomes[0],
        "settings": as_json(without_secrets(settings)),
    }
    folder = Path(config.output_dir or "trainer_output")
    train = [*launcher, "-m", "delta_trl", "train", *options, *FOR_ALL_RUNS]
    evaluate = evaluation_command(given, config.use_cpu)
    runs = []
    for seed in plan["seeds"]:  # the arms of a seed before the next seed, so that whatever is finished is paired
        for arm, kwargs in arms.items():
            own = folder / f"seed-{seed}" / arm
            rule = ["--token_credit", arm, "--token_credit_kwargs", json.dumps(kwargs)]  # JSON is YAML
            results = own / BENCHMARKS
            runs.append(
                SeedRun(
                    seed,
                    arm,
                    own,
                    train=[*train, *rule, "--seed", str(seed), "--output_dir", str(own)],
                    evaluate=[*evaluate, "--model_name_or_path", str(own), "--output_dir", str(results)],
                    results=[results / f"{name}.json" for name in resolve(given.benchmarks)],
                )
            )
    return folder, plan, runs


def evaluation_command(given: argparse.Namespace, use_cpu: bool) -> list[str]:
    """The command that evaluates any of the models. Raises `ValueError` for what it would refuse."""
    words = ["--benchmarks", *given.benchmarks, "--use_cpu", str(use_cpu)]
    for name in OF_EVAL:
        if value := getattr(given, f"eval_{name}"):
            words += [f"--{name}", value]
    if given.benchmarks:
        parse([EvalArguments], [*words, "--model_name_or_path", "", "--output_dir", ""], prog="delta-trl eval")
    return [sys.executable, "-m", "delta_trl", "eval", *words]


def refuse_call(seeds: int, program: str, config: RecipeConfig) -> None:
    """Raise `UsageError` if nothing can be run, or its runs would have nothing to compare."""
    problem = None
    if seeds < 1:
        problem = f"--seeds {seeds}: expected a positive number."
    elif not shutil.which(program):
        problem = f"--launcher: there is no program {program!r}. Install it, or give its path."
    elif config.logging_strategy == "no" or 0 < config.max_steps < config.logging_steps:
        problem = (
            f"The recipe logs no reward: logging_strategy={config.logging_strategy!r}, logging_steps="
            f"{config.logging_steps:g}, max_steps={config.max_steps}. Log at least once in a run."
        )
    if problem:
        raise UsageError(problem)


def refuse_another_plan(path: Path, plan: dict[str, Any]) -> None:
    """Raise `UsageError` if the folder of plan.json holds another plan, or something else."""
    if path.is_file():
        held = in_words(differences(json.loads(path.read_text()), plan))
        problem = f"a comparison with another plan: {held}. Call it with the same options"
    else:
        names = sorted(one.name for one in path.parent.glob("*"))
        held = ", ".join(names[:3])
        problem = f"something else ({held}). Move it away"
    if held:
        raise UsageError(f"output_dir={str(path.parent)!r} holds {problem}, or choose another folder.")


def finished_seeds(runs: list[SeedRun]) -> list[int]:
    """The seeds of which all arms are finished."""
    unfinished = {run.seed for run in runs if not run.is_finished}
    return sorted({run.seed for run in runs} - unfinished)


def work(folder: Path, plan: dict[str, Any], runs: list[SeedRun]) -> dict[int, str]:
    """Do the runs that are not finished. Returns the seeds that are left out, with the reason."""
    todo = [run for run in runs if not run.is_finished]
    total = len(todo)
    print(f"{len(plan['arms'])} arms * {len(plan['seeds'])} seeds = {len(runs)} runs, {total} to do.", flush=True)
    print(f"Primary outcome: {plan['primary']}.", flush=True)
    left_out: dict[int, str] = {}
    start = time.monotonic()
    for i, run in enumerate(todo, start=1):
        if run.seed in left_out:
            continue
        print(f"{i}/{total} {run.folder}", flush=True)
        if not execute(run):
            left_out[run.seed] = f"Seed {run.seed} is left out: {run.arm} failed {ATTEMPTS} times."
            continue
        more = total - i
        remaining = (time.monotonic() - start) / i * more
        print(f"  finished; {more} more will take about {timedelta(seconds=round(remaining))}", flush=True)
        seeds = finished_seeds(runs)
        if run.seed in seeds:  # only a whole seed changes what can be said
            write_outcomes(folder, plan, seeds, left_out)
    return left_out


def execute(run: SeedRun) -> bool:
    """Do what is left of a run, from its last checkpoint; if it fails, try again. Returns whether it is finished."""
    path = run.folder.with_name(f"{run.arm}.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        with path.open("a") as log:
            # A run holds this lock, too. If this command is killed, the run still trains; the next call waits for it.
            fcntl.flock(log, fcntl.LOCK_EX)
            if not any(map(is_complete, [run.folder, *checkpoints(run.folder).values()])):
                shutil.rmtree(run.folder, ignore_errors=True)  # training would not write over what a killed run left
            is_trained = is_complete(run.folder) or subprocess.call(run.train, stdout=log, stderr=log) == 0
            if is_trained and run.results:
                subprocess.call(run.evaluate, stdout=log, stderr=log)
        if run.is_finished:
            return True
        print(f"  failed, attempt {attempt} of {ATTEMPTS}: {path}", flush=True)
    return False
