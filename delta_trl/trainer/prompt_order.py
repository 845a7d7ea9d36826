"""The order of training prompts. Dynamic sampling draws from it directly."""

from collections.abc import Iterator
from itertools import islice

from trl import GRPOTrainer


class PromptOrder:
    """
    The rows of the training data in the order of TRL's sampler, pass after pass, alike on all processes. Its state,
    which checkpoints hold, is how many were taken.

    Args:
        trainer (`GRPOTrainer`): Whose data.
    """

    def __init__(self, trainer: GRPOTrainer):
        self._trainer = trainer
        self.load_state_dict({})

    def take(self, count: int) -> list[int]:
        """The numbers of the next `count` rows."""
        self.taken += count
        return list(islice(self._rows, count))

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state.get("taken", 0)
        self._rows = islice(self._order(), self.taken, None)

    def _order(self) -> Iterator[int]:
        sampler = self._trainer._get_train_sampler()
        # TRL's repeats rows for their completions, and batches of rows for the steps that use them
        sampler.mini_repeat_count = 1
        sampler.repeat_count = 1
        while True:
            yield from sampler
