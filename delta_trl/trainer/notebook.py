"""Progress in a notebook: transformers' table with the reward, of which it knows nothing."""

from transformers.utils.notebook import NotebookProgressCallback  # needs IPython


class NotebookProgress(NotebookProgressCallback):
    """Adds the training reward to each row of the table, those of evaluations included."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        if args.eval_strategy == "no" and "loss" in logs:  # then it has written a row
            self._add_reward(state)

    def on_evaluate(self, args, state, control, **kwargs):
        super().on_evaluate(args, state, control, **kwargs)
        if self.training_tracker is not None:
            self._add_reward(state)

    def _add_reward(self, state) -> None:
        rewards = [entry["reward"] for entry in state.log_history if entry.get("reward") is not None]
        step = int(state.epoch) if self.first_column == "Epoch" else state.global_step
        reward = rewards[-1] if rewards else "No log"
        self.training_tracker.write_line({self.first_column: step, "Training Reward": reward})
