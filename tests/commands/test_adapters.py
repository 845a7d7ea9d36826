"""Training that goes on with an adapter."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from delta_trl.cli import main
from delta_trl.commands.recipe import parse_recipe
from delta_trl.commands.train import build
from delta_trl.evaluation.model import ModelArguments

from ..corpus import tiny
from ..trainers import make_trainer


WEIGHTS = "adapter_model.safetensors"


def save_adapter(folder: Path) -> dict[str, torch.Tensor]:
    """An adapter that changes the model, as a run leaves it with a tokenizer and a chat template. Its weights."""
    tiny.save(folder / "model")
    torch.manual_seed(1)
    config = LoraConfig(
        r=2,
        target_modules=["q_proj", "v_proj"],
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    base = AutoModelForCausalLM.from_pretrained(folder / "model")
    get_peft_model(base, config).save_pretrained(folder / "adapter")
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = tiny.CHAT + "="
    tokenizer.save_pretrained(folder / "adapter")
    return load_file(folder / "adapter" / WEIGHTS)


def adapter_of(model: PeftModel, name: str) -> dict[str, torch.Tensor]:
    """The weights of an adapter under the names with which they are saved."""
    part = f".{name}."
    found = {}
    for key, weight in model.state_dict().items():
        if part in key:
            found[key.replace(part, ".")] = weight
    return found


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    if one.keys() != other.keys():
        return False
    return all(torch.equal(weight, other[name]) for name, weight in one.items())


def recipe_of(folder: Path, name: str = "run", **options) -> list[str]:
    values = {
        "adapter_name_or_path": str(folder / "adapter"),
        "learning_rate": 1e-2,
        **options,
    }
    return ["--config", tiny.recipe(folder, name, **values)]


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_recipe_begins_with_the_saved_adapter(tmp_path, beta):
    """The reference is a copy of it that stays, as TRL has it for a `PeftModel`."""
    saved = save_adapter(tmp_path)
    trainer = build(*parse_recipe(recipe_of(tmp_path, beta=beta, dtype="bfloat16")))
    model = trainer.model
    assert model.get_base_model().dtype == torch.bfloat16
    assert equal(adapter_of(model, "default"), saved)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert {name.replace(".default.", ".") for name in trained} == saved.keys()
    assert trainer.processing_class.chat_template.endswith("=")  # the adapter's

    trainer.train()
    assert not equal(adapter_of(model, "default"), saved)
    has_reference = beta > 0
    assert equal(adapter_of(model, "ref"), saved) == has_reference


def test_an_adapter_that_does_not_fit_its_model_is_named(tmp_path, capsys):
    save_adapter(tmp_path)
    tiny.save(tmp_path / "larger", hidden_size=64)
    recipe = recipe_of(tmp_path, model_name_or_path=str(tmp_path / "larger"))
    assert main(["train", *recipe]) == 2
    assert "size mismatch" in capsys.readouterr().err


def test_a_recipe_trains_what_a_peft_model_in_python_trains(tmp_path):
    save_adapter(tmp_path)
    recipe = build(*parse_recipe(recipe_of(tmp_path, beta=0.1)))
    recipe.train()

    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    model = PeftModel.from_pretrained(base, tmp_path / "adapter", is_trainable=True)
    output_dir = str(tmp_path / "python")
    python = make_trainer(model, learning_rate=1e-2, beta=0.1, output_dir=output_dir)
    python.train()

    assert equal(adapter_of(recipe.model, "default"), adapter_of(python.model, "default"))


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_run_that_goes_on_with_an_adapter_resumes(tmp_path, beta):
    """With the weights of an uninterrupted run; with a reference, too, which is not the checkpoint's model."""
    save_adapter(tmp_path)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    recipe = recipe_of(tmp_path, "whole", beta=beta, max_steps=3, save_strategy="steps", save_steps=1)
    assert main(["train", *recipe]) == 0
    resume = f"--output_dir {resumed} --resume_from_checkpoint {whole}/checkpoint-1"
    assert main(["train", *recipe, *resume.split()]) == 0
    weights = load_file(resumed / WEIGHTS)
    assert equal(weights, load_file(whole / WEIGHTS))


def test_what_a_run_leaves_is_evaluated_and_gone_on_with(tmp_path, monkeypatch):
    """The saved adapter names the model that it was trained on, though the first one had come from elsewhere."""
    monkeypatch.chdir(tmp_path)
    save_adapter(tmp_path)
    Path("model").rename("moved")
    recipe = recipe_of(Path(), model_name_or_path="moved", adapter_name_or_path="adapter")
    assert main(["train", *recipe]) == 0
    source = ModelArguments(model_name_or_path="run").base()
    assert source.model_name_or_path == "moved"

    words = "--benchmarks train.jsonl --num_generations 1 --max_completion_length 4 --use_cpu --reward math_reward"
    alone = "--output_dir alone --model_name_or_path run"
    on_base = "--output_dir on_base --model_name_or_path moved --adapter_name_or_path run"
    for model in (alone, on_base):
        assert main(["eval", *model.split(), *words.split()]) == 0

    lora = "--use_peft true --lora_r 2 --lora_alpha 8 --lora_dropout 0 --lora_target_modules v_proj q_proj"
    recipe = recipe_of(Path(), "again", model_name_or_path="moved", adapter_name_or_path="run")
    assert main(["train", *recipe, *lora.split()]) == 0  # the options of the run that it comes from may stay


def test_commands_for_texts_take_a_multimodal_model(tmp_path, monkeypatch, capsys):
    """With an adapter of the part that writes."""
    monkeypatch.chdir(tmp_path)
    tiny.multimodal().save_pretrained("model")
    tiny.processor().save_pretrained("model")
    train = ["train", "--config", tiny.recipe(Path(), use_peft=True, lora_target_modules=r".*language.*q_proj")]
    assert main([*train, "--dry_run"]) == 0
    assert "warning" not in capsys.readouterr().out
    assert main(train) == 0

    Dataset.from_list(tiny.PAIR).to_json("pair.jsonl")
    run = "--model_name_or_path run --use_cpu".split()
    sampling = "--benchmarks train.jsonl --reward math_reward --num_generations 1 --max_completion_length 4"
    assert main(["eval", *run, *sampling.split(), "--output_dir", "eval"]) == 0
    assert main(["explain", *run, "--data", "pair.jsonl", "--output_dir", "explain"]) == 0
    evaluated = json.loads(Path("eval/train.json").read_text())
    assert evaluated["settings"]["max_completion_length"] == 4
