"""Shared by tests of trainers: options, a trainer's logs, and the same values computed by hand."""

from collections.abc import Callable

import numpy as np
import torch
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import TokenCredit

from .corpus import tiny
from .credit import oracle


MISALIGNED = {"num_iterations": 2}  # two optimiser steps per rollout batch: TRL scores old log-probs itself
TRL = {"trainer_class": GRPOTrainer, "config_class": GRPOConfig}
LORA = {"peft_config": LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)}


def make_trainer(
    model=None,
    trainer_class=DeltaGRPOTrainer,
    config_class=DeltaGRPOConfig,
    reward_funcs=tiny.reward_letters,
    train_dataset=None,
    trainer_options=None,
    **options,
) -> GRPOTrainer:
    """`options` are those of the config; what it has no field for, and a rule that is an instance, the trainer's."""
    torch.manual_seed(0)
    of_config = {
        **tiny.OPTIONS,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    of_trainer = {"processing_class": tiny.tokenizer(), **(trainer_options or {})}
    for name, value in options.items():
        is_of_config = name in config_class.__dataclass_fields__ and not isinstance(value, TokenCredit)
        (of_config if is_of_config else of_trainer)[name] = value
    return trainer_class(
        tiny.model() if model is None else model,
        reward_funcs,
        config_class(**of_config),
        tiny.dataset() if train_dataset is None else train_dataset,
        **of_trainer,
    )


def logged(trainer, name) -> list[float]:
    """What was logged under a name, which something was."""
    values = [entry[name] for entry in trainer.state.log_history if name in entry]
    assert values, name
    return values


def joined(batch, name: str) -> torch.Tensor:
    """`ids` or `mask` of the prompts with their completions."""
    return torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1)


def same_weights(ours, theirs) -> bool:
    """Whether two trainers' models are equal, bit for bit."""
    return all(map(torch.equal, ours.model.parameters(), theirs.model.parameters()))


def valid_tokens(batch) -> torch.Tensor:
    valid = batch["completion_mask"].bool()
    if "tool_mask" in batch:
        valid = valid & batch["tool_mask"].bool()
    return valid


def response_advantages(batch) -> torch.Tensor:
    """The advantages of the responses (B,), of a batch whose advantages are weighted (B, T)."""
    advantages = batch["advantages"]
    if advantages.ndim == 1:
        return advantages
    return (advantages.sum(1) / batch["token_coefficients"].sum(1)).nan_to_num()


def plain_forward(model, batch, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states before each completion token (B, T, d) and log-probs (B, T), by the model's own forward."""
    ids, mask = joined(batch, "ids"), joined(batch, "mask")
    images = {"pixel_values": batch["pixel_values"]} if "pixel_values" in batch else {}
    output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True, **images)
    completion_ids = batch["completion_ids"]
    predicting = slice(-completion_ids.size(1) - 1, -1)
    hidden = output.hidden_states[-1][:, predicting]
    scaled = output.logits[:, predicting] / temperature
    of_all = scaled.log_softmax(dim=-1)
    log_probs = of_all.gather(2, completion_ids[:, :, None])
    return hidden, log_probs[:, :, 0]


def token_vectors(batch, hidden, log_probs) -> tuple[torch.Tensor, torch.Tensor]:
    """The vectors (N, d) of the valid tokens, and their responses' advantages (N,)."""
    valid = valid_tokens(batch)
    factors = 1 - log_probs[valid].exp()
    advantages = response_advantages(batch)[:, None].expand_as(valid)
    return factors[:, None] * hidden[valid], advantages[valid]


def expected_coefficients(model, batch, temperature=1.0, **options) -> torch.Tensor:
    """The oracle's coefficients (B, T) from a plain forward, with explicit token vectors."""
    with torch.no_grad():
        hidden, log_probs = plain_forward(model, batch, temperature)
    vectors, advantages = token_vectors(batch, hidden, log_probs)
    coefficients, _ = oracle.coefficients(vectors, advantages, **options)
    valid = valid_tokens(batch)
    expected = torch.zeros(valid.shape)
    expected[valid] = torch.tensor(coefficients, dtype=torch.float32)
    return expected


def rollout_of(ids_of: Callable[[int], list[int]]) -> Callable:
    """A `rollout_func` that gives completions their tokens by their number."""

    def rollout_func(prompts, trainer) -> dict:
        ids = [ids_of(i) for i in range(len(prompts))]
        return {"prompt_ids": trainer.processing_class(prompts)["input_ids"], "completion_ids": ids, "logprobs": None}

    return rollout_func


@rollout_of
def ragged(i: int) -> list[int]:
    """Completions of 1 to 20 tokens; every fifth is cut off."""
    length = 1 + 3 * (i % 7)
    ids = [2 + (7 * i + t) % 30 for t in range(length)]
    is_cut_off = i % 5 == 4
    return ids if is_cut_off else [*ids, 1]


RAGGED = {  # several micro-batches, each used twice
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "steps_per_generation": 4,
    "num_iterations": 2,
    "max_completion_length": 24,
    "trainer_options": {"rollout_func": ragged},
}


def sharp(config=None, factor: float = 8):
    """A random model whose predictions depend on what it attends to."""
    torch.manual_seed(3)
    model = tiny.model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= factor
    return model


def move(model) -> None:
    """As an optimiser step does, in a random direction."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))


@rollout_of
def seven_at_random(i: int) -> list[int]:
    return np.random.default_rng(i).integers(2, 30, 7).tolist()


def rollout_with_environment(prompts, trainer) -> dict:
    """Completions of which every third token is the environment's."""
    env_mask = [[1, 1, 0, 1, 1, 0, 1] for _ in prompts]
    return {**seven_at_random(prompts, trainer), "env_mask": env_mask}


def credit(name: str = "delta", **kwargs) -> dict:
    """Options of a trainer that credits tokens so."""
    return {"token_credit": name, "token_credit_kwargs": kwargs}


class Compared(DeltaGRPOTrainer):
    """Whose coefficients are compared with the policy's, not those of the reference."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        expected = expected_coefficients(self.model, batch)
        torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)
        self.rollouts = [*getattr(self, "rollouts", []), len(inputs)]
        return batch
