"""Checkpoints that count only when complete, and runs that resume from them exactly, for any `GRPOTrainer`."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from ..arguments.errors import UsageError
from ..files import ENTROPY_STATE, SETTINGS, begin_checkpoint, checkpoints, is_complete, write_json
from .main_process import from_main_process
from .settings import as_json, recorded_settings, settings_of, sharding_of, warn_of_changes


class CheckpointPart(Protocol):
    """What has a state of its own in a checkpoint: tensors and plain values. Every process calls both methods."""

    def state_dict(self) -> dict[str, Any]:
        """The state to save."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state, or start anew if it is empty. Called whenever training starts."""


class SafeCheckpoints(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that resumes from complete checkpoints only.

    A checkpoint counts as complete once its last file is there, which is written after every process has written its
    part. The main process chooses the checkpoint from which all processes resume. A run records its settings in
    `training_settings.json`, in its folder and in its checkpoints. A run that resumes with other settings than those
    of its checkpoint names them in a warning.

    Attributes:
        checkpoint_parts (`list[CheckpointPart]`):
            State beyond `GRPOTrainer`'s own. Subclasses add to it. In a checkpoint, each has a file with its class's
            name.
        dataset_name (`str`, *optional*): Hub id or path, for the record of settings.
        recipe (`dict`): Options that a recipe sets beside `args`, for the record of settings.
    """

    dataset_name: str | None = None
    recipe: dict = {}  # noqa: RUF012 (replaced, never changed)
    _sampler: Iterable = ()  # of the training data; a stream has none

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.checkpoint_parts: list[CheckpointPart] = []
        self._settings: dict[str, Any] = {}  # those at the start of training: callbacks may change some

    def settings(self) -> dict[str, Any]:
        """The settings to record, as in [`settings.settings_of`]. A subclass may add its own."""
        return settings_of(self)

    def train(self, resume_from_checkpoint=None, *args, **kwargs):
        checkpoint = self._checkpoint_to_resume(resume_from_checkpoint)
        if self.is_world_process_zero():  # only the main process writes
            self._settings = as_json(self.settings())
            if checkpoint is not None:
                warn_of_changes(checkpoint, self._settings)
            write_json(self._settings, Path(self.args.output_dir, SETTINGS))
        for part in self.checkpoint_parts:
            part.load_state_dict({})  # it may hold the state of an earlier run
        return super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)

    def _checkpoint_to_resume(self, given: bool | str | None) -> Path | None:
        """The checkpoint that the main process chooses. Raises `UsageError` in all processes if one cannot read it."""
        if not given:
            return None
        has_adapter = hasattr(self.accelerator.unwrap_model(self.model), "peft_config")
        sharding = sharding_of(self.accelerator)
        choose = partial(_choose_checkpoint, given, self.args.output_dir, sharding, has_adapter)
        checkpoint, settings = from_main_process(choose)
        # a node with folders of its own may have a checkpoint of this name, without the files of the main process
        is_here = is_complete(checkpoint) and recorded_settings(checkpoint) == settings
        found = self.accelerator.gather(torch.tensor([is_here], device=self.accelerator.device)).tolist()
        if not all(found):
            number = found.index(False)
            _refuse(checkpoint, f"process {number} does not find it: a shared folder is needed for all nodes")
        return checkpoint

    def _get_train_sampler(self, *args, **kwargs):
        self._sampler = super()._get_train_sampler(*args, **kwargs)
        return self._sampler

    def _run_epoch(self, *args, **kwargs):
        if self.state.global_step >= self.state.max_steps:
            # transformers checks after each step, and would take one step too many
            self.control.should_training_stop = True
            return
        epochs_trained = kwargs["epochs_trained"]
        if kwargs["epoch"] == epochs_trained:
            # TRL's sampler draws a new order for each epoch, and starts anew in a resumed run
            for _ in range(epochs_trained):
                next(iter(self._sampler), None)
        super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model, trial):
        # before the rest: a checkpoint counts as complete once its last file, trainer_state.json, is written
        folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self.is_world_process_zero():
            begin_checkpoint(folder)
            write_json(self._settings, folder / SETTINGS)
        self.accelerator.wait_for_everyone()
        for part in self.checkpoint_parts:
            state = part.state_dict()
            if state and self.args.should_save:
                torch.save(state, _file_of(part, folder))
                torch.load(_file_of(part, folder))  # what cannot be read back is an error now, not in the resumed run
        if self.use_adaptive_entropy and self.args.should_save:  # TRL writes it again after the last file
            entropy = {"entropy_coef": self.entropy_coef, "last_world_entropy": self._last_world_entropy}
            write_json(entropy, folder / ENTROPY_STATE)
        super()._save_checkpoint(model, trial)

    def save_model(self, output_dir=None, _internal_call=False):
        if not self.is_fsdp_enabled or _internal_call:
            super().save_model(output_dir, _internal_call)
            return
        # transformers writes no model from sharded weights, and does not say so
        plugin = self.accelerator.state.fsdp_plugin
        of_checkpoints = plugin.state_dict_type
        plugin.set_state_dict_type("FULL_STATE_DICT")
        super().save_model(output_dir)
        plugin.set_state_dict_type(of_checkpoints)

    def _save_rng_state(self, output_dir):
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()  # otherwise the last file could be written before another rank's state

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            for part in self.checkpoint_parts:
                file = _file_of(part, checkpoint)
                if file.is_file():
                    part.load_state_dict(torch.load(file, map_location="cpu"))


def _file_of(part: CheckpointPart, checkpoint: str | Path) -> Path:
    return Path(checkpoint, f"{type(part).__name__}.pt")


def last_complete_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest complete checkpoint under `output_dir`, or `None`."""
    complete = [path for path in checkpoints(Path(output_dir)).values() if is_complete(path)]
    return complete[-1] if complete else None


def _choose_checkpoint(
    given: bool | str, output_dir: str, sharding: str | None, has_adapter: bool
) -> tuple[Path, dict[str, Any]]:
    """
    The checkpoint that `resume_from_checkpoint` means, and its settings: for `True`, the last complete one under
    `output_dir`; for a path, that checkpoint. Raises `UsageError` if the run cannot go on exactly from it.
    """
    last = last_complete_checkpoint(output_dir)
    checkpoint = (last or Path(output_dir, "checkpoint-*")) if given is True else Path(given)
    if not is_complete(checkpoint):
        _refuse(checkpoint, "no complete checkpoint, which has a whole trainer_state.json. Name another one")
    of_deepspeed = checkpoint.glob("global_step*")
    if not [*checkpoint.glob("optimizer*"), *of_deepspeed]:
        _refuse(checkpoint, f"it holds no state of the optimizer. Name {last or 'another checkpoint'}")
    settings = recorded_settings(checkpoint)
    saved = settings.get("sharding", sharding)
    if saved != sharding:
        _refuse(
            checkpoint,
            f"saved with sharding {saved}, while this run has {sharding}. Resume with the accelerate config of that "
            "run, or start a new run from its model",
        )
    if settings and bool(settings["adapter"]) != has_adapter:
        _refuse(
            checkpoint,
            f"saved {'without' if has_adapter else 'with'} an adapter, unlike this run. Resume with the same "
            "`peft_config`, or start a new run from its model",
        )
    return checkpoint, settings


def _refuse(checkpoint: Path, problem: str) -> NoReturn:
    raise UsageError(f"resume_from_checkpoint, {str(checkpoint)!r}: {problem}.")
