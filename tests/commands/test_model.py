"""Model settings that a recipe leaves open."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken
from transformers import GenerationConfig

from delta_trl import DeltaGRPOConfig
from delta_trl.commands.recipe import parse_recipe
from delta_trl.commands.train import build, end_turns
from delta_trl.evaluation.model import ModelArguments
from delta_trl.scoring.prompts import turn_end

from ..corpus import tiny
from ..trainer.test_agents import chat_tokenizer


QWEN3_BASE = json.loads(Path("tests/fixtures/qwen3_base_tokenizer.json").read_text())


def reward(completions, **kwargs) -> list[float]:
    texts = [messages[0]["content"] for messages in completions]
    return [float(len(text) % 2) for text in texts]


def save_tokenizer(folder: Path, **changes):
    """Like that of Qwen3-*-Base in what ends a turn: special tokens, template and generation config."""
    tokenizer = tiny.tokenizer()
    settings = {**QWEN3_BASE["tokenizer_config"], **changes}
    special = [AddedToken(token, special=True) for token in QWEN3_BASE["special_tokens"]]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.eos_token = settings["eos_token"]
    tokenizer.pad_token = settings["pad_token"]
    tokenizer.chat_template = settings["chat_template"]
    tokenizer.save_pretrained(folder)
    eos = tokenizer.convert_tokens_to_ids(QWEN3_BASE["generation_config"]["eos_token"])
    GenerationConfig(eos_token_id=eos).save_pretrained(folder)
    return tokenizer


def config(tmp_path, **options) -> DeltaGRPOConfig:
    return DeltaGRPOConfig(str(tmp_path / "run"), use_cpu=True, bf16=False, **options)


@pytest.mark.parametrize("use_vllm", [False, True])
def test_a_base_model_may_end_its_turn_either_way(tmp_path, caplog, use_vllm):
    tokenizer = save_tokenizer(tmp_path)
    end, text = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert turn_end(tokenizer) == end
    args = config(tmp_path, use_vllm=use_vllm, generation_kwargs={"no_repeat_ngram_size": 3})
    assert end_turns(args, ModelArguments(model_name_or_path=str(tmp_path))) == [text, end]
    stops = {"stop_token_ids": [end]} if use_vllm else {"eos_token_id": [text, end]}
    assert args.generation_kwargs == {"no_repeat_ngram_size": 3, **stops}
    assert "ends the assistant's turn with '<|im_end|>'" in caplog.text


@pytest.mark.parametrize(
    ("eos", "asked"),
    [
        ("<|im_end|>", None),
        ("<|endoftext|>", {"eos_token_id": [0]}),
    ],
)
def test_what_is_declared_or_asked_for_stays(tmp_path, eos, asked):
    save_tokenizer(tmp_path, eos_token=eos)
    args = config(tmp_path, generation_kwargs=asked)
    assert end_turns(args, ModelArguments(model_name_or_path=str(tmp_path))) is None
    assert args.generation_kwargs == asked


@pytest.mark.parametrize("template", [None, tiny.CHAT])
def test_templates_without_an_end(tmp_path, template):
    assert turn_end(save_tokenizer(tmp_path, chat_template=template)) is None


def test_a_turn_ends_as_the_options_of_the_template_say(tmp_path):
    template = QWEN3_BASE["tokenizer_config"]["chat_template"]
    needs_style = "{% if not style %}{{ raise_exception('style') }}{% endif %}"
    tokenizer = save_tokenizer(tmp_path, chat_template=needs_style + template)
    args = config(tmp_path, chat_template_kwargs={"style": 1})
    ends = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    assert end_turns(args, ModelArguments(model_name_or_path=str(tmp_path))) == ends


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({"dtype": "bfloat16"}, torch.bfloat16),
        ({"dtype": "bfloat16", "model_init_kwargs": {"dtype": "float32"}}, torch.float32),
    ],
    ids=str,
)
def test_the_type_of_the_weights_is_the_recipe_s(tmp_path, options, dtype):
    """`model_init_kwargs` take precedence, as in TRL."""
    recipe = tiny.recipe(tmp_path, attn_implementation="eager", model_revision="v2", **options)
    trainer = build(*parse_recipe(["--config", recipe]))
    model = trainer.model
    assert model.dtype == dtype
    assert model.config._attn_implementation == "eager"
    assert trainer.args.model_init_kwargs["revision"] == "v2"  # of which a folder has only one


def now() -> str:
    """Tell the time."""


class Game:
    """Which has no moves."""

    def reset(self, **columns) -> None:
        """Begin."""


def test_tools_and_environments_are_the_recipe_s(tmp_path):
    tokenizer = chat_tokenizer()
    tiny.save(tmp_path / "model", vocab_size=len(tokenizer))
    tokenizer.save_pretrained(tmp_path / "model")
    here = "tests.commands.test_model"
    agents = {"tools": [f"{here}.now"], "environment_factory": f"{here}.Game"}
    trainer = build(*parse_recipe(["--config", tiny.recipe(tmp_path, conversational=True, **agents)]))
    assert now in trainer.tools
    assert Game in trainer.environment_factories.values()


def test_training_stops_at_both_and_saves_so(tmp_path):
    tokenizer = save_tokenizer(tmp_path / "model")
    ends = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    model = tiny.model(vocab_size=len(tokenizer), eos_token_id=ends[0])
    model.save_pretrained(tmp_path / "model")
    recipe = tiny.recipe(
        tmp_path,
        conversational=True,
        reward_funcs=["tests.commands.test_model.reward"],
        max_completion_length=64,
        max_steps=1,
    )
    trainer = build(*parse_recipe(["--config", recipe]))
    batches = []
    generate = trainer._generate_and_score_completions

    def keep_batch(rows):
        batches.append(generate(rows))
        return batches[-1]

    trainer._generate_and_score_completions = keep_batch
    trainer.train()
    batch = batches[0]
    for row, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True):
        before_the_last = row[mask.bool()][:-1]
        assert not torch.isin(before_the_last, torch.tensor(ends)).any()
    trainer.save_model(tmp_path / "run")
    assert GenerationConfig.from_pretrained(tmp_path / "run").eos_token_id == ends
