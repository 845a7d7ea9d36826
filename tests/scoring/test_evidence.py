"""What a model shows before its rows run without padding, and what is asked of each model in each scoring call."""

import pytest
import torch
from peft import LoraConfig
from transformers import AttentionInterface, FalconConfig, LlamaConfig, MistralConfig, OPTConfig, Phi3Config
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from delta_trl.scoring import evidence, stand_in
from delta_trl.scoring.padding_free import PaddingFree
from delta_trl.scoring.stand_in import LEFT, PACKED

from ..corpus import tiny
from ..trainers import RAGGED, TRL, Compared, logged, ragged, sharp


class Plain(PaddingFree, GRPOTrainer):
    pass


TRIMMED = {**TRL, "trainer_class": Plain}
VOCAB = {"vocab_size": tiny.SIZES["vocab_size"], "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}


def long_rope() -> Phi3Config:
    """As Phi-3-128k: other factors beyond 4,096 positions."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 4096}
    rope |= {"short_factor": [1.0 + 0.1 * i for i in range(4)], "long_factor": [1.0 + 15.0 * i for i in range(4)]}
    sizes = {**tiny.SIZES, "original_max_position_embeddings": 4096, "max_position_embeddings": 131072}
    return Phi3Config(**sizes, rope_parameters=rope)


def falcon() -> FalconConfig:
    """Whose attention calls torch itself, also where its config says `sdpa`."""
    return FalconConfig(**VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=False)


def opt() -> OPTConfig:
    return OPTConfig(**{**tiny.SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0})


def mistral() -> MistralConfig:
    return MistralConfig(**tiny.SIZES, head_dim=8, sliding_window=12)


def layout_of(make_trainer, model, **options) -> str | None:
    trainer = make_trainer(model, **TRIMMED, **options)
    trainer._find_layout()
    return trainer._layout


@pytest.mark.parametrize("kind", ["autocast", "weights"])
@pytest.mark.parametrize(
    ("config", "layout"),
    [
        (lambda: None, PACKED),
        (mistral, PACKED),
        (long_rope, None),
        (opt, None),
        (falcon, LEFT),
    ],
    ids=["qwen3", "windows", "longrope", "opt", "falcon"],
)
def test_bfloat16_hides_nothing(make_trainer, config, layout, kind):
    """Random models as they are initialised: what they compute otherwise is smaller than bfloat16's rounding."""
    torch.manual_seed(0)
    model = tiny.model(config())
    if kind == "weights":
        model = sharp(config()).bfloat16()
    assert layout_of(make_trainer, model, bf16=True) == layout


@pytest.mark.parametrize(
    "wrong",
    [lambda window: window - 1, lambda window: window + 1, lambda window: 2 * window, lambda window: None],
    ids=["narrower", "wider", "twice", "none"],
)
def test_a_window_is_proved_by_narrow_ones(make_trainer, monkeypatch, wrong):
    """A band that is wrong shows in no short row, unless the windows are narrow, too; in bfloat16, not even then."""
    right = stand_in.sliding_mask
    monkeypatch.setattr(stand_in, "sliding_mask", lambda length, window, device: right(length, wrong(window), device))
    torch.manual_seed(0)
    model = tiny.model(config := mistral())
    assert layout_of(make_trainer, model, bf16=True) == LEFT
    assert config.sliding_window == 12


def test_a_window_that_the_model_does_not_apply_is_not_proved(make_trainer, monkeypatch):
    monkeypatch.setattr(evidence, "NARROW", 12)  # no row of the probe is longer
    assert layout_of(make_trainer, sharp(mistral())) == LEFT


def test_a_row_that_depends_on_others_shows_below_the_tolerance(make_trainer):
    """Bits are compared: this is smaller than rounding, and would grow with the batch."""
    model = sharp()
    model.get_input_embeddings().register_forward_hook(lambda module, args, output: output + 1e-5 * output.mean())
    assert layout_of(make_trainer, model) is None


def test_gradients_are_compared(make_trainer):
    """With equal values: what is packed is cut off from its gradient in one layer."""
    model = sharp()
    model.model.layers[0].mlp.register_forward_hook(
        lambda module, args, output: output.detach() if len(output) == 1 else output
    )
    assert layout_of(make_trainer, model) == LEFT


def test_high_positions_are_compared(make_trainer):
    def halve(module, args, inputs):
        positions = inputs["position_ids"]
        is_packed_and_high = len(positions) == 1 and positions.min() > 100
        return args, {"position_ids": positions // 2 if is_packed_and_high else positions}

    model = sharp(MistralConfig(**tiny.SIZES, head_dim=8, sliding_window=None))
    model.model.rotary_emb.register_forward_pre_hook(halve, with_kwargs=True)
    assert layout_of(make_trainer, model) == LEFT


def test_chunks_are_no_windows(make_trainer):
    config = LlamaConfig(**tiny.SIZES, layer_types=["chunked_attention", "full_attention"])
    config.sliding_window = config.attention_chunk_size = 8
    kind = stand_in.kind_of(model := tiny.model(config), model)
    assert not stand_in.can_be_packed(kind)


# --- what is asked in each call ---


def scores(trainer, model, T: int = 8) -> torch.Tensor:
    ids = torch.randint(2, 38, (4, 28), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[:, :12] = mask[0, :16] = mask[1, 22:] = mask[:, 24:] = 0
    with torch.no_grad():
        return trainer._get_per_token_logps_and_entropies(model, ids, mask, T)[0][mask[:, -T:] == 1]


def other_models():
    eager = sharp()
    eager.set_attn_implementation("eager")
    windows = sharp(mistral())
    full = sharp(MistralConfig(**tiny.SIZES, head_dim=8, sliding_window=None))
    # rotary factors that the columns of padding decide
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 26}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4}
    sizes = {**tiny.SIZES, "original_max_position_embeddings": 26}
    far = sharp(Phi3Config(**sizes, max_position_embeddings=104, rope_parameters=rope))
    near = sharp(Phi3Config(**sizes, max_position_embeddings=104))
    few = LlamaConfig(
        **tiny.SIZES,
        max_position_embeddings=26,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    )
    many = LlamaConfig(**{**few.to_dict(), "max_position_embeddings": 104})
    return {
        "eager": (sharp(), eager),
        "window": (full, windows),
        "rope": (near, far),
        "positions": (sharp(many), sharp(few)),
    }


@pytest.mark.parametrize("name", ["eager", "window", "rope", "positions"])
def test_a_model_of_another_kind_than_the_policy_keeps_trls_rows(make_trainer, name):
    """A reference of the policy's class, with other attention or positions."""
    policy, reference = other_models()[name]
    add_fused_lm_head(reference.eval(), outputs=("log_probs", "entropy"))
    found = []
    for kind in (TRIMMED, TRL):
        trainer = make_trainer(policy, **kind)
        trainer.model.train()
        if kind is TRIMMED:
            trainer._find_layout()
            assert trainer._layout == PACKED
        found.append(scores(trainer, reference))
    torch.testing.assert_close(*found, atol=2e-5, rtol=0)


def attention_of_transformers(model):
    """Whoever registers an attention function replaces ours."""
    AttentionInterface.register("sdpa", sdpa_attention_forward)


@pytest.mark.parametrize(
    "change", [lambda model: model.set_attn_implementation("eager"), attention_of_transformers], ids=["eager", "ours"]
)
def test_attention_may_change_after_the_first_step(make_trainer, rollout, caplog, change):
    """Log-probabilities and token credit are those of a plain forward, in several micro-batches."""
    trainer = make_trainer(sharp(), Compared, **RAGGED)
    rollout(trainer)
    assert trainer._layout == PACKED
    before = scores(trainer, trainer.model)
    try:
        change(trainer.model)
        rollout(trainer)
        torch.testing.assert_close(scores(trainer, trainer.model), before, atol=2e-5, rtol=0)
        assert caplog.text.count("packed rows miss an attention layer") == (change is attention_of_transformers)
    finally:
        stand_in.register_attention()


class LeavesReasoningOut:
    """Every second token of a completion is not in the loss."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if "completion_mask" in batch:
            batch["completion_mask"] = batch["completion_mask"].clone()
            batch["completion_mask"][:, 1::3] = 0
        return batch


def test_rows_with_gaps_are_predicted_from_where_trl_predicts_them(make_trainer):
    values = []
    for kind, base in ((TRIMMED, Plain), (TRL, GRPOTrainer)):
        mixed = type("Mixed", (LeavesReasoningOut, base), {})
        trainer = make_trainer(sharp(), **{**RAGGED, **kind, "trainer_class": mixed})
        trainer.train()
        values.append([*logged(trainer, "loss"), *logged(trainer, "grad_norm")])
    assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-5)


def test_activated_lora_keeps_trls_rows(make_trainer):
    """
    The adapter begins at the last invocation in each row, and in a pack of rows at the last of all. No row of the
    probe has this token.
    """
    values = []
    for kind in (TRIMMED, TRL):
        adapter = LoraConfig(
            r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", alora_invocation_tokens=[25]
        )
        options = {**RAGGED, "num_iterations": 1, "learning_rate": 0.5, "optim": "sgd"}
        options["trainer_options"] = {"rollout_func": ragged, "peft_config": adapter}
        trainer = make_trainer(sharp(), **options, **kind)
        trainer.train()
        values.append([*logged(trainer, "loss"), *logged(trainer, "grad_norm")])
    assert max(values[1]) > 0.01
    assert values[0] == pytest.approx(values[1], abs=1e-4)
