"""The rule of a trainer in its checkpoints and its record of settings."""

import numpy as np
import pytest
import torch

from delta_trl.credit import Credit, TokenCredit
from delta_trl.credit.rule import TokenCreditError
from delta_trl.trainer.credit_rule import RULE_STATE

from ..trainers import same_weights


class Counting(TokenCredit):
    """Weights that depend on how many rollout batches the rule has seen."""

    seen = 0

    def of_rollout(self, tokens):
        self.seen += 1
        return Credit(1 + self.seen * torch.arange(len(tokens)) / len(tokens))

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state.get("seen", 0)


class OfItsOwn(Counting):
    pass


OPTIONS = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}


def counting(make_trainer):
    return make_trainer(**OPTIONS, trainer_options={"token_credit": Counting()})


def test_a_rule_goes_on_where_its_checkpoint_was_saved(make_trainer, tmp_path):
    whole = counting(make_trainer)
    whole.train()
    assert torch.load(tmp_path / "run" / "checkpoint-2" / RULE_STATE)["state"] == {"seen": 2}
    resumed = counting(make_trainer)
    resumed.token_credit.seen = 99  # of another training
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert same_weights(resumed, whole)
    (tmp_path / "run" / "checkpoint-1" / RULE_STATE).unlink()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert resumed.token_credit.seen == 2
    resumed.train()
    assert resumed.token_credit.seen == 3  # from the start


def test_another_rule_starts_without_a_state(make_trainer, tmp_path, caplog):
    """It would understand it in its own way."""
    counting(make_trainer).train()
    other = make_trainer(**OPTIONS, trainer_options={"token_credit": OfItsOwn()})
    other.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert other.token_credit.seen == 1
    assert "OfItsOwn starts without one" in caplog.text


def test_a_state_that_cannot_be_read_back_is_refused(make_trainer):
    rule = Counting()
    rule.seen = np.float64(0.5)
    rule.load_state_dict = lambda state: None
    with pytest.raises(TokenCreditError, match=r"Counting cannot be read back.*np.float64"):
        make_trainer(**OPTIONS, trainer_options={"token_credit": rule}).train()
