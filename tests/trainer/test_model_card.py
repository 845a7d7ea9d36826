"""TRL's model card with the name, the paper and the rule of token credit."""

import re

import pytest
from huggingface_hub import ModelCard

from delta_trl import DeltaGRPOTrainer
from delta_trl.credit import Selected, Shuffled


@pytest.mark.parametrize(
    ("rule", "name", "paper", "said"),
    [
        ("none", "GRPO", "2402.03300", "none"),
        ("delta", "DelTA", "2605.21467", "`DelTA("),
        (Selected(which="bottom"), "DelTA", "2605.21467", "`Selected(rule=DelTA("),
        (Shuffled(Selected()), "DelTA", "2605.21467", "`Shuffled(rule=Selected(rule=DelTA("),
        ("tests.trainer.test_own_rule.Both", "GRPO", "2402.03300", "`Both"),
    ],
)
def test_name_paper_and_rule(make_trainer, tmp_path, rule, name, paper, said):
    make_trainer(token_credit=rule).create_model_card(model_name="tiny")
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert f"trained with {name}, a method introduced in" in card.text
    cited = re.findall(r"eprint\s*= \{arXiv:(.*)\}", card.text)
    assert cited == [paper]
    assert f"## Token credit\n\n{said}" in card.text
    assert ("delta" in card.data.tags) is (name == "DelTA")
    linked = re.findall(r"see \[arXiv (.*?)\]", card.text)
    assert linked == [paper] * (name == "DelTA")


def test_tags_and_name_of_a_subclass(make_trainer):
    class Mine(DeltaGRPOTrainer):
        _tag_names = [*DeltaGRPOTrainer._tag_names, "mine"]  # noqa: RUF012
        _name, _paper = "Mine", {}

    plain = make_trainer(trainer_class=Mine, token_credit="none")
    assert plain.model.model_tags == ["trl", "grpo", "mine"]
    assert (plain._name, plain._paper) == ("Mine", {})
