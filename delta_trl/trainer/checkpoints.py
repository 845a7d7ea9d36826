"""Checkpoints that count only when complete, and runs that resume from them exactly, for any `GRPOTrainer`."""

import json
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

from accelerate.logging import get_logger
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from ..arguments.options import is_given, is_true
from ..files import (
    ENTROPY_STATE,
    LAST_FILE,
    SETTINGS,
    begin_checkpoint,
    checkpoints,
    is_complete,
    write_json,
)
from .rollouts import optimiser_steps_per_rollout, warn_of_checkpoints_inside_a_rollout
from .settings import as_json, changes, check_settings, settings_of


logger = get_logger(__name__)


class CheckpointPart(Protocol):
    """State that a checkpoint must hold. Every process calls both methods."""

    def save(self, folder: Path) -> None:
        """Write the state into a checkpoint's folder."""

    def load(self, folder: Path) -> None:
        """Restore the state from a checkpoint's folder; start anew if it does not hold this state."""


class SafeCheckpoints(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that resumes from complete checkpoints only.

    A checkpoint counts as complete once its last file is there, which is written after every process has written its
    part. A run records its settings in `training_settings.json`, in its folder and in its checkpoints, and resumes
    from a checkpoint only with the settings that this was saved with.

    Attributes:
        checkpoint_parts (`list[CheckpointPart]`): State beyond `GRPOTrainer`'s own; subclasses add to it.
        harmless_options (`frozenset[str]`): Options of a subclass that may change when a run goes on.
        dataset_name (`str`, *optional*): Hub id or path, for the record of settings.
        recipe (`dict`, *optional*): Options that a recipe sets beside `args`, for the record of settings.
    """

    harmless_options: frozenset[str] = frozenset()
    dataset_name: str | None = None
    recipe: dict | None = None
    _settings: dict | None = None  # with which training began

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.checkpoint_parts: list[CheckpointPart] = []
        for warning in warn_of_checkpoints_inside_a_rollout(self.args):
            logger.warning(warning)

    def settings(self) -> dict[str, Any]:
        """The settings to record, as in [`settings.settings_of`]. A subclass may add its own."""
        return settings_of(self)

    def changed_settings(self, before: dict, now: dict) -> dict[str, tuple[Any, Any]]:
        """The settings that differ between two records and matter to a run: by dotted name, what was and what is."""
        return changes(before, now)

    def train(self, resume_from_checkpoint=None, *args, **kwargs):
        every = optimiser_steps_per_rollout(self.args)
        checkpoint = resolve_resume(resume_from_checkpoint, self.args.output_dir, every)
        if checkpoint is None and is_true(resume_from_checkpoint):
            raise ValueError(f"resume_from_checkpoint=True: no complete checkpoint under {self.args.output_dir!r}.")
        done = json.loads((checkpoint / LAST_FILE).read_text())["global_step"] if checkpoint else None
        if checkpoint and self.args.sync_ref_model:
            logger.warning(
                "sync_ref_model=True: the reference model, which has moved, is in no checkpoint. It starts again from "
                "the base model, and the run will differ from an uninterrupted one."
            )
        if self.is_world_process_zero():
            self._settings = as_json(self.settings())
            if checkpoint is not None:
                check_settings(self, checkpoint, self._settings)
            write_json(self._settings, Path(self.args.output_dir, SETTINGS))
        output = super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)
        if output.global_step == done:
            logger.warning(
                f"Nothing was left to train: {checkpoint} has all {done} optimiser steps. Raise max_steps (or "
                "num_train_epochs) to go on."
            )
        return output

    def _run_epoch(self, *args, epoch, train_dataloader, epochs_trained, **kwargs):
        if self.state.global_step >= self.state.max_steps:
            # transformers checks after each step, and would take one step too many
            self.control.should_training_stop = True
            return
        if epoch == epochs_trained:
            # TRL's sampler draws a new order for each epoch, and starts anew in a resumed run
            sampler = _sampler_of(train_dataloader)
            for _ in range(epochs_trained):
                next(iter(sampler), None)
        kwargs |= {"epoch": epoch, "train_dataloader": train_dataloader, "epochs_trained": epochs_trained}
        super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model, trial):
        # before the rest: a checkpoint counts as complete once its last file, trainer_state.json, is written
        folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self.args.should_save:
            begin_checkpoint(folder)
        if self.is_world_process_zero():  # those of the start: callbacks may have changed some since
            write_json(self._settings or as_json(self.settings()), folder / SETTINGS)
        self.accelerator.wait_for_everyone()
        for part in self.checkpoint_parts:
            part.save(folder)
        if self.use_adaptive_entropy and self.args.should_save:  # TRL writes it after the last file
            entropy = {"entropy_coef": self.entropy_coef, "last_world_entropy": self._last_world_entropy}
            write_json(entropy, folder / ENTROPY_STATE)
        super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir):
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()  # otherwise the last file could be written before another rank's state

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            for part in self.checkpoint_parts:
                part.load(Path(checkpoint))


def _sampler_of(dataloader) -> Iterable[int]:
    """The sampler that orders a data loader's rows, within what accelerate has put around it; empty for a stream."""
    found = dataloader.batch_sampler
    while found is not None and not isinstance(found, RepeatSampler):
        found = getattr(found, "batch_sampler", None) or getattr(found, "sampler", None)
    return found or ()


def last_complete_checkpoint(output_dir: str | Path, every: Fraction | int = 1) -> Path | None:
    """
    The newest complete checkpoint under `output_dir`, or `None`. Prefers one saved between rollout batches, at a
    multiple of `every` optimiser steps: after any other, the rest of a rollout batch is dropped.
    """
    complete = {step: path for step, path in checkpoints(Path(output_dir)).items() if is_complete(path)}
    if not complete:
        return None
    newest = max(complete)
    between = max((step for step in complete if not step % every), default=None)
    if between is None:
        logger.warning(
            f"checkpoint-{newest} was saved inside a rollout batch of {float(every):g} optimiser steps, the rest of "
            "which is dropped: the run will differ from an uninterrupted one."
        )
    elif between < newest:
        logger.warning(
            f"Going on from checkpoint-{between}: checkpoint-{newest} was saved inside a rollout batch of "
            f"{float(every):g} optimiser steps, the rest of which would be dropped. Name it to go on from there "
            "all the same."
        )
    return complete[newest if between is None else between]


def resolve_resume(value: bool | str | None, output_dir: str | Path, every: Fraction | int = 1) -> Path | None:
    """
    The checkpoint that `resume_from_checkpoint` means: for `True`, the last complete one under `output_dir` (`None` if
    there is none yet); for a path, that checkpoint; for `None` or `False`, none. `every` as in
    `last_complete_checkpoint`.

    Raises:
        ValueError: If a named checkpoint is missing or incomplete.
    """
    if not is_given(value):
        return None
    path = last_complete_checkpoint(output_dir, every) if is_true(value) else Path(str(value))
    if path is None:
        return None
    if not is_complete(path):
        raise ValueError(
            f"resume_from_checkpoint={str(value)!r}: not a complete checkpoint (no whole trainer_state.json in it). "
            f"Use `true` for the last complete one under {str(output_dir)!r}."
        )
    if not any(path.glob("rng_state*")):
        logger.warning(
            f"{path} holds the model alone (save_only_model): the optimizer, its schedule and the random numbers "
            "start anew, and the run will differ from an uninterrupted one."
        )
    return path
