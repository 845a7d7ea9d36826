"""The training reward in a notebook's progress table, for any `Trainer` that logs `reward`."""

from transformers import Trainer, TrainerCallback


class RewardInNotebook(TrainerCallback):
    """
    Adds the training reward to each row of transformers' progress table.

    Args:
        progress (`TrainerCallback`): transformers' `NotebookProgressCallback`, which writes the rows.
    """

    def __init__(self, progress: TrainerCallback):
        self._progress = progress

    def on_log(self, args, state, control, logs=None, **kwargs):
        if args.eval_strategy == "no" and "loss" in logs:  # then `progress` has written a row
            self._add_reward(state)

    def on_evaluate(self, args, state, control, **kwargs):
        self._add_reward(state)

    def _add_reward(self, state) -> None:
        if self._progress.training_tracker is None:  # an evaluation without training, or the table was removed
            return
        column = self._progress.first_column
        rewards = [entry["reward"] for entry in state.log_history if entry.get("reward") is not None]
        step = int(state.epoch) if column == "Epoch" else state.global_step
        row = {column: step, "Training Reward": rewards[-1] if rewards else "No log"}
        self._progress.training_tracker.write_line(row)


def show_reward_in_notebook(trainer: Trainer) -> None:
    """Add the training reward to the progress table, where transformers has found a notebook and shows one."""
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == "NotebookProgressCallback":  # its module cannot be imported without IPython
            trainer.add_callback(RewardInNotebook(callback))
