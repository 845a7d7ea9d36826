"""`delta-trl compare`: does a rule of token credit help on one's own recipe? Trains all arms, seed by seed."""

import argparse
import fcntl
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arguments.errors import UsageError, mistakes
from ..credit import make_rule
from ..evaluation.paired import IN_WORDS
from ..files import checkpoints, differences, in_words, is_complete, write_json
from ..report.outcomes import write_outcomes
from ..trainer.config import CreditArguments, DeltaGRPOConfig
from ..trainer.settings import as_json, without_secrets
from .recipe import parse_recipe


DESCRIPTION = """\
Does a rule of token credit help on this recipe? Trains with the rule, without token credit, with the same weight per
side, and with the rule's weights at random tokens; then compares them in pairs of the same seed.

All options of `delta-trl train` are options here, and hold for all arms. Called again, the command goes on.
"""
CONTROLS = ("side_mean", "shuffled")  # rules that change the weights of the rule
ATTEMPTS = 3  # of a run, each from its last checkpoint
PLAN = "plan.json"
FOR_ALL_RUNS = ["--resume_from_checkpoint", "true", "--push_to_hub", "false"]


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
        command (`list[str]`): Trains it.
    """

    seed: int
    arm: str
    folder: Path
    command: list[str]

    @property
    def is_finished(self) -> bool:
        return is_complete(self.folder)


def main(args: list[str]) -> None:
    """Compare, or go on. Raises `UsageError` for a user's mistake."""
    with mistakes():
        folder, plan, runs = read_call(args)
        refuse_another_plan(folder / PLAN, plan)
        if not (folder / PLAN).is_file():
            of_rule = next(run for run in runs if run.arm == plan["rule"])
            if code := subprocess.call([*of_rule.command, "--dry_run"]):
                sys.exit(code)  # it has said why
            write_json(plan, folder / PLAN)
    left_out = work(folder, plan, runs)
    seeds = finished_seeds(runs)
    if not seeds:
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
    given, options = parser.parse_known_args(args)
    recipe = parse_recipe(options, RecipeConfig)
    config = recipe[1]
    arms = arms_of(given.arms, config)
    seeds = list(range(config.seed, config.seed + given.seeds))
    if not seeds:
        raise UsageError(f"--seeds {given.seeds}: expected a positive number.")
    if config.logging_strategy == "no" or 0 < config.max_steps < config.logging_steps:
        raise UsageError(
            f"The recipe logs no reward: logging_strategy={config.logging_strategy!r}, logging_steps="
            f"{config.logging_steps:g}, max_steps={config.max_steps}. Log at least once in a run."
        )
    outcomes = ["training_reward", "training_reward_at_end"]
    if config.eval_strategy != "no":
        outcomes.insert(0, "eval_reward")
    settings = vars(given).copy()
    for part in recipe:
        settings |= vars(part)
    del settings["output_dir"]
    plan = {
        "arms": arms,
        "rule": rule_of(arms),
        "seeds": seeds,
        "outcomes": outcomes,
        "primary": outcomes[0],
        "settings": as_json(without_secrets(settings)),
    }
    folder = Path(config.output_dir or "trainer_output")
    launcher = shlex.split(given.launcher) or [sys.executable]
    train = [*launcher, "-m", "delta_trl", "train", *options, *FOR_ALL_RUNS]
    runs = []
    for seed in seeds:  # the arms of a seed before the next seed, so that whatever is finished is paired
        for arm, kwargs in arms.items():
            own = folder / f"seed-{seed}" / arm
            rule = ["--token_credit", arm, "--token_credit_kwargs", json.dumps(kwargs)]  # JSON is YAML
            command = [*train, *rule, "--seed", str(seed), "--output_dir", str(own)]
            runs.append(SeedRun(seed, arm, own, command))
    return folder, plan, runs


def rule_of(arms: Iterable[str]) -> str | None:
    """The arm that all others are compared with, and that the controls change: the first that is neither."""
    return next((arm for arm in arms if arm not in IN_WORDS), None)


def arms_of(words: Sequence[str] | None, recipe: CreditArguments) -> dict[str, dict[str, Any]]:
    """
    The arms: for each `token_credit`, its `token_credit_kwargs`.

    Args:
        words (`Sequence[str]`, *optional*):
            A word for each arm, as in `delta:lambda_max=1.5`. Defaults to `none`, the recipe's rule, `side_mean` and
            `shuffled`.
        recipe ([`CreditArguments`]): Its rule has the recipe's options.

    Raises:
        ValueError: If there is no such rule, or nothing to compare.
    """
    words = words or ["none", recipe.token_credit, *CONTROLS]
    rule = rule_of(words)
    if rule is None or len(set(words)) < 2:
        raise UsageError(
            f"The arms {', '.join(words)} have nothing to compare. Give a rule such as delta, and another arm such as "
            "none."
        )
    options = {recipe.token_credit: recipe.token_credit_kwargs}
    changed = {"rule": rule, "rule_kwargs": options.get(rule, {})}
    options |= dict.fromkeys(CONTROLS, changed)
    arms = {word: options.get(word, {}) for word in words}
    for word, own in arms.items():
        make_rule(word, own)  # raises if there is no such rule
    return arms


def refuse_another_plan(path: Path, plan: dict[str, Any]) -> None:
    """Raise `UsageError` if the folder of plan.json holds another plan, or something else."""
    if path.is_file():
        held = in_words(differences(json.loads(path.read_text()), plan))
        problem = f"a comparison with another plan: {held}. Call it with the same options"
    else:
        held = ", ".join(sorted(one.name for one in path.parent.glob("*"))[:3])
        problem = f"something else ({held}). Move it away"
    if held:
        raise UsageError(f"output_dir={str(path.parent)!r} holds {problem}, or choose another folder.")


def finished_seeds(runs: list[SeedRun]) -> list[int]:
    """The seeds of which all arms are finished."""
    seeds = {run.seed for run in runs}
    unfinished = {run.seed for run in runs if not run.is_finished}
    return sorted(seeds - unfinished)


def work(folder: Path, plan: dict[str, Any], runs: list[SeedRun]) -> dict[int, str]:
    """Do the runs that are not finished. Returns the seeds that are left out, with the reason."""
    todo = [run for run in runs if not run.is_finished]
    print(f"{len(plan['arms'])} arms * {len(plan['seeds'])} seeds = {len(runs)} runs, {len(todo)} to do.")
    print(f"Primary outcome: {plan['primary']}.")
    left_out: dict[int, str] = {}
    for i, run in enumerate(todo, start=1):
        if run.seed in left_out:
            continue
        print(f"{i}/{len(todo)} {run.folder}", flush=True)
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
        with path.open("a") as log:
            # A run holds this lock, too. If this command is killed, the run still trains; the next call waits for it.
            fcntl.flock(log, fcntl.LOCK_EX)
            if not any(map(is_complete, [run.folder, *checkpoints(run.folder).values()])):
                shutil.rmtree(run.folder, ignore_errors=True)  # training would not write over what a killed run left
            if not run.is_finished:  # perhaps it has become so while this command waited
                subprocess.call(run.command, stdout=log, stderr=log)
        if run.is_finished:
            return True
        print(f"  failed, attempt {attempt} of {ATTEMPTS}: {path}", flush=True)
    return False
