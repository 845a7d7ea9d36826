"""The state of a rule in checkpoints."""

from pickle import UnpicklingError

import numpy as np
import pytest
import torch

from delta_trl.credit import Credit, TokenCredit


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


def counting(make_trainer, kind=Counting):
    return make_trainer(max_steps=3, save_strategy="steps", save_steps=1, token_credit=kind())


def test_a_rule_goes_on_where_its_checkpoint_was_saved(make_trainer, tmp_path):
    counting(make_trainer).train()
    checkpoint = tmp_path / "run" / "checkpoint-2"
    assert torch.load(checkpoint / "Counting.pt") == {"seen": 2}
    resumed = counting(make_trainer)
    resumed.token_credit.seen = 99  # of another training
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.token_credit.seen == 3
    other = counting(make_trainer, OfItsOwn)  # it would understand the state in its own way
    other.train(resume_from_checkpoint=str(checkpoint))
    assert other.token_credit.seen == 1
    other.train()
    assert other.token_credit.seen == 3  # from the start


def test_a_state_that_cannot_be_read_back_is_refused(make_trainer):
    trainer = counting(make_trainer)
    trainer.token_credit.load_state_dict = lambda state: None
    trainer.token_credit.seen = np.float64(0.5)
    with pytest.raises(UnpicklingError, match="numpy"):
        trainer.train()


def test_a_function_as_an_option_trains_and_saves(make_trainer, tmp_path):
    def halves(completion_ids, **columns):
        return [[0.5] * len(ids) for ids in completion_ids]

    options = {"token_credit": "given", "token_credit_kwargs": {"source": halves, "discount": 0.5}}
    make_trainer(**options, max_steps=1, save_strategy="steps", save_steps=1).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    assert (checkpoint / "optimizer.pt").is_file()
    args = torch.load(checkpoint / "training_args.bin", weights_only=False)
    assert "halves" in args.token_credit_kwargs["source"]
    assert args.token_credit_kwargs["discount"] == 0.5


class Made(Counting):
    times = 0

    def __init__(self):
        Made.times += 1


def test_a_rule_is_made_once(make_trainer):
    make_trainer(token_credit="tests.trainer.test_credit_rule.Made")
    assert Made.times == 1
