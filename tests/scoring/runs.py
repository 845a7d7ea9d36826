"""Shared by the tests of scoring: a plain trainer without padding, its runs, and the models that it meets."""

import torch
from torch.nn.utils import parameters_to_vector
from transformers import (
    CpmAntConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Phi3Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from delta_trl import DeltaGRPOTrainer
from delta_trl.trainer import trainer as trainer_module

from ..corpus import tiny
from ..trainers import TRL


class Plain(DeltaGRPOTrainer):
    """Without token credit."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, token_credit="none", **kwargs)


TRIMMED = {**TRL, "trainer_class": Plain}


def losses(monkeypatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of each micro-batch whose loss is computed from now on: log-ratios (b, T) to the rollout, and advantages."""
    seen = []
    run = trainer_module.run_scoring_call

    def run_and_see(trainer, layouts, score, call, *arguments, **options):
        log_probs, *rest = run(trainer, layouts, score, call, *arguments, **options)
        if call.micro_batch is not None:
            ratios = log_probs.detach() - call.micro_batch["old_per_token_logps"]
            seen.append((ratios, call.micro_batch["advantages"]))
        return log_probs, *rest

    monkeypatch.setattr(trainer_module, "run_scoring_call", run_and_see)
    return seen


def trained(make_trainer, model, **options) -> tuple:
    """A trainer after its training, its weights, and all forward passes: whether with gradients, and the shape."""
    trainer = make_trainer(model, **options)
    passes = []

    def note(module, args, kwargs, output):
        passes.append((torch.is_grad_enabled(), tuple(kwargs["input_ids"].shape)))

    model.base_model.register_forward_hook(note, with_kwargs=True)
    if isinstance(trainer, DeltaGRPOTrainer):
        leave_out(trainer, passes)
    trainer.train()
    weights = parameters_to_vector(trainer.model.parameters()).detach()
    return trainer, weights, passes


def leave_out(trainer: DeltaGRPOTrainer, passes: list, left_out: list | None = None) -> None:
    """Move what is noted while a trainer looks for its layout into another list."""
    for name in ("look", "confirm"):
        method = getattr(trainer.layouts, name)

        def looking(*args, method=method):
            n = len(passes)
            method(*args)
            if left_out is not None:
                left_out.extend(passes[n:])
            del passes[n:]

        setattr(trainer.layouts, name, looking)


def qwen(**options) -> Qwen3Config:
    return Qwen3Config(**tiny.SIZES, head_dim=8, **options)


def qwen_moe() -> Qwen3MoeConfig:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    return Qwen3MoeConfig(**tiny.SIZES, head_dim=8, **experts)


def mistral(window: int | None = 12) -> MistralConfig:
    return MistralConfig(**tiny.SIZES, head_dim=8, sliding_window=window)


def windows_in_a_layer() -> Qwen3Config:
    """Whose second layer alone has a sliding window."""
    return qwen(use_sliding_window=True, sliding_window=12, max_window_layers=1)


def gpt2(**options) -> GPT2Config:
    return GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, eos_token_id=1, **options)


def cpmant() -> CpmAntConfig:
    """Whose rows depend on the columns of padding."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "dim_head": 8, "dim_ff": 64, "num_hidden_layers": 2}
    return CpmAntConfig(vocab_size=40, prompt_length=4, **sizes)


def opt() -> OPTConfig:
    return OPTConfig(**tiny.SIZES, ffn_dim=64, word_embed_proj_dim=32, dropout=0)


def dynamic_rope(positions: int) -> LlamaConfig:
    """Whose rotary factors the columns of padding decide, beyond so many positions."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    return LlamaConfig(**tiny.SIZES, max_position_embeddings=positions, rope_parameters=rope)


def long_rope(positions: int, beyond: float = 8.0) -> Phi3Config:
    """As Phi-3-128k: other factors beyond so many positions."""
    original = {"original_max_position_embeddings": positions}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [beyond] * 4}
    return Phi3Config(
        **tiny.SIZES, **original, max_position_embeddings=4 * positions, rope_parameters={**rope, **original}
    )
