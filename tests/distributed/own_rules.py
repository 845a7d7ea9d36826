"""The example of docs/token_credit.md as a recipe, for one process or several."""

import json
from pathlib import Path

import pytest

from tests.corpus import tiny


EXAMPLE = Path("docs/token_credit.md").read_text().split("```python\n# my_credit.py\n")[1].split("```")[0]


def write_recipe(folder: Path) -> Path:
    """The example as a module in `folder`, and a recipe that names it."""
    (folder / "my_credit.py").write_text(EXAMPLE)
    recipe = tiny.recipe(
        folder,
        token_credit="my_credit.Surprisal",
        token_credit_kwargs={"strength": 1.0},
        per_device_train_batch_size=4,
        steps_per_generation=2,
        log_token_credit=1,
    )
    return Path(recipe)


def check_run(folder: Path) -> None:
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    credited = [entry for entry in history if "credit/raw_mean" in entry]
    assert len(credited) == 1
    assert credited[0]["credit/coefficient_mean"] == pytest.approx(1)
    assert credited[0]["credit/extra_forward_passes"] == 0
    assert credited[0]["credit/raw_mean"] > 1
