"""The model card: true for local models and data, and without gaps."""

import inspect
import re

import pytest
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from transformers import pipeline
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOTrainer
from delta_trl.cli import main
from delta_trl.credit import RULES, Selected
from delta_trl.trainer.credit_rule import card_text
from delta_trl.trainer.model_card import DetailedModelCard, Paper

from ..corpus import tiny


class Plain(DetailedModelCard, GRPOTrainer):
    pass


PLAIN = {"trainer_class": Plain, "config_class": GRPOConfig}
HUB = {"model": "Qwen/Qwen3-0.6B", "data": "trl-lib/DeepMath-103K"}


@pytest.fixture
def card(tmp_path):
    """The card of a trainer after `create_model_card`, or as it is."""

    def load(trainer=None) -> ModelCard:
        if trainer is not None:
            trainer.create_model_card(model_name="tiny")
        card = ModelCard.load(tmp_path / "run" / "README.md")
        assert "None" not in card.text
        assert "licence" not in card.data.to_dict()
        return card

    return load


def test_of_a_local_run(tmp_path, card):
    """As `delta-trl train` leaves it; its example runs."""
    tiny.dataset(2).to_json(tmp_path / "test.jsonl")
    recipe = tiny.recipe(
        tmp_path,
        eval_dataset_name=str(tmp_path / "test.jsonl"),
        token_credit_kwargs={"lambda_max": 1.5},
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=4,
    )
    assert main(["train", "--config", recipe]) == 0
    found = card()
    metadata = found.data.to_dict()
    assert "base_model" not in metadata
    assert "datasets" not in metadata
    assert metadata["tags"] == ["delta", "generated_from_trainer", "grpo", "trl"]
    for part in (
        f"`{tmp_path / 'model'}`",
        f"`{tmp_path / 'train.jsonl'}`, 16 rows",
        "`reward_letters`",
        "lambda_max=1.5",
        "DelTA: Discriminative Token Credit Assignment",
        "2605.21467",
        "temperature 1, top-p 1",
        f"- torch: {torch.__version__}",
        "Cite TRL as:",
    ):
        assert part in found.text
    assert re.search(r"Training, last logged at step 2: mean reward \d\.\d{3}, sampled at", found.text)
    assert re.search(
        rf"Evaluation on `{tmp_path / 'test.jsonl'}` at step 2: avg@4 \d\.\d{{3}}, sampled at", found.text
    )
    [code] = re.findall(r"```python\n(.*?)```", found.text, flags=re.DOTALL)
    assert f'model="{tmp_path / "run"}"' in code
    exec(code, {"pipeline": pipeline})


def test_of_a_plain_trainer(make_trainer, card):
    """No method of its own, and no paper but TRL's."""
    found = card(make_trainer(**PLAIN))
    assert "| rewards | `reward_letters` |" in found.text
    assert "token credit" not in found.text
    assert "Cite TRL as:" in found.text
    trainer = make_trainer(**PLAIN)
    trainer.method, trainer.paper = {"my method": "the best"}, Paper("Mine", "A title", "2601.00001", "me2026", "Me")
    text = card(trainer).text
    assert "| my method | the best |" in text
    assert "Cite Mine as:" in text
    assert "eprint = {arXiv:2601.00001}" in text


def test_of_a_run_with_the_hub(make_trainer, card):
    trainer = make_trainer(**PLAIN)
    trainer.model.config._name_or_path, trainer.dataset_name = HUB.values()
    found = card(trainer)
    assert found.data.base_model == HUB["model"]
    assert found.data.datasets == HUB["data"]
    assert f"[{HUB['model']}](https://huggingface.co/{HUB['model']})" in found.text
    assert f"(https://huggingface.co/datasets/{HUB['data']})" in found.text


def test_a_missing_path_is_no_hub_id(make_trainer, card):
    trainer = make_trainer(**PLAIN)
    trainer.model.config._name_or_path, trainer.dataset_name = "/gone/models/tiny", "s3://bucket/data.parquet"
    found = card(trainer)
    assert found.data.base_model is None
    assert found.data.datasets is None
    assert "`/gone/models/tiny`" in found.text


@pytest.mark.parametrize(
    ("rule", "method", "paper"),
    [
        ("none", "| token credit | none |", None),
        ("fipo", "`FIPO(decay=32.0", "2603.19835"),
        (Selected(which="bottom"), "`Selected(rule=DelTA(", "2605.21467"),
        ("tests.trainer.test_own_rule.Both", "`Both", None),
    ],
)
def test_the_method_and_its_paper(make_trainer, card, rule, method, paper):
    found = card(make_trainer(num_iterations=2, trainer_options={"token_credit": rule}))
    assert method in found.text
    assert re.findall(r"eprint = \{arXiv:(.*)\}", found.text) == ([paper] if paper else [])
    assert ("delta" in found.data.tags) is (paper == "2605.21467")


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_paper_is_that_of_the_docstring(name):
    rule = RULES[name]()
    said = re.search(r"arXiv (\d+\.\d+)", inspect.getmodule(rule).__doc__ + inspect.getdoc(rule))
    if name == "entropy":  # names a paper that does it otherwise
        assert rule.arxiv is None
    elif said:
        assert f"https://arxiv.org/abs/{said[1]})" in card_text(rule)
    else:
        assert rule.arxiv in (None, "2605.21467")


def test_chats_and_weighted_rewards(make_trainer, card, monkeypatch):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{{ messages[0].content }}"
    monkeypatch.setattr(tiny, "tokenizer", lambda: tokenizer)
    rows = tiny.dataset().map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
    trainer = make_trainer(**PLAIN, train_dataset=rows, reward_weights=[0.5])
    found = card(trainer)
    assert "0.5 × `reward_letters`" in found.text
    assert 'prompt = [{"role": "user"' in found.text


def test_the_results_are_those_of_the_saved_model(make_trainer, card):
    trainer = make_trainer(**PLAIN, max_steps=3)
    trainer.train()
    trainer.args.load_best_model_at_end = True
    trainer.state.best_global_step, trainer.state.best_model_checkpoint = 2, "run/checkpoint-2"
    text = card(trainer).text
    assert "Training, last logged at step 2:" in text
    assert "The model is that of checkpoint-2, the best one." in text
    assert "at step 3" not in text


def test_data_without_prompts(make_trainer, card):
    """As that of environments; a checkpoint must not fail for the sake of its card."""
    trainer = make_trainer(**PLAIN)
    trainer.train_dataset = Dataset.from_dict({"environment": ["game"]})
    assert 'prompt = "27+15="' in card(trainer).text


def test_a_checkpoint_comes_with_the_card(make_trainer, card):
    trainer = make_trainer(**PLAIN, save_strategy="steps", save_steps=1, max_steps=1)
    trainer.dataset_name = "/data/train.jsonl"
    trainer.train()
    assert "`/data/train.jsonl`" in card().text


def test_tags_of_a_subclass(make_trainer):
    class Tagged(DeltaGRPOTrainer):
        _tag_names = [*DeltaGRPOTrainer._tag_names, "mine"]  # noqa: RUF012

    assert make_trainer(trainer_class=Tagged).model.model_tags == ["trl", "grpo", "delta", "mine"]
    assert make_trainer(trainer_class=Tagged, token_credit="none").model.model_tags == ["trl", "grpo", "mine"]
