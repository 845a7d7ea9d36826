"""Tiny models of the tasks, warmed up on demonstrations. Everything is seeded."""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from .task import END, Task, make_problems


def make_tokenizer(vocabulary: list[str], pattern: str, max_length: int = 128) -> PreTrainedTokenizerFast:
    """One token for each match of a regular expression. Decoding is plain concatenation."""
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token=END, padding_side="left", model_max_length=max_length
    )


def tokenizer_of(task: Task) -> PreTrainedTokenizerFast:
    """One token for each word of a task, and for each other character."""
    vocabulary = ["<pad>", END, *"0123456789", *dict.fromkeys(task.words), *task.characters]
    return make_tokenizer(vocabulary, task.pattern, task.max_length)


def make_model(
    tokenizer: PreTrainedTokenizerFast, width: int = 64, layers: int = 2, max_length: int = 128
) -> Qwen3ForCausalLM:
    """A random Qwen3 with four heads."""
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=width // 4,
        max_position_embeddings=max_length,
        tie_word_embeddings=False,
        **special,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, **special)
    return model


def warm_up(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    demonstrations: Iterator[tuple[str, str]],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    description: str = "warm-up",
) -> None:
    """Supervised training on pairs of prompt and completion, as they come; prompts are not learned."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    model.train()
    for _ in (progress := tqdm(range(steps), desc=description, unit="step")):
        texts = []
        lengths = []  # of the prompts, in tokens
        for prompt, completion in islice(demonstrations, batch_size):
            texts.append(prompt + completion + END)
            lengths.append(len(tokenizer.tokenize(prompt)))
        batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right").to(model.device)
        columns = torch.arange(batch.input_ids.size(1), device=model.device)
        is_prompt = columns < columns.new_tensor(lengths)[:, None]
        unlearned = is_prompt | (batch.attention_mask == 0)
        labels = batch.input_ids.masked_fill(unlearned, -100)
        loss = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        progress.set_postfix(loss=f"{loss.item():.3f}")


def demonstrations(task: Task, seed: int) -> Iterator[tuple[str, str]]:
    """Prompts and completions that a task's start model is warmed up on, without end; none of a test problem."""
    _, test = make_problems(task)
    excluded = {problem["prompt"] for problem in test}
    rng = random.Random(seed)
    draw = task.practice or task.make_problem
    while True:
        problem = draw(rng)
        if problem["prompt"] not in excluded:
            yield problem["prompt"], task.demonstrate(problem, rng, careless=task.practice is None)


def make_task_model(task: Task, folder: Path) -> None:
    """Warm a model up for a task, and save it with its tokenizer; some minutes on one core."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the order of summation, and with it the weights, depends on their number
    tokenizer = tokenizer_of(task)
    model = make_model(tokenizer, max_length=task.max_length)
    warm_up(
        model,
        tokenizer,
        demonstrations(task, seed=0),
        steps=task.warm_up_steps,
        batch_size=64,
        learning_rate=5e-3,
        description=f"{folder.name}: warm-up",
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
