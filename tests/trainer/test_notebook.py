"""Progress in a notebook. Only IPython, which displays it, is replaced by a stand-in."""

import importlib
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
import transformers.trainer
from trl import GRPOConfig, GRPOTrainer

from delta_trl.trainer.notebook import show_reward_in_notebook

from ..corpus import tiny
from ..trainers import logged


@pytest.fixture
def notebook(monkeypatch):
    """A process in which transformers has found a notebook."""

    shown: list[str] = []
    display = ModuleType("IPython.display")
    display.HTML = shown.append
    display.display = lambda *args, **kwargs: SimpleNamespace(update=lambda html: None)
    for name, module in {"IPython": ModuleType("IPython"), "IPython.display": display}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "transformers.utils.notebook", raising=False)
    callback = importlib.import_module("transformers.utils.notebook").NotebookProgressCallback
    monkeypatch.setattr(transformers.trainer, "DEFAULT_PROGRESS_CALLBACK", callback)
    return shown


def table(html: str) -> list[dict[str, str]]:
    header = re.findall("<th>(.*)</th>", html)
    return [dict(zip(header, re.findall("<td>(.*)</td>", row), strict=True)) for row in html.split("<tr>")[1:]]


TRLS = {"trainer_class": GRPOTrainer, "config_class": GRPOConfig, "disable_tqdm": False}
EVALUATION = {"eval_strategy": "steps", "eval_steps": 1, "trainer_options": {"eval_dataset": tiny.dataset(2)}}


@pytest.mark.parametrize("options", [{}, EVALUATION], ids=["", "with evaluations"])
def test_the_table_has_the_reward(make_trainer, notebook, options):
    trainer = make_trainer(**TRLS, **options)
    show_reward_in_notebook(trainer)
    trainer.train()
    rows = table(notebook[-1])
    assert [row["Step"] for row in rows] == ["1", "2"]
    assert [float(row["Training Reward"]) for row in rows] == logged(trainer, "reward")


def test_trls_own_has_none(make_trainer, notebook):
    """What this is for: the day that it has, ours can go."""
    trainer = make_trainer(**TRLS)
    trainer.train()
    assert [list(row) for row in table(notebook[-1])] == [["Step", "Training Loss"]] * 2


def test_ours_shows_it(make_trainer, notebook):
    make_trainer(disable_tqdm=False, max_steps=1).train()
    assert "Training Reward" in notebook[-1]


def test_a_table_that_was_removed(make_trainer, notebook):
    trainer = make_trainer(disable_tqdm=False, max_steps=1)
    trainer.remove_callback(transformers.trainer.DEFAULT_PROGRESS_CALLBACK)
    trainer.train()
    assert not notebook
