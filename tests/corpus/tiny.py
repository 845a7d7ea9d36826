"""Tiny random models, a tokenizer and a dataset that need no download."""

from pathlib import Path

import torch
import yaml
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen3Config,
)


CHARACTERS = "0123456789+= abcdefghijklmnopqrstuvwxyz"
CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}"  # a template that puts nothing around messages
PARTS = (  # the same for messages of texts and images
    "{% for m in messages %}{% for part in m.content %}"
    "{{ part.text if part.type == 'text' else '<image>' }}"
    "{% endfor %}{% endfor %}"
)
IMAGE = len(CHARACTERS) + 1  # the token that stands for an image
PAIR = [
    {"prompt": "1+1=", "completion": "2", "reward": 1},
    {"prompt": "1+1=", "completion": "3", "reward": 0},
]


def message(role: str, content) -> dict:
    return {"role": role, "content": content}


def tokenizer(characters: str | None = None) -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", *(characters or CHARACTERS)])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


SIZES = {
    "vocab_size": len(CHARACTERS) + 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}


OPTIONS = {  # of a training on CPU, two groups of completions at a time
    "use_cpu": True,
    "bf16": False,
    "activation_checkpointing": False,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 8,
}


def model(config=None, **overrides):
    config = config or Qwen3Config(**{**SIZES, "head_dim": 8, **overrides})
    return AutoModelForCausalLM.from_config(config)


def multimodal() -> LlavaForConditionalGeneration:
    """A model that reads images of four patches."""
    torch.manual_seed(3)
    vision_config = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
    )
    text_config = LlamaConfig(**SIZES)
    config = LlavaConfig(vision_config=vision_config, text_config=text_config, image_token_index=IMAGE)
    return LlavaForConditionalGeneration(config)


def processor() -> LlavaProcessor:
    """That of the model which reads images. The token of an image takes the place of the last letter."""
    of_text = tokenizer(CHARACTERS[:-1])
    of_text.add_tokens("<image>", special_tokens=True)
    sides = {"height": 16, "width": 16}
    of_images = CLIPImageProcessorPil(size=sides, crop_size=sides)
    return LlavaProcessor(
        of_images,
        of_text,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=PARTS,
    )


def dataset(n: int = 16) -> Dataset:
    return Dataset.from_dict(
        {"prompt": [f"{i**3}+{i}=" for i in range(n)], "solution": [str(i**3 + i) for i in range(n)]}
    )


def save(folder: Path, **overrides) -> None:
    """Write the model and its tokenizer."""
    model(**overrides).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def recipe(folder: Path, name: str = "run", **changes) -> str:
    """Write the recipe of a short run into `folder / name`, its model and data unless they are there; its path."""
    if not (folder / "model").exists():
        save(folder / "model")
    if not (folder / "train.jsonl").exists():
        dataset().to_json(folder / "train.jsonl")
    values = {
        "model_name_or_path": str(folder / "model"),
        "dataset_name": str(folder / "train.jsonl"),
        "reward_funcs": ["tests.corpus.tiny.reward_letters"],
        "output_dir": str(folder / name),
        **OPTIONS,
        "max_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**values, **changes}))
    return str(path)


def reward_every_other(completions, **kwargs) -> list[float]:
    """A reward with which every group has contrast."""
    return [float(number % 2) for number in range(len(completions))]


def reward_letters(completions, **kwargs) -> list[float]:
    """A reward that a random model earns about half of the time: an even number of letters."""
    return [float(sum(c.isalpha() for c in text) % 2 == 0) for text in completions]
