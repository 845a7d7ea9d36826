"""Users' own rules on several processes: the example of docs/token_credit.md, and rules whose ranks differ."""

import json
import os
from pathlib import Path

import pytest
import torch

from delta_trl.credit import Credit, TokenCredit, all_reduce
from delta_trl.credit.rule import TokenCreditError
from tests.corpus import tiny


EXAMPLE = Path("docs/token_credit.md").read_text().split("```python\n")[1].split("```")[0]


def write_recipe(folder: Path) -> Path:
    """The example as a module in `folder`, and a recipe that names it."""
    (folder / "my_credit.py").write_text(EXAMPLE)
    recipe = tiny.recipe(
        folder,
        token_credit="my_credit.Unexpected",
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
    assert 1 < credited[0]["credit/raw_mean"] < 2


OUT_OF_STEP = {
    "sums": lambda rank, tokens: all_reduce(torch.zeros(3)) if rank else None,
    "values": lambda rank, tokens: tokens.hidden if rank else tokens.log_probs,
    "result": lambda rank, tokens: Credit(torch.ones(len(tokens))) if rank else None,
    "raises": lambda rank, tokens: 1 / (1 - rank),
}


class OutOfStep(TokenCredit):
    def __init__(self, what):
        self.what = what

    def of_rollout(self, tokens):
        returned = self.what(int(os.environ["RANK"]), tokens)
        return returned if isinstance(returned, Credit) else None


def lose_step(folder: Path, make) -> None:
    """On every process: train with each rule that loses step, `make(rule)` the trainer, and write down the errors."""
    errors = {}
    for name, what in OUT_OF_STEP.items():
        try:
            make(OutOfStep(what)).train()
        except TokenCreditError as error:
            errors[name] = str(error)
    (folder / f"errors-{os.environ['RANK']}.json").write_text(json.dumps(errors))


def check_errors(folder: Path) -> None:
    """Both got an error that says which, instead of waiting for each other; and were in step again after it."""
    errors = [json.loads((folder / f"errors-{rank}.json").read_text()) for rank in range(2)]
    for name in OUT_OF_STEP:
        for rank in range(2):
            assert "OutOfStep.of_rollout does not do the same on all ranks (rank 0: " in errors[rank][name], name
    assert "rank 1: ZeroDivisionError: division by zero" in errors[0]["raises"]
    assert "rank 1: tokens.hidden" in errors[0]["values"]
