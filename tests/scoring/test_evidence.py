"""What a model shows before its rows run without padding, and what is asked of each model in each scoring call."""

import re
from functools import partial
from itertools import count

import pytest
import torch
from peft import LoraConfig
from torch import nn
from transformers import (
    AttentionInterface,
    BertConfig,
    BloomConfig,
    FalconConfig,
    GPTNeoConfig,
    LlamaConfig,
    MarianConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from delta_trl.scoring import evidence, layouts, stand_in
from delta_trl.scoring.stand_in import LEFT, PACKED

from ..corpus import tiny
from ..trainers import RAGGED, TRL, Compared, logged, ragged, sharp
from .runs import TRIMMED, Plain, cpmant, dynamic_rope, gpt2, leave_out, long_rope, mistral, opt, qwen, trained


def falcon() -> FalconConfig:
    """Whose attention calls torch itself, also where its config says `sdpa`."""
    return FalconConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=False)


def bloom() -> BloomConfig:
    """Whose forward takes no positions, and which does not depend on padding."""
    return BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4)


def few_tokens() -> Qwen3Config:
    """Of a model of bases or amino acids, say."""
    return Qwen3Config(**{**tiny.SIZES, "vocab_size": 7}, head_dim=8)


def layout_of(make_trainer, model, **options) -> str | None:
    trainer = make_trainer(model, **TRIMMED, **options)
    trainer.layouts.look()
    return trainer.layouts.current


@pytest.mark.parametrize("kind", ["autocast", "weights"])
@pytest.mark.parametrize(
    ("config", "layout"),
    [
        (qwen, PACKED),
        (lambda: mistral(window=4096), PACKED),
        (lambda: long_rope(4096), PACKED),
        (opt, PACKED),
        (few_tokens, PACKED),
        (falcon, LEFT),
        (bloom, LEFT),
        (cpmant, None),
    ],
    ids=["qwen3", "windows", "longrope", "opt", "few tokens", "falcon", "bloom", "cpmant"],
)
def test_bfloat16_hides_nothing(make_trainer, config, layout, kind):
    """Random models as they are initialised: what they compute otherwise is smaller than bfloat16's rounding."""
    torch.manual_seed(0)
    model = tiny.model(config())
    if kind == "weights":
        model = sharp(config()).bfloat16()
    assert layout_of(make_trainer, model, bf16=True) == layout


def test_models_are_compared_without_autocast(make_trainer):
    """Which accelerate puts into the model's own forward, once training begins."""
    trainer = make_trainer(sharp(), **RAGGED, **TRIMMED, bf16=True)
    seen = []
    comparing = []

    def note(module, args):
        seen.append(torch.is_autocast_enabled("cpu"))

    trainer.model.model.layers[0].register_forward_pre_hook(note)
    leave_out(trainer, seen, comparing)
    trainer.train()
    assert comparing
    assert not any(comparing)
    assert all(seen)
    assert trainer.layouts.current == PACKED


@pytest.mark.parametrize(
    "wrong",
    [lambda window: window - 1, lambda window: window + 1, lambda window: 2 * window, lambda window: None],
    ids=["narrower", "wider", "twice", "none"],
)
def test_a_window_is_proved_by_narrow_ones(make_trainer, monkeypatch, wrong):
    """A band that is wrong shows in no short row, unless the windows are narrow, too; in bfloat16, not even then."""
    right = stand_in._attention_of_row

    def attention(module, query, key, value, window, options):
        return right(module, query, key, value, wrong(window), options)

    monkeypatch.setattr(stand_in, "_attention_of_row", attention)
    torch.manual_seed(0)
    model = tiny.model(config := mistral())
    assert layout_of(make_trainer, model, bf16=True) == LEFT
    assert config.sliding_window == 12


@pytest.mark.parametrize("passes", [2, 5, 15], ids=["alone", "rounded", "in narrow windows"])
def test_a_search_that_fails_leaves_no_trace(make_trainer, caplog, passes):
    """Not in the model, its windows, nor in the modules of others."""
    numbers = count()

    def fail(*args):
        if next(numbers) >= passes:
            raise RuntimeError("an image is missing")

    model = sharp(config := mistral())
    model.model.register_forward_pre_hook(fail)
    assert layout_of(make_trainer, model.train()) is None
    assert "an image is missing" in caplog.text
    assert model.training
    assert config.sliding_window == 12
    assert nn.Identity()(torch.ones(1)) == 1


def test_a_window_that_the_model_does_not_apply_is_not_proved(make_trainer, monkeypatch):
    monkeypatch.setattr(evidence, "NARROW", 12)  # no row of the probe is longer
    assert layout_of(make_trainer, sharp(mistral())) == LEFT


def test_a_row_that_depends_on_others_shows_below_the_tolerance(make_trainer):
    """Bits are compared: this is smaller than rounding, and would grow with the batch."""
    model = sharp()
    model.model.norm.register_forward_hook(lambda module, args, output: output + 1e-6 * output.abs().mean())
    assert layout_of(make_trainer, model) is None


@pytest.mark.parametrize(("positions", "layouts"), [(512, {None}), (16, {None, LEFT})])
def test_a_prompt_that_attends_to_completions_shows_in_16_bits(make_trainer, positions, layouts):
    """
    Two completions of a pack would share it, and what was sampled saw no later token in any layout. The difference is
    smaller than the rounding of weights in bfloat16. No token may be far away in a table of 16 positions.
    """
    config = BertConfig(**tiny.SIZES, max_position_embeddings=positions)
    model = sharp(config, factor=4).bfloat16()
    assert layout_of(make_trainer, model) in layouts


@pytest.mark.parametrize("change", [torch.Tensor.detach, lambda states: states * torch.nan], ids=["detached", "nan"])
def test_gradients_are_compared(make_trainer, change):
    """With equal values: what is packed is cut off from its gradient in one layer. And NaN equals nothing."""
    model = sharp()
    model.model.layers[0].mlp.register_forward_hook(
        lambda module, args, output: change(output) if len(output) == 1 else output
    )
    assert layout_of(make_trainer, model) == LEFT


def test_no_more_than_a_tenth_is_rounding(make_trainer, caplog):
    """Gradients in 16 bit are rounded by more."""
    model = sharp().bfloat16()
    model.model.layers[0].mlp.register_forward_hook(
        lambda module, args, output: output if len(output) == 2 else output.detach()  # two copies are the truth
    )
    assert layout_of(make_trainer, model) is None
    assert "each row alone differ by" in caplog.text
    assert "allowed are 1.0e-01" in caplog.text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((0.1, 0.0, 0.0), 0.02),
        ((0.0, 1.0, 0.0), 0.01),
        ((0.0, 0.0, 0.01), 0.01),
        ((0.1, 0.0, torch.nan), torch.nan),
    ],
)
def test_differences_are_relative(changes, expected):
    """But to a hundredth of all gradients, where one is smaller: it may be rounding alone."""
    truth = torch.tensor([5.0, 100.0, 0.0])  # the first is no gradient
    ours = truth + torch.tensor(changes)
    assert evidence.distance(list(ours), list(truth)) == pytest.approx(expected, nan_ok=True)
    nothing = list(torch.zeros(3))
    assert evidence.distance(nothing, nothing) == 0


def test_high_positions_are_compared(make_trainer):
    """What one of them changes in the other rows. Real rows, which need not have any, do not make up for it."""

    def halve(module, args, inputs):
        positions = inputs["position_ids"]
        is_packed_and_high = len(positions) == 1 and positions.max() > 100
        return args, {"position_ids": positions // 2 if is_packed_and_high else positions}

    model = sharp(mistral(window=None))
    model.model.rotary_emb.register_forward_pre_hook(halve, with_kwargs=True)
    trainer = make_trainer(model, **TRIMMED)
    low = evidence.real_rows([[2, 3]], [[4, 5]], torch.device("cpu"))
    for real in (None, low):
        trainer.layouts.look(real)
        assert trainer.layouts.current == LEFT


def hybrid(layers: int = 2) -> Qwen3_5TextConfig:
    """Of which every second layer has a state."""
    heads = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    }
    types = ["linear_attention", "full_attention"] * (layers // 2)
    sizes = {**tiny.SIZES, "num_hidden_layers": layers}
    return Qwen3_5TextConfig(**sizes, head_dim=8, layer_types=types, **heads)


def test_gradients_that_are_rounding_alone_refuse_nothing(make_trainer):
    """As those of the decay in a layer with a state."""
    assert layout_of(make_trainer, sharp(hybrid(), factor=6)) == LEFT


def gpt_neo() -> GPTNeoConfig:
    types = [[["global", "local"], 1]]
    return GPTNeoConfig(vocab_size=40, hidden_size=32, num_layers=2, num_heads=4, attention_types=types)


def marian() -> MarianConfig:
    """Whose forward takes no positions: `generate` counts padding, too."""
    heads = {"decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
    return MarianConfig(vocab_size=40, d_model=32, pad_token_id=0, eos_token_id=1, dropout=0, **heads)


@pytest.mark.parametrize("config", [gpt2, gpt_neo, opt, qwen, marian])
def test_scored_is_what_was_sampled(make_trainer, config):
    """`generate` gives the prompts in a batch, of several lengths, the logits of which it samples."""
    model = sharp(config(), factor=4).eval()
    trainer = make_trainer(model, **TRIMMED)
    prompts = torch.tensor([[0, 0, 0, 5, 6], [0, 7, 8, 9, 5], [0, 0, 3, 4, 5]])
    mask = (prompts > 0).long()
    output = model.generate(
        prompts,
        attention_mask=mask,
        do_sample=False,
        min_new_tokens=6,
        max_new_tokens=6,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    of_all = torch.stack(output.logits, dim=1).log_softmax(dim=-1)
    completion_ids = output.sequences[:, -6:]
    sampled = of_all.gather(2, completion_ids[:, :, None])[:, :, 0]

    trainer.layouts.look()
    mask = torch.cat([mask, torch.ones_like(completion_ids)], dim=1)
    with torch.no_grad():
        scored, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, output.sequences, mask, 6)
    torch.testing.assert_close(scored, sampled, atol=2e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_warning_says_by_how_much_padding_changes_a_model(make_trainer, caplog, dtype):
    """In 16 bit, the rounding of gradients is as large. It says nothing of log-probabilities."""
    layouts.logger.warning_once.cache_clear()
    layout_of(make_trainer, sharp(qwen()).to(dtype))
    assert "padding moves" not in caplog.text
    layout_of(make_trainer, sharp(gpt2(), factor=4).to(dtype))
    message = r"GPT2LMHeadModel .* padding moves .*up to [0-9.]+ nats a token.* differ by (\S+), allowed are (\S+)\.\n"
    difference, allowed = re.search(message, caplog.text).groups()
    assert float(difference) > float(allowed)


def test_padding_changes_a_token_by_up_to_so_many_nats():
    """The most that it changes any, in either direction."""
    rows = evidence.real_rows([[5], [6]], [[7, 8], [9, 1]], torch.device("cpu"))
    with_padding = torch.tensor([[0.0, -1.5], [0.5, 0.0]])
    model = object()

    def score(runs, *inputs, batch_size):
        return [with_padding if runs is model else torch.zeros(2, 2)]

    padded = evidence.Evidence(score, model, [], rows, eps=1e-7).padded()
    assert "(by up to 1.5 nats a token)" in str(padded)


class Mixing(nn.Module):
    """Adds to each state the mean over all of them, times a gate."""

    def __init__(self, gate: float = 0.0, longer_than: int = 0):
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(gate))
        self.longer_than = longer_than

    def forward(self, states):
        return states + self.gate * states.mean() if states.size(1) > self.longer_than else states


class BatchNorm(nn.BatchNorm1d):
    def forward(self, states):
        return super().forward(states.flatten(0, 1)).view_as(states)


def followed_by(module: nn.Module):
    """A model whose last norm is followed by a module."""
    model = sharp()
    model.model.norm = nn.Sequential(model.model.norm, module)
    return model


def test_a_gate_of_zero_hides_nothing(make_trainer):
    """What it lets in later shows in its gradient."""
    assert layout_of(make_trainer, followed_by(Mixing())) is None


def test_a_model_that_mixes_rows_is_not_said_to_have_moved_positions(make_trainer, caplog):
    layouts.logger.warning_once.cache_clear()
    assert layout_of(make_trainer, followed_by(Mixing(gate=1.0))) is None
    assert "Its micro-batches are those of GRPOTrainer" in caplog.text
    assert "padding moves" not in caplog.text


def test_models_are_compared_in_training_and_left_as_they_were(make_trainer):
    """In evaluation, batch norm is as it should be."""
    model = followed_by(BatchNorm(32))
    assert layout_of(make_trainer, model.eval()) == PACKED
    before = [buffer.clone() for buffer in model.buffers()]
    assert layout_of(make_trainer, model.train()) is None
    assert all(map(torch.equal, model.buffers(), before))


def test_real_rows_are_as_trl_pads_them():
    rows = evidence.real_rows([[5], [6, 0]], [[7, 8, 1], [9]], torch.device("cpu"))
    assert rows.ids.tolist() == [[0, 5, 7, 8, 1], [6, 0, 9, 0, 0]]
    assert rows.mask.tolist() == [[0, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert rows.n_completion == 3


def test_real_rows_confirm_the_layout_before_they_are_scored(make_trainer, caplog):
    """Here, what is wrong begins beyond the columns of the short rows."""
    weights = []
    for kind in (TRIMMED, TRL):
        options = {**RAGGED, "optim": "sgd", "learning_rate": 0.5, **kind}
        model = followed_by(Mixing(gate=0.3, longer_than=16))
        _, of_kind, _ = trained(make_trainer, model, **options)
        weights.append(of_kind)
    assert "real rows moved to the left, in training, and each row alone differ by" in caplog.text
    torch.testing.assert_close(*weights, atol=1e-6, rtol=0)


def test_real_rows_confirm_the_layout_again(make_trainer):
    """In the 8th rollout batch after the first, and not before."""
    module = Mixing(gate=0.3, longer_than=1000)
    trainer = make_trainer(followed_by(module), **TRIMMED)
    trainer.model.train()
    trainer.layouts.before_rollout()
    rows = [list(range(2, 12)), list(range(12, 24))]
    found = []
    for _ in range(9):
        trainer.layouts.confirm(rows, rows, False)
        module.longer_than = 0  # nothing tells that the model has changed
        found.append(trainer.layouts.current)
    assert found == [PACKED] * 8 + [None]


def looked(make_trainer, module: nn.Module):
    """The layouts of a trainer that has found one."""
    trainer = make_trainer(followed_by(module), **TRIMMED)
    trainer.model.train()
    trainer.layouts.before_rollout()
    assert trainer.layouts.current == PACKED
    return trainer.layouts


@pytest.mark.parametrize(
    ("longest", "prompt", "completion"),
    [
        (0, 32, 2),
        (3, 2, 32),
        (7, 20, 20),
    ],
)
def test_the_longest_row_is_among_the_real_ones(make_trainer, longest, prompt, completion):
    """Far from another one, whose prompt and completion are longer than those of most."""
    layouts = looked(make_trainer, Mixing(gate=0.3, longer_than=30))
    lengths = [(2, 2)] * 8
    lengths[longest - 4] = (6, 6)
    lengths[longest] = (prompt, completion)
    prompts, completions = [], []
    for before, after in lengths:
        prompts.append([2] * before)
        completions.append([3] * after)
    layouts.confirm(prompts, completions, False)
    assert layouts.current is None


@pytest.mark.parametrize(
    ("completions", "has_images"),
    [
        ([[], []], False),
        ([[4, 5], []], False),
        ([list(range(2, 34))] * 2, True),
    ],
)
def test_rows_that_say_nothing_of_the_layout_leave_it(make_trainer, completions, has_images):
    """Without a completion, or with images, which have TRL's rows."""
    layouts = looked(make_trainer, Mixing(gate=0.3, longer_than=100))
    layouts.confirm([[2, 3]] * 2, completions, has_images)
    assert layouts.current == PACKED


def test_rows_beyond_the_models_positions_leave_the_layout(make_trainer):
    """They have TRL's rows, too."""
    trainer = make_trainer(sharp(dynamic_rope(16)), **TRIMMED)
    trainer.layouts.before_rollout()
    trainer.layouts.confirm([[2] * 8] * 2, [[3] * 12, [4] * 6], False)
    assert trainer.layouts.current == PACKED


@pytest.mark.parametrize("has_images", [False, True])
@pytest.mark.parametrize(("batch_size", "rows"), [(2, 2), (8, 4)])
def test_real_rows_take_as_many_passes_whatever_they_are(make_trainer, batch_size, rows, has_images):
    """On all processes: each row alone, the same with rounding, and together no more than a micro-batch has."""
    model = sharp()
    passes = []
    model.model.register_forward_pre_hook(lambda *args: passes.append(args))
    trainer = make_trainer(model, **TRIMMED, per_device_train_batch_size=batch_size, steps_per_generation=2)
    trainer.layouts.before_rollout()
    passes.clear()
    trainer.layouts.confirm([[2, 3]] * 8, [[4, 5]] * 8, has_images)
    assert len(passes) == 2 * rows + 1


@pytest.mark.parametrize("change", ["hook", "forward"])
def test_a_model_that_has_changed_is_compared_again(make_trainer, rollout, change):
    trainer = make_trainer(sharp(), **RAGGED)
    rollout(trainer)
    assert trainer.layouts.current == PACKED
    norm = trainer.model.model.norm
    if change == "hook":
        norm.register_forward_hook(lambda module, args, output: output + 0.1 * output.mean())
    else:
        original = norm.forward
        norm.forward = lambda states: original(states + 0.1 * states.mean())
    in_between = scores(trainer, trainer.model)
    rollout(trainer)
    assert trainer.layouts.current is None
    torch.testing.assert_close(scores(trainer, trainer.model), in_between, atol=1e-6, rtol=0)


def chunks() -> LlamaConfig:
    """Which are no windows."""
    config = LlamaConfig(**tiny.SIZES, layer_types=["chunked_attention", "full_attention"])
    config.sliding_window = config.attention_chunk_size = 8
    return config


@pytest.mark.parametrize(
    ("config", "possible"),
    [
        (mistral, True),
        (hybrid, False),
        (chunks, False),
    ],
)
def test_rows_may_be_packed_where_attention_alone_mixes_tokens(config, possible):
    stand_in.register_attention()
    kind = stand_in.kind_of(tiny.model(config()))
    assert stand_in.can_be_packed(kind) is possible


# --- what is asked in each call ---


def scores(trainer, model, T: int = 8) -> torch.Tensor:
    """Log-probabilities of some random completions, but for their padding."""
    ids = torch.randint(2, 38, (4, 28), generator=torch.Generator().manual_seed(0))
    mask = torch.zeros_like(ids)
    for row, (first, last) in enumerate([(16, 24), (12, 22), (12, 24), (12, 24)]):
        mask[row, first:last] = 1
    with torch.no_grad():
        log_probs, *_ = trainer._get_per_token_logps_and_entropies(model, ids, mask, T)
    return log_probs[mask[:, -T:] == 1]


@pytest.mark.parametrize(
    ("policy", "reference"),
    [
        (qwen, lambda: qwen(attn_implementation="eager")),
        (lambda: mistral(window=None), mistral),
        (lambda: long_rope(26, beyond=1.0), lambda: long_rope(26)),
        (lambda: dynamic_rope(104), lambda: dynamic_rope(26)),
        (qwen, opt),  # takes no positions
        (qwen, lambda: hybrid(layers=4)),  # with as many layers of attention
    ],
    ids=["eager", "window", "rope", "positions", "class", "hybrid"],
)
def test_a_model_of_another_kind_than_the_policy_keeps_trls_rows(make_trainer, policy, reference):
    """A reference or a teacher. The policy's rows stay packed."""
    other = sharp(reference()).eval()
    add_fused_lm_head(other, outputs=("log_probs", "entropy"))
    theirs = scores(make_trainer(sharp(policy()), **TRL), other)
    trainer = make_trainer(sharp(policy()), **TRIMMED)
    trainer.model.train()
    trainer.layouts.look()
    torch.testing.assert_close(scores(trainer, other), theirs, atol=2e-5, rtol=0)
    assert trainer.layouts.current == PACKED


def doubled(module, query, key, value, *args, **options):
    """A user's attention."""
    return sdpa_attention_forward(module, 2 * query, key, value, *args, **options)


@pytest.fixture
def attention():
    """Registers an attention function, and at the end ours again."""
    yield partial(AttentionInterface.register, "sdpa")
    AttentionInterface.register("sdpa", sdpa_attention_forward)
    stand_in.register_attention()


def test_an_attention_of_the_users_stays(make_trainer, attention):
    """Nobody replaces it, and rows train as they do with it in TRL."""
    attention(doubled)
    weights = []
    for kind in (TRIMMED, TRL):
        options = {**RAGGED, "optim": "sgd", "learning_rate": 0.5, **kind}
        trainer, weights_of_kind, _ = trained(make_trainer, sharp(), **options)
        if kind is TRIMMED:
            assert trainer.layouts.current == LEFT
        weights.append(weights_of_kind)
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is doubled
    torch.testing.assert_close(*weights, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("wider_than", [0, 40])
def test_a_layer_with_a_mask_of_its_own_is_not_packed(make_trainer, wider_than):
    """
    It is too wide for the rows of the probe. Attention within packed rows would not see it. A layer may have one in
    real rows alone.
    """

    def narrow(module, args, inputs):
        mask = inputs["attention_mask"]
        if mask is not None and mask.size(-1) > wider_than:
            columns = torch.arange(mask.size(-1))
            inputs["attention_mask"] = mask & (columns > columns[:, None] - 32)
        return args, inputs

    model = sharp(qwen(max_position_embeddings=16))  # none of which is far away
    model.model.layers[1].self_attn.register_forward_pre_hook(narrow, with_kwargs=True)
    trainer = make_trainer(model, **TRIMMED)
    long = [list(range(2, 17))] * 2
    trainer.layouts.look(evidence.real_rows(long, long, torch.device("cpu")))
    assert trainer.layouts.current == LEFT


@pytest.mark.parametrize("change", ["eager", "doubled"])
def test_attention_may_change_after_the_first_step(make_trainer, rollout, attention, change):
    """Log-probabilities and token credit are those of a plain forward, in several micro-batches."""
    trainer = make_trainer(sharp(), Compared, **RAGGED)
    rollout(trainer)
    assert trainer.layouts.current == PACKED
    if change == "eager":
        trainer.model.set_attn_implementation("eager")
    else:
        attention(doubled)
    rollout(trainer)


def test_a_layer_may_take_another_mask_later(make_trainer, rollout, caplog):
    """Rows that were packed run again as TRL's, and from now on all rows."""
    later = False

    def with_own_mask(module, args, inputs):
        if later and inputs["attention_mask"] is not None:
            inputs["attention_mask"] = inputs["attention_mask"].clone()
        return args, inputs

    model = sharp()
    model.model.layers[1].self_attn.register_forward_pre_hook(with_own_mask, with_kwargs=True)
    trainer = make_trainer(model, Compared, **RAGGED)
    rollout(trainer)
    assert trainer.layouts.current == PACKED
    later = True
    rollout(trainer)
    assert trainer.layouts.current is None
    assert caplog.text.count("packed rows miss an attention layer") == 1


class LeavesReasoningOut:
    """Every second token of a completion is not in the loss."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if "completion_mask" in batch:
            batch["completion_mask"] = batch["completion_mask"].clone()
            batch["completion_mask"][:, 1::3] = 0
        return batch


def losses(make_trainer, kind, **options) -> list[float]:
    """Losses and norms of gradients of a training on rows of many lengths."""
    trainer = make_trainer(sharp(), **{**RAGGED, **kind, **options})
    trainer.train()
    return [*logged(trainer, "loss"), *logged(trainer, "grad_norm")]


def test_rows_with_gaps_are_predicted_from_where_trl_predicts_them(make_trainer):
    values = []
    for kind, base in ((TRIMMED, Plain), (TRL, GRPOTrainer)):
        mixed = type("Mixed", (LeavesReasoningOut, base), {})
        values.append(losses(make_trainer, kind, trainer_class=mixed))
    ours, theirs = values
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


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
        options = {"num_iterations": 1, "learning_rate": 0.5, "optim": "sgd"}
        options["trainer_options"] = {"rollout_func": ragged, "peft_config": adapter}
        values.append(losses(make_trainer, kind, **options))
    ours, theirs = values
    assert max(theirs) > 0.01
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_the_search_leaves_the_model_s_forward_as_accelerate_made_it(make_trainer):
    """Which enters autocast."""
    kept = []

    def reward(completions, **kwargs):
        of_accelerate = vars(trainer.model)["forward"]
        assert of_accelerate is not vars(trainer.model)["_original_forward"]
        trainer.layouts.look()
        kept.append(trainer.model.forward is of_accelerate)
        return [0.0] * len(completions)

    trainer = make_trainer(bf16=True, max_steps=1, reward_funcs=reward)
    trainer.train()
    assert kept == [True]
