"""`delta-trl train` as a user calls it: mistakes in one line, and a run from a recipe."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import delta_trl
from delta_trl.cli import main

from .corpus import tiny
from .report import runs
from .trainers import logged


ROOT = Path(__file__).parents[1]


def test_the_module_is_the_command():
    """So `accelerate launch -m delta_trl train` starts it."""
    for words, code, said in (["--version"], 0, delta_trl.__version__), (["nothing"], 2, "unknown command 'nothing'"):
        run = subprocess.run([sys.executable, "-m", "delta_trl", *words], capture_output=True, text=True, check=False)
        assert (run.returncode, said in run.stdout + run.stderr) == (code, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("", 2, "usage: delta-trl COMMAND"),
        ("-h", 0, "usage: delta-trl COMMAND"),
        ("--help", 0, "usage: delta-trl COMMAND"),
        ("--version", 0, delta_trl.__version__),
        ("explain -h", 0, "--rule"),
        ("audit -h", 0, "An audit of rules of token credit"),
        ("compare -h", 0, "Does a rule of token credit help on this recipe?"),
        ("eval --compare a b --help", 0, "--benchmarks"),
    ],
)
def test_help_is_printed_without_a_command_and_beside_other_options(words, code, said, capsys):
    assert main(words.split()) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("command", ["train", "compare", "eval", "explain", "audit"])
def test_the_help_of_a_command_names_it(command, capsys):
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: delta-trl {command} ")


def test_the_help_of_inspect_has_its_step(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--help"])
    assert "--step N" in capsys.readouterr().out


def test_an_interrupted_command_says_so_in_a_line(monkeypatch, capsys):
    def interrupt(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("delta_trl.commands.inspect.main", interrupt)
    assert main(["inspect", "run"]) == 130
    assert capsys.readouterr().err == "delta-trl: interrupted\n"


@pytest.mark.processes
def test_commands_that_need_no_torch_do_without(tmp_path):
    """It takes seconds to import."""
    code = """
import sys
from delta_trl.cli import main

helps = [[command, "--help"] for command in ("train", "compare", "eval", "explain", "audit")]
for args in (["--help"], ["--version"], *helps, ["inspect", sys.argv[1]]):
    assert main(args) == 0
    assert not {"torch"} & set(sys.modules), args
"""
    run = runs.write_run(tmp_path / "run")
    subprocess.run([sys.executable, "-c", code, str(run)], check=True, timeout=60)


@pytest.mark.processes
def test_the_readmes_script_learns_as_it_stands_there(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (block,) = [part.split("```")[0] for part in Path("README.md").read_text().split("```python\n")[1:]]
    assert block.count("outputs/drop-in") == 1
    script: dict = {}
    exec(block.replace("outputs/drop-in", str(tmp_path / "run")), script)
    reward = logged(script["trainer"], "reward")
    assert len(reward) == 6  # once for each rollout batch
    assert reward[-1] > reward[0] + 0.1  # standard error of one: 0.04


def test_the_help_of_train_has_the_options_of_token_credit(capsys):
    assert main(["train", "--help"]) == 0
    printed = capsys.readouterr().out
    for option in ("--dataset_name", "--token_credit", "--trim_padding", "--log_token_credit"):
        assert option in printed


def test_train_writes_a_model_that_loads(tmp_path, capsys):
    recipe = tiny.recipe(
        tmp_path,
        max_steps=1,
        prompt_template="add {prompt}",
        use_peft=True,
        lora_r=2,
        lora_target_modules=["q_proj", "v_proj"],
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=4,
        eval_dataset_name=str(tmp_path / "train.jsonl"),
    )
    assert main(["train", "--config", recipe]) == 0
    assert "inspect" not in capsys.readouterr().out  # it has recorded nothing
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run").peft_config
    AutoTokenizer.from_pretrained(tmp_path / "run")
    assert "DelTA" in (tmp_path / "run" / "README.md").read_text()
    record = json.loads((tmp_path / "run" / "training_settings.json").read_text())
    assert record["dataset"] == str(tmp_path / "train.jsonl")
    assert (record["recipe"]["prompt_template"], record["recipe"]["lora_r"]) == ("add {prompt}", 2)
