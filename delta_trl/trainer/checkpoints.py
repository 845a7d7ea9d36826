"""
Whole checkpoints, for any `GRPOTrainer`. A run that goes on from one saved at the end of a rollout batch does so
exactly; in the middle of one, TRL drops the rest of it.
"""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object
from torch.utils.data import DataLoader
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints
from trl import GRPOTrainer

from ..arguments.errors import UsageError
from ..files import (
    MANIFEST,
    SETTINGS,
    STATE,
    begin_checkpoint,
    checkpoints,
    file_sizes,
    finish_checkpoint,
    last_whole_checkpoint,
    missing_part,
    read_json,
    write_json,
)
from .folder_lock import only_run_in
from .main_process import from_main_process
from .settings import as_json, settings_of, sharding_of, warn_of_changes


logger = get_logger(__name__)


class CheckpointPart(Protocol):
    """What has a state of its own in a checkpoint: tensors and plain values. Every process calls both methods."""

    def state_dict(self) -> dict[str, Any]:
        """The state to save."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state, or start anew if it is empty. Called whenever training starts."""


class SafeCheckpoints(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that resumes from whole checkpoints only, and trains alone in its folder.

    The last file of a checkpoint is its manifest: the other files and their sizes. It is written after every process
    has written its part; transformers' rotation and push come after it. A checkpoint is whole if all these files are
    there. The main process chooses the checkpoint from which all processes resume, and a process on each node checks
    its files. A run records its settings in `training_settings.json`, in its folder and in its checkpoints. A run that
    resumes with other settings than those of its checkpoint names them in a warning.

    What is not covered: files whose content changed and whose size did not.

    Attributes:
        checkpoint_parts (`list[CheckpointPart]`):
            State beyond `GRPOTrainer`'s own. Subclasses add to it. In a checkpoint, each has a file with its class's
            name.
        dataset_name (`str`, *optional*): Hub id or path, for the record of settings.
        recipe (`dict`): Options that a recipe sets beside `args`, for the record of settings.
    """

    dataset_name: str | None = None
    recipe: dict = {}  # noqa: RUF012 (replaced, never changed)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.checkpoint_parts: list[CheckpointPart] = []
        self._settings: dict[str, Any] = {}  # those at the start of training: callbacks may change some

    def settings(self) -> dict[str, Any]:
        """The settings to record, as in [`settings.settings_of`]. A subclass may add its own."""
        return settings_of(self)

    def train(self, resume_from_checkpoint=None, *args, **kwargs):
        with only_run_in(self.args.output_dir):
            checkpoint = self._checkpoint_to_resume(resume_from_checkpoint)
            if self.is_world_process_zero():  # only the main process writes
                self._record(checkpoint)
            for part in self.checkpoint_parts:
                part.load_state_dict({})  # it may hold the state of an earlier run
            return super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)

    def _record(self, checkpoint: Path | None) -> None:
        """Write down with what, and from where, the run goes on. From now on it has not ended."""
        folder = Path(self.args.output_dir)
        self._settings = as_json(self.settings())
        if checkpoint is not None:
            warn_of_changes(checkpoint, self._settings)
        self._settings["call"] = secrets.token_hex(8)  # tells its checkpoints from those that it leaves behind
        self._settings["goes_on_from"] = checkpoint and relpath(checkpoint, folder)
        (folder / STATE).unlink(missing_ok=True)
        write_json(self._settings, folder / SETTINGS)

    def _checkpoint_to_resume(self, resume_from: bool | str | Path | None) -> Path | None:
        """The checkpoint that the main process chooses. Raises `UsageError` in all processes if one lacks a file."""
        if not resume_from:
            return None
        has_adapter = hasattr(self.accelerator.unwrap_model(self.model), "peft_config")
        sharding = sharding_of(self.accelerator)
        choose = partial(_choose_checkpoint, resume_from, self.args.output_dir, sharding, has_adapter)
        checkpoint, sizes = from_main_process(choose)
        # a node with folders of its own may have a checkpoint of this name, without the files of the main process
        missing = missing_part(checkpoint, sizes) if self.accelerator.is_local_main_process else None
        for number, part in enumerate(gather_object([missing])):
            if part:
                _refuse(checkpoint, f"on process {number}, {part}. All nodes need a shared folder")
        return checkpoint

    def _run_epoch(self, *args, **kwargs):
        if self.state.global_step >= self.state.max_steps:
            # transformers checks after each step, and would take one step too many
            self.control.should_training_stop = True
            return
        epochs_trained = kwargs["epochs_trained"]
        if kwargs["epoch"] == epochs_trained:
            # TRL's sampler draws a new order for each epoch, and starts anew in a resumed run
            sampler = sampler_of(kwargs["train_dataloader"])
            for _ in range(epochs_trained):
                next(iter(sampler), None)
        super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model, trial):
        run = Path(self._get_output_dir(trial=trial))
        folder = run / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        self.accelerator.wait_for_everyone()  # with `enable_jit_checkpoint`, each has put a file there that goes later
        if self.is_world_process_zero():
            begin_checkpoint(folder)
            write_json(self._settings, folder / SETTINGS)
        self.accelerator.wait_for_everyone()
        for part in self.checkpoint_parts:
            state = part.state_dict()
            if state and self.args.should_save:
                torch.save(state, _file_of(part, folder))
                torch.load(_file_of(part, folder))  # what cannot be read back is an error now, not in the resumed run
        # transformers would delete older checkpoints, and push this one, before it is whole. (training_args.bin has
        # these values, too; a run that goes on does not read it)
        with _changed(self.args, save_total_limit=None, push_to_hub=False):
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # every process has written its part
        if self.is_world_process_zero():
            finish_checkpoint(folder)
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(folder))
        if self.args.should_save:
            # where folders have no times, their numbers count, and one that was left behind may have a higher one
            protected = self.state.best_model_checkpoint or str(folder)
            rotate_checkpoints(str(run), self.args.save_total_limit, protected, use_mtime=True)

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

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            for part in self.checkpoint_parts:
                file = _file_of(part, checkpoint)
                if file.is_file():
                    part.load_state_dict(torch.load(file, map_location="cpu"))


def sampler_of(dataloader: DataLoader) -> Iterable:
    """The sampler of training data."""
    batches: Any = dataloader.batch_sampler
    batches = getattr(batches, "batch_sampler", batches)  # accelerate wraps them for several processes
    return batches.sampler


def _file_of(part: CheckpointPart, checkpoint: str | Path) -> Path:
    return Path(checkpoint, f"{type(part).__name__}.pt")


@contextmanager
def _changed(args: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(args, name) for name in values}
    vars(args).update(values)
    try:
        yield
    finally:
        vars(args).update(before)


def newest_checkpoint(output_dir: str | Path) -> Path | None:
    """
    The checkpoint under `output_dir` from which a run goes on: the newest whole one. Names newer ones in a warning.
    `None` if there is no checkpoint. Raises `UsageError` if there are some, but none is whole.
    """
    newest = last_whole_checkpoint(Path(output_dir))
    passed_over = []
    for path in reversed(checkpoints(Path(output_dir)).values()):
        if path == newest:
            break
        passed_over.append(f"{path.name} ({missing_part(path)})")
    if newest is None and passed_over:
        _refuse(
            Path(output_dir),
            f"no checkpoint is whole: {', '.join(passed_over)}. Name one of a plain GRPOTrainer by its path; delete "
            "broken ones to start anew",
        )
    if passed_over:
        logger.warning(f"The run goes on from {newest}. Not whole, and passed over: {', '.join(passed_over)}.")
    return newest


def _choose_checkpoint(
    resume_from: bool | str | Path, output_dir: str, sharding: str | None, has_adapter: bool
) -> tuple[Path, dict[str, int]]:
    """
    The checkpoint that `resume_from_checkpoint` means, and the sizes of its files: for `True`, the newest whole one
    under `output_dir`; for a path, that checkpoint. Raises `UsageError` if the run cannot go on exactly from it.
    """
    checkpoint = newest_checkpoint(output_dir) if isinstance(resume_from, bool) else Path(resume_from)
    if checkpoint is None or not checkpoint.is_dir():
        _refuse(checkpoint or Path(output_dir), "there is no checkpoint. Name another one, or start anew")
    settings = read_json(checkpoint / SETTINGS)
    is_ours = (checkpoint / SETTINGS).exists() or (checkpoint / MANIFEST).exists()
    if not is_ours:
        logger.warning(
            f"{checkpoint} has no {MANIFEST}: whether it is whole is not known. Transformers starts anew, without a "
            "word, what has no file there: optimizer and schedule, random numbers."
        )
        return checkpoint, file_sizes(checkpoint)
    if part := missing_part(checkpoint):
        last = last_whole_checkpoint(checkpoint.parent)
        _refuse(checkpoint, f"{part}. Name {last or 'another checkpoint'}")
    if settings["arguments"]["save_only_model"]:
        _refuse(checkpoint, "saved with `save_only_model`, without the optimizer. Start a new run from its model")
    if settings["sharding"] != sharding:
        _refuse(
            checkpoint,
            f"saved with sharding {settings['sharding']}, while this run has {sharding}. Resume with the accelerate "
            "config of that run, or start a new run from its model",
        )
    if bool(settings["adapter"]) != has_adapter:
        _refuse(
            checkpoint,
            f"saved {'without' if has_adapter else 'with'} an adapter, unlike this run. Resume with the same "
            "`peft_config`, or start a new run from its model",
        )
    return checkpoint, read_json(checkpoint / MANIFEST)


def _refuse(checkpoint: Path, problem: str) -> NoReturn:
    raise UsageError(f"resume_from_checkpoint, {str(checkpoint)!r}: {problem}.")
