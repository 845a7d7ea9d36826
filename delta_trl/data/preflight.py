"""
The preflight: what is checked of the data, the rewards and the model before anything expensive. `delta-trl train`, its
dry run, `compare` and `eval` call it for each data set that they will read, and so does the trainer. Commands refuse,
the trainer warns.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from datasets import Dataset

from ..rewards.reasoning import told_of_reasoning
from ..scoring.checks import Reader, check_prompts
from .columns import check_columns, check_golds, check_prompt_column, prompts_of
from .loading import drop_long_prompts, drop_rows_without_gold


logger = logging.getLogger(__name__)

Check = tuple  # a function that returns warnings or raises `ValueError`, and its arguments


@dataclass
class Checked:
    """
    What the preflight returns.

    Attributes:
        dataset (`Dataset`): The rows that a run reads.
        rewards (`list[Callable]`): The rewards, told what they do not see.
        warnings (`list[str]`): What the checks say.
        left_out (`int`): How many rows cannot be graded, or are too long.
    """

    dataset: Dataset
    rewards: list[Callable]
    warnings: list[str]
    left_out: int = 0


def preflight(
    dataset: Dataset,
    title: str,
    rewards: Sequence[Callable],
    names: list[str],
    reader: Reader | None,
    *,
    refuses: bool,
    grades: bool = True,
    max_prompt_length: int | None = None,
    num_rows: int | None = None,
) -> Checked:
    """
    Check a data set that a run will read.

    Args:
        dataset (`Dataset`): With the column `prompt`, and what rewards read.
        title (`str`): What it is called in messages.
        rewards (`Sequence[Callable]`), names (`list[str]`): The reward functions, and what they are called.
        reader ([`~scoring.checks.Reader`], *optional*): The model; `None` if it is not on this machine.
        refuses (`bool`):
            Whether mistakes raise, and rows that cannot be graded or are too long are left out. Else both only warn.
        grades (`bool`, *optional*, defaults to `True`): Try the golds. It takes time: one process is enough.
        max_prompt_length (`int`, *optional*): Tokens beyond which a prompt is left out.
        num_rows (`int`, *optional*): Take a fixed random sample of so many rows that are left.

    Raises:
        ValueError: For a mistake, if it `refuses`.
    """
    checks: list[Check] = [(check_columns, dataset, rewards, names, title)]
    if not refuses:  # commands have checked prompts before they formatted them
        checks.insert(0, (check_prompt_column, dataset, title))
    warnings = run_checks(checks, refuses)
    total = len(dataset)
    if refuses:
        dataset = drop_rows_without_gold(dataset, rewards, title)
        if reader and max_prompt_length is not None:
            dataset = drop_long_prompts(dataset, reader.tokenizer, max_prompt_length, title, reader.template)
    left_out = total - len(dataset)
    if num_rows and num_rows < len(dataset):
        dataset = dataset.select(sorted(random.Random(0).sample(range(len(dataset)), num_rows)))
    checks = []
    if grades:
        checks.append((check_golds, dataset, rewards, title))
    prompts = prompts_of(dataset)
    told = list(rewards)
    if reader and prompts:
        checks.append((check_prompts, prompts, reader, title))
    warnings += run_checks(checks, refuses)
    if reader and prompts:
        told = told_of_reasoning(rewards, prompts[0], reader.processor, reader.template)
    return Checked(dataset, told, warnings, left_out)


def run_checks(checks: Iterable[Check], refuses: bool) -> list[str]:
    """
    The warnings of checks. What a check raises is raised if it `refuses`, and else a warning, too; a check that fails
    is then skipped.
    """
    warnings: list[str] = []
    for check, *arguments in checks:
        try:
            warnings += check(*arguments) or ()
        except Exception as error:
            if refuses:
                raise
            if isinstance(error, ValueError):
                warnings.append(str(error))
            else:
                logger.debug(f"{check.__name__} failed: {error!r}")
    return warnings
