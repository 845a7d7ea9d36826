"""The way of a token's credit through the package, as CONTRIBUTING.md shows it."""

import re
import sys
from pathlib import Path

from .. import documented


PACKAGE = Path(documented.__file__).parents[1] / "delta_trl"


def test_the_page_shows_every_file_that_a_rollout_batch_enters(make_trainer, rollout):
    trainer = make_trainer(num_iterations=2, per_device_train_batch_size=4, steps_per_generation=2)
    rollout(trainer)  # asks the model what may be cut off
    inputs = next(iter(trainer.get_train_dataloader()))
    entered = set()

    def trace(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            entered.add(path.relative_to(PACKAGE).as_posix())

    sys.setprofile(trace)
    try:
        trainer._generate_and_score_completions(inputs)
    finally:
        sys.setprofile(None)
    _, after_title = Path("CONTRIBUTING.md").read_text().split("### The way of a token's credit")
    section, *_ = after_title.split("\nDependencies")
    shown = re.findall(r"`([a-z_/]+\.py)`", section)
    assert {path for path in shown if not path.startswith("tests/")} == entered
