"""`delta-trl train` as a user calls it: mistakes in one line, and a run from a recipe."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import delta_trl
from delta_trl.cli import main
from delta_trl.commands.recipe import parse_recipe
from delta_trl.credit import DelTA

from .corpus import tiny
from .trainers import logged


ROOT = Path(__file__).parents[1]


def reward_mine(completions, solution, threshold=0, **kwargs):
    return tiny.reward_letters(completions) if threshold == 0 else [0.0] * len(completions)


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe of a tiny run."""
    return partial(tiny.recipe, tmp_path, **{"reward_funcs": ["tests.test_cli.reward_mine"], "max_steps": 1})


def test_the_module_is_the_command():
    """So `accelerate launch -m delta_trl train` starts it."""
    for words, code, said in (["--version"], 0, delta_trl.__version__), (["nothing"], 2, "unknown command 'nothing'"):
        run = subprocess.run([sys.executable, "-m", "delta_trl", *words], capture_output=True, text=True, check=False)
        assert (run.returncode, said in run.stdout + run.stderr) == (code, True)


def test_values_reach_their_arguments(recipe):
    path = recipe(reward_kwargs={"tests.test_cli.reward_mine": {"threshold": 1}}, learning_rate="1e-4")
    flags = ["--token_credit_kwargs", "{lambda_max: 1.3}", "--column_mapping", "{question: prompt}"]
    run, training, model = parse_recipe(["--config", path, *flags, "--use_peft", "true"])
    assert training.make_rule() == DelTA(lambda_max=1.3)
    assert training.learning_rate == 1e-4
    assert run.column_mapping == {"question": "prompt"}
    assert run.reward_kwargs == {"tests.test_cli.reward_mine": {"threshold": 1}}
    assert model.use_peft


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


def test_train_writes_a_model_that_loads(recipe, tmp_path):
    path = recipe(
        prompt_template="add {prompt}",
        use_peft=True,
        lora_r=2,
        lora_target_modules=["q_proj", "v_proj"],
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=4,
        eval_dataset_name=str(tmp_path / "train.jsonl"),
    )
    assert main(["train", "--config", path]) == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run").peft_config
    AutoTokenizer.from_pretrained(tmp_path / "run")
    assert "DelTA" in (tmp_path / "run" / "README.md").read_text()
