"""Micro-batches without padding, on a plain `GRPOTrainer` and with token credit: the same results, fewer columns."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
)

from delta_trl.credit import Tokens
from delta_trl.scoring.policy import RolloutPolicy
from delta_trl.scoring.rollout import PLACE, Rollout
from delta_trl.scoring.rows import micro_batches_in_order, random_order
from delta_trl.scoring.stand_in import LEFT, PACKED, kind_of

from ..corpus import tiny
from ..trainers import LORA, RAGGED, TRL, Compared, logged, ragged, sharp
from .runs import TRIMMED, cpmant, dynamic_rope, gpt2, long_rope, opt, qwen, qwen_moe, trained, windows_in_a_layer


def area(passes) -> int:
    return sum(rows * columns for _, (rows, columns) in passes)


def checkpointing(trainer) -> list[dict]:
    """The options of gradient checkpointing in each layer that has it."""
    functions = [getattr(module, "_gradient_checkpointing_func", None) for module in trainer.model.modules()]
    return [function.keywords for function in functions if function]


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
    options = {**RAGGED, "optim": "sgd", "learning_rate": 0.5, **options}
    runs = []
    for kind in (TRIMMED, TRL):
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
        runs.append(trained(make_trainer, model, **options, **kind))
    (ours, our_weights, narrow), (theirs, their_weights, wide) = runs
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=2e-5)
    torch.testing.assert_close(our_weights, their_weights, atol=2e-5, rtol=2e-5)
    assert checkpointing(ours) == checkpointing(theirs)
    # TRL logs means over micro-batches, whichever tokens these hold
    assert logged(ours, "entropy") == pytest.approx(logged(theirs, "entropy"), rel=0.01)
    assert len(narrow) == len(wide)  # under FSDP and ZeRO-3 ranks differ in width, not in number of forwards
    assert area(narrow) < 0.8 * area(wide)


def ragged_with_environment(prompts, trainer) -> dict:
    """Completions of many lengths, of which every third token is the environment's."""
    output = ragged(prompts, trainer)
    env_mask = [[int(t % 3 != 2) for t in range(len(ids))] for ids in output["completion_ids"]]
    return {**output, "env_mask": env_mask}


TOOLS = {"num_iterations": 1, "trainer_options": {"rollout_func": ragged_with_environment}}


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
    generate, compute = trainer._generate_and_score_completions, trainer._compute_loss
    rows, places = [], []

    def number(inputs):
        return {**generate(inputs), "numbers": list(range(16))}

    def note(model, inputs):
        rows.extend(inputs["numbers"])
        places.extend(inputs["rollout_place"].tolist())
        return compute(model, inputs)

    # what a subclass adds stays with its rows
    trainer._generate_and_score_completions = number
    trainer._compute_loss = note
    trainer.train()
    assert places == [*range(16), *range(16)]
    first, second = rows[:16], rows[16:]
    assert sorted(first) == list(range(16))
    assert sorted(second) == list(range(16))
    assert first != second
    steps = torch.tensor(rows).view(4, 8)
    assert torch.equal(steps.sort().values, steps) is together


def test_the_order_of_rows_is_drawn_anew_for_each_rollout_batch(make_trainer):
    """By the seed. A step that ends within a rollout batch has rows of two."""
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "steps_per_generation": 6}
    trainer = make_trainer(**TRIMMED, **options)
    first = random_order(trainer, 12)
    assert torch.equal(random_order(trainer, 12), first)
    in_fours = first.view(3, 4)
    assert torch.equal(in_fours.sort().values, in_fours)
    assert not torch.equal(first[:8].sort().values, first[:8])

    trainer.state.global_step = 1
    second = random_order(trainer, 12)
    trainer.args.seed += 1
    with_another_seed = random_order(trainer, 12)
    trainer.state.global_step = 0
    orders = [first, second, with_another_seed, random_order(trainer, 12)]
    assert len({tuple(order.tolist()) for order in orders[:3]}) == 3
    for order in orders:
        assert order.sort().values.tolist() == list(range(12))


@pytest.mark.parametrize("places", [[[2, 3], [0, 1]], [[0, 2], [1, 3]], [[3, 1], [2, 0]]], ids=str)
def test_micro_batches_are_those_that_were_scored(places):
    """Whatever TRL has done with their rows."""
    batches = [{PLACE: torch.tensor(of_batch), "row": of_batch} for of_batch in places]
    in_order = micro_batches_in_order(batches)
    assert [batch["row"] for batch in in_order] == [[0, 1], [2, 3]]


CONFIGS = {
    "qwen3": (qwen, PACKED),
    "qwen3 moe": (qwen_moe, PACKED),
    "dynamic": (lambda: dynamic_rope(16), PACKED),  # the batches of these tests are wider, their rows are not
    "longrope": (lambda: long_rope(16), PACKED),
    "windows in a layer": (windows_in_a_layer, PACKED),
    "eager": (lambda: qwen(attn_implementation="eager"), LEFT),
    "cpmant": (cpmant, None),
    "opt": (opt, PACKED),
}


def test_the_look_for_a_layout_leaves_no_trace(make_trainer):
    trainer = make_trainer(sharp(gpt2()), **TRIMMED)  # with dropout
    trainer.model.value_head = torch.nn.Linear(32, 1)  # which no log-probability depends on
    random_numbers = torch.get_rng_state()
    trainer.model.train()
    trainer.model.lm_head.eval()
    trainer.layouts.before_rollout()
    trainer.layouts.confirm([[2, 3]] * 8, [[4, 5]] * 8, False)
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
    score = trainer._get_per_token_logps_and_entropies
    scored = []

    def scoring(model, ids, mask, length, *args, **options):
        output = score(model, ids, mask, length, *args, **options)
        for row, valid, log_probs in zip(ids, mask.bool(), output[0].detach(), strict=True):
            tokens = tuple(row[valid].tolist())
            scored.append((tokens, log_probs[valid[-length:]]))
        return output

    trainer._get_per_token_logps_and_entropies = scoring
    return scored


STANDS_STILL = {"learning_rate": 0.0, "max_completion_length": 24}  # log ratios are 0 on the rollout's own policy


@pytest.mark.parametrize(("config", "layout"), CONFIGS.values(), ids=CONFIGS)
def test_trimming_changes_no_model(make_trainer, caplog, config, layout):
    """Scoring and loss agree, and both with TRL's."""
    options = {
        **STANDS_STILL,
        "per_device_train_batch_size": 2,
        "steps_per_generation": 8,
        "max_steps": 8,
        "trainer_options": {"rollout_func": ragged},
    }

    def log_probs_of_rows(kind) -> tuple:
        trainer = make_trainer(sharp(config()), **options, **kind)
        scored = scorings(trainer)
        trainer.train()
        rollout, losses = dict(scored[:16]), scored[16:]
        assert len(losses) == 16
        for row, log_probs in losses:
            torch.testing.assert_close(log_probs, rollout[row], atol=2e-5, rtol=0)
        return trainer, rollout

    trainer, ours = log_probs_of_rows(TRIMMED)
    _, theirs = log_probs_of_rows(TRL)
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)
    assert trainer.layouts.current == layout
    assert caplog.text.count("Its micro-batches are those of GRPOTrainer") == (layout is None)


@pytest.mark.parametrize(("config", "loss_type"), [(qwen, "dapo"), (qwen, "bnpo"), (qwen_moe, "dapo")])
def test_bfloat16_rounds_alike_in_scoring_and_loss(make_trainer, config, loss_type):
    """Every ratio is exactly 1: GSPO clips at 3e-4, a fraction of bfloat16's rounding."""
    trainer = make_trainer(
        sharp(config()),
        **TRIMMED,
        **STANDS_STILL,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        max_steps=2,
        bf16=True,
        beta=0.1,
        loss_type=loss_type,
        trainer_options={**LORA, "rollout_func": ragged},
    )
    scored = scorings(trainer)
    trainer.train()
    policy, reference, losses = dict(scored[:16]), dict(scored[16:32]), scored[32:]
    assert list(policy) == list(reference)
    assert len(losses) == 16
    for row, log_probs in losses:
        assert torch.equal(log_probs, policy[row])


def test_some_rows_are_scored_with_their_own_images(make_trainer):
    trainer = make_trainer(tiny.multimodal())
    one_image = [40] * 4 + [13] * 5
    two_images = [40] * 8 + [13]
    prompts = torch.tensor([one_image, two_images, one_image])
    batch = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": torch.arange(2, 11).view(3, 3),
        "completion_mask": torch.ones(3, 3, dtype=torch.long),
        "advantages": torch.ones(3),
        "pixel_values": 4 * torch.randn(4, 3, 16, 16),
        "num_images": [1, 2, 1],
    }
    every_row = torch.ones(3, dtype=torch.bool)
    policy = RolloutPolicy(trainer, batch, Rollout(torch.arange(3)), every_row)
    tokens = Tokens.of_batch(batch, policy)
    log_probs = tokens.log_probs.view(3, 3)
    rows = torch.tensor([2, 1])
    torch.testing.assert_close(tokens.log_probs_at(rows).view(2, 3), log_probs[rows])


def test_texts_of_a_multimodal_checkpoint_are_trimmed(make_trainer):
    """Which has images is a question of the batch, not of the model. Its rows have the positions of its text."""
    model = tiny.multimodal()
    assert kind_of(model)["positions"] == model.config.text_config.max_position_embeddings
    *_, narrow = trained(make_trainer, model, **RAGGED, **TRIMMED)
    *_, wide = trained(make_trainer, tiny.multimodal(), **RAGGED, **TRL)
    assert area(narrow) < 0.8 * area(wide)
