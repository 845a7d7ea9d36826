import re
from dataclasses import fields

import pytest
from trl import GRPOConfig, ModelConfig

from delta_trl.audit.audit import AuditArguments
from delta_trl.cli import main
from delta_trl.commands.recipe import RunArguments
from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.trainer.config import CreditArguments, DeltaGRPOConfig

from ..documented import defaults


def test_help_of_train_is_ours_and_points_to_trls(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit:
        main(["train", "--help"])
    assert exit.value.code == 0
    short = capsys.readouterr().out
    shown = re.findall(r"^  --(\w+)", short, flags=re.MULTILINE)
    ours = {field.name for group in (RunArguments, CreditArguments) for field in fields(group)}
    assert ours | {"epsilon_high", "learning_rate"} < set(shown)
    assert len(shown) == len(set(shown)) == len(ours) + 1 + 20
    assert len(short.splitlines()) <= 86
    assert max(map(len, short.splitlines())) <= 80
    assert "--help-all` prints" in short
    assert re.search(r"--epsilon_high .*0\.28", short)
    assert re.search(r"--trim_padding +Run [^()]*\(True\)", short)  # not its opposite

    with pytest.raises(SystemExit) as exit:
        main(["train", "--help-all"])
    assert exit.value.code == 0
    everything = capsys.readouterr().out
    trl = {field.name for group in (GRPOConfig, ModelConfig) for field in fields(group) if field.init}
    assert ours | trl <= set(re.findall(r"^  --(\w+)", everything, flags=re.MULTILINE))


@pytest.mark.parametrize("group", [RunArguments, DeltaGRPOConfig, EvalArguments, AuditArguments])
def test_every_option_of_ours_says_what_it_does(group):
    trl = {field.name for field in fields(GRPOConfig)} - {"epsilon_high"}
    texts = {field.name: field.metadata.get("help", "") for field in fields(group) if field.name not in trl}
    assert not [name for name, text in texts.items() if len(text.split()) < 3 or "`~" in text]


def test_help_shows_what_a_recipe_sets(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("learning_rate: 0.125")
    with pytest.raises(SystemExit):
        main(["train", "--config", str(tmp_path / "recipe.yaml"), "--help"])
    assert re.search(r"--learning_rate .*\(0\.125\)", capsys.readouterr().out)


def test_defaults_are_those_of_the_docstring():
    said, real = defaults(RunArguments)
    assert said == real != {}
