"""The order of training prompts. Dynamic sampling draws from it directly."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from trl import GRPOTrainer

from ..files import write_json
from .main_process import from_main_process


PROMPT_ORDER = "prompt_order.json"  # in a checkpoint


class PromptOrder:
    """
    The rows of the training data in the order of TRL's sampler, pass after pass, alike on all processes. A checkpoint
    holds how many were taken.

    Args:
        trainer (`GRPOTrainer`): Whose data.
    """

    def __init__(self, trainer: GRPOTrainer):
        self._trainer = trainer
        self.start()

    def start(self, taken: int = 0) -> None:
        """Begin after so many rows."""
        self.taken, self._rows = taken, islice(self._order(), taken, None)

    def take(self, count: int) -> list[int]:
        """The numbers of the next `count` rows."""
        self.taken += count
        return list(islice(self._rows, count))

    def _order(self) -> Iterator[int]:
        trainer = self._trainer
        args = trainer.args
        sampler = trainer._get_train_sampler()  # repeats rows for their completions, and batches of them for steps
        repeated = args.generation_batch_size * trainer.num_iterations * args.steps_per_generation
        while True:
            for number, row in enumerate(sampler):
                position = number % repeated
                if position < args.generation_batch_size and not position % trainer.num_generations:
                    yield row

    def save(self, folder: Path) -> None:
        if self._trainer.args.should_save:
            write_json({"taken": self.taken}, folder / PROMPT_ORDER)

    def load(self, folder: Path) -> None:
        path = folder / PROMPT_ORDER
        self.start(from_main_process(lambda: json.loads(path.read_text())["taken"] if path.is_file() else 0))
