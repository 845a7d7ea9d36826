"""Micro-batches without padding, on a plain `GRPOTrainer` and with token credit: the same results, fewer columns."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen3MoeConfig,
)

from delta_trl.credit import Tokens
from delta_trl.scoring.policy import RolloutPolicy
from delta_trl.scoring.rollout import Rollout
from delta_trl.scoring.stand_in import LEFT, PACKED

from ..corpus import tiny
from ..trainers import LORA, RAGGED, TRL, Compared, logged, ragged, rollout_with_environment, sharp
from .runs import TRIMMED, cpmant, dynamic_rope, gpt2, long_rope, mistral, opt, qwen, trained


def area(passes) -> int:
    return sum(rows * columns for _, (rows, columns) in passes)


FUSED = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 1}
MODES = {
    "dapo": {},
    "grpo": {"loss_type": "grpo"},
    # means over micro-batches: TRL's rows share them in another random order
    "bnpo": {"loss_type": "bnpo", **FUSED},
    "truncated masked": {"mask_truncated_completions": True},
    "aligned": {"num_iterations": 1},
    "gradient checkpointing": {"activation_checkpointing": True},
    "reentrant": {"activation_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
    "LoRA and a reference": {"beta": 0.1, "trainer_options": {**LORA, "rollout_func": ragged}},
    "a reference of its own": {"beta": 0.1},
}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_training_is_trls_to_rounding(make_trainer, tmp_path, options):
    tiny.save(tmp_path)  # TRL loads the reference model from the policy's path
    runs = []
    for kind in (TRIMMED, TRL):
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
        runs.append(
            trained(make_trainer, model, **{**RAGGED, "optim": "sgd", "learning_rate": 0.5, **kind, **options})
        )
    (ours, our_weights, narrow), (theirs, their_weights, wide) = runs
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=2e-5)
    torch.testing.assert_close(our_weights, their_weights, atol=2e-5, rtol=2e-5)
    # TRL logs means over micro-batches, whichever tokens these hold
    assert logged(ours, "entropy") == pytest.approx(logged(theirs, "entropy"), rel=0.01)
    assert len(narrow) == len(wide)  # under FSDP and ZeRO-3 ranks differ in width, not in number of forwards
    assert area(narrow) < 0.8 * area(wide)


TOOLS = {"num_iterations": 1, "trainer_options": {"rollout_func": rollout_with_environment}}


@pytest.mark.parametrize("options", [{}, TOOLS], ids=["recorded", "tools, in a pass of its own"])
def test_token_credit_is_that_of_a_plain_forward(make_trainer, options):
    make_trainer(sharp(), Compared, **{**RAGGED, **options}).train()


@pytest.mark.parametrize(
    ("options", "together"),
    [
        ({}, True),
        ({"loss_type": "bnpo"}, False),
        ({"top_entropy_quantile": 0.5}, False),
        ({"entropy_coef": 0.1}, False),
    ],
    ids=str,
)
def test_all_rows_are_trained_once_in_a_random_order(make_trainer, options, together):
    """In an optimiser step, those of a prompt together, unless a loss depends on which rows are in a micro-batch."""
    trainer = make_trainer(
        **TRIMMED,
        **options,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        steps_per_generation=8,
        max_steps=4,
        trainer_options={"rollout_func": ragged},
    )
    generate, compute, batches = trainer._generate_and_score_completions, trainer._compute_loss, []
    # what a subclass adds stays with its rows
    trainer._generate_and_score_completions = lambda inputs: {**generate(inputs), "numbers": list(range(16))}
    trainer._compute_loss = lambda model, inputs: batches.append(inputs) or compute(model, inputs)
    trainer.train()
    rows = torch.tensor([number for batch in batches for number in batch["numbers"]])
    assert torch.cat([batch["rollout_place"] for batch in batches]).tolist() == [*range(16), *range(16)]
    assert torch.equal(rows.view(2, 16).sort().values, torch.arange(16).expand(2, 16))
    assert rows[:16].tolist() != rows[16:].tolist()
    steps = rows.view(4, 8)
    assert torch.equal(steps.sort().values, steps) is together


def qwen_moe() -> Qwen3MoeConfig:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    return Qwen3MoeConfig(**tiny.SIZES, head_dim=8, **experts)


CONFIGS = {
    "qwen3": (qwen, PACKED),
    "qwen3 moe": (qwen_moe, PACKED),
    "dynamic": (lambda: dynamic_rope(16), PACKED),  # the batches of these tests are wider, their rows are not
    "longrope": (lambda: long_rope(16), PACKED),
    "sliding window": (mistral, PACKED),
    "eager": (lambda: qwen(attn_implementation="eager"), LEFT),
    "cpmant": (cpmant, None),
    "opt": (opt, PACKED),
}


def test_the_look_for_a_layout_leaves_no_trace(make_trainer):
    trainer = make_trainer(sharp(gpt2()), **TRIMMED)  # with dropout
    random_numbers = torch.get_rng_state()
    trainer.model.train()
    trainer.model.lm_head.eval()
    trainer.layouts.look()
    assert trainer.layouts.current == PACKED
    assert trainer.model.training
    assert not trainer.model.lm_head.training
    assert torch.equal(torch.get_rng_state(), random_numbers)


@pytest.mark.parametrize("options", [{"neftune_noise_alpha": 5.0}, {"torch_compile": True}, {"pad_to_multiple_of": 8}])
def test_what_depends_on_trls_shapes_keeps_them(make_trainer, caplog, options):
    trainer = make_trainer(**TRIMMED, **options)
    trainer.layouts.look()
    assert trainer.layouts.current is None
    assert "depends on TRL's shapes" in caplog.text


def scorings(trainer) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """Of each row that the trainer scores from now on: its tokens, and the log-probabilities of its completion."""
    score, scored = trainer._get_per_token_logps_and_entropies, []

    def scoring(model, ids, mask, length, *args, **options):
        output = score(model, ids, mask, length, *args, **options)
        for row, valid, log_probs in zip(ids, mask.bool(), output[0].detach(), strict=True):
            scored.append((tuple(row[valid].tolist()), log_probs[valid[-length:]]))
        return output

    trainer._get_per_token_logps_and_entropies = scoring
    return scored


STANDS_STILL = {"learning_rate": 0.0, "max_completion_length": 24}  # log ratios are 0 on the rollout's own policy


@pytest.mark.parametrize(("config", "layout"), CONFIGS.values(), ids=CONFIGS)
def test_trimming_changes_no_model(make_trainer, caplog, config, layout):
    """Scoring and loss agree, and both with TRL's."""
    options = {"per_device_train_batch_size": 2, "steps_per_generation": 8, "max_steps": 8, **STANDS_STILL}
    options["trainer_options"] = {"rollout_func": ragged}
    ours, theirs = (make_trainer(sharp(config()), **options, **kind) for kind in (TRIMMED, TRL))
    seen = []
    for trainer in (ours, theirs):
        scored = scorings(trainer)
        trainer.train()
        assert len(scored) == 32  # of the rollout batch, and of the losses
        seen.append(dict(scored[:16]))
        for row, log_probs in scored[16:]:
            torch.testing.assert_close(log_probs, seen[-1][row], atol=2e-5, rtol=0)
    torch.testing.assert_close(*seen, atol=2e-5, rtol=0)
    assert ours.layouts.current == layout
    assert ("Its micro-batches are those of GRPOTrainer" in caplog.text) == (layout is None)


@pytest.mark.parametrize(("config", "loss_type"), [(qwen, "dapo"), (qwen, "bnpo"), (qwen_moe, "dapo")])
def test_bfloat16_rounds_alike_in_scoring_and_loss(make_trainer, config, loss_type):
    """Every ratio is exactly 1: GSPO clips at 3e-4, a fraction of bfloat16's rounding."""
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    options |= {"max_steps": 2, "bf16": True, "beta": 0.1, "loss_type": loss_type, **STANDS_STILL}
    options["trainer_options"] = {**LORA, "rollout_func": ragged}
    trainer = make_trainer(sharp(config()), **options, **TRIMMED)
    scored = scorings(trainer)
    trainer.train()
    policy, reference, loss = scored[:16], scored[16:32], scored[32:]
    assert [row for row, _ in policy] == [row for row, _ in reference]
    assert len(loss) == 16
    assert all(torch.equal(log_probs, dict(policy)[row]) for row, log_probs in loss)


def llava() -> LlavaForConditionalGeneration:
    """A model that reads images of four patches."""
    torch.manual_seed(3)
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision_config = CLIPVisionConfig(**vision, image_size=16, patch_size=8)
    text_config = LlamaConfig(**{**tiny.SIZES, "vocab_size": 41})
    config = LlavaConfig(vision_config=vision_config, text_config=text_config, image_token_index=40)
    return LlavaForConditionalGeneration(config)


def test_some_rows_are_scored_with_their_own_images(make_trainer):
    trainer = make_trainer(llava())
    images = [1, 2, 1]
    prompts = torch.tensor([[40] * 4 * n + [13] * (9 - 4 * n) for n in images])
    batch = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": torch.arange(2, 11).view(3, 3),
        "completion_mask": torch.ones(3, 3, dtype=torch.long),
        "advantages": torch.ones(3),
        "pixel_values": 4 * torch.randn(4, 3, 16, 16),
        "num_images": images,
    }
    every_row = torch.ones(3, dtype=torch.bool)
    tokens = Tokens.of_batch(batch, RolloutPolicy(trainer, batch, Rollout(torch.arange(3)), every_row))
    every_row = tokens.log_probs.view(3, 3)
    rows = torch.tensor([2, 1])
    torch.testing.assert_close(tokens.log_probs_at(rows).view(2, 3), every_row[rows])


def test_texts_of_a_multimodal_checkpoint_are_trimmed(make_trainer):
    """Which has images is a question of the batch, not of the model."""
    areas = []
    for kind in (TRIMMED, TRL):
        _, _, passes = trained(make_trainer, llava(), **{**RAGGED, **kind})
        areas.append(area(passes))
    assert areas[0] < 0.8 * areas[1]
