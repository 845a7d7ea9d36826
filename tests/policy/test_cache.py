"""Where hidden states are kept: the same coefficients from every tier, no more memory than promised, honest counts."""

import gc

import pytest
import torch
from trl import GRPOTrainer

from delta_trl.policy import cache
from delta_trl.policy.cache import HiddenStateCache, PinnedMemory, Placement
from delta_trl.policy.recorder import ScoringPass
from delta_trl.trainer.rollout_policy import RolloutPolicy

from ..corpus import tiny
from ..memory import PeakMemory
from ..trainers import ALIGNED, LORA, MISALIGNED, credit, logged, rollout_with_environment


CPU = torch.device("cpu")


@pytest.fixture
def _small_blocks(monkeypatch):
    """A few tokens per block, so that a rollout batch takes many."""
    monkeypatch.setattr(cache, "BLOCK_BYTES", 5 * 32 * 4)


# --- the trainer ---

BATCHES = {
    "plain": ALIGNED,
    "plain, misaligned": MISALIGNED,
    "lora and reference": {"trainer_options": LORA, "beta": 0.1},
    "lora, misaligned": {**MISALIGNED, "trainer_options": LORA},
    "tools": {"trainer_options": {"rollout_func": rollout_with_environment}},
    "tools, misaligned": {**MISALIGNED, "trainer_options": {"rollout_func": rollout_with_environment}},
    "truncated": {**MISALIGNED, "mask_truncated_completions": True, "max_completion_length": 24},
    "bf16": {**MISALIGNED, "bf16": True},
    "micro-batches": {"per_device_train_batch_size": 4, "steps_per_generation": 2},
    "lm_head": {**MISALIGNED, **credit(token_gradient="lm_head")},
    "topk_hidden": credit(token_gradient="topk_hidden"),
    "within_side": {**MISALIGNED, **credit("within_side")},
}


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("options", BATCHES.values(), ids=BATCHES)
def test_every_tier_gives_the_same_coefficients(make_trainer, rollout, options):
    expected = None
    for tier in ("device", "cpu", "recompute", "auto"):
        batch = rollout(make_trainer(**options, hidden_state_cache=tier))
        coefficients = batch["token_coefficients"]
        expected = coefficients if expected is None else expected
        assert coefficients.std() > 0
        torch.testing.assert_close(coefficients, expected, atol=1e-6, rtol=0)


def test_recomputed_passes_drop_the_same_units(make_trainer, rollout):
    """Dropout is on in TRL's scoring pass; states that it saw are those that are recomputed."""
    batches = []
    for tier in ("device", "recompute"):
        torch.manual_seed(1)
        model = tiny.model(attention_dropout=0.5)
        trainer = make_trainer(model, steps_per_generation=2, hidden_state_cache=tier, per_device_train_batch_size=4)
        batches.append(rollout(trainer))
    first, second = (batch["token_coefficients"] for batch in batches)
    torch.testing.assert_close(first, second, atol=1e-6, rtol=0)


@pytest.mark.parametrize("K", [0, 2])
@pytest.mark.parametrize(
    ("options", "readings", "per_refinement"),
    [
        (credit(), 3, 2),
        (credit(token_gradient="topk_hidden"), 1, 0),
        (credit(token_gradient="lm_head"), 3, 2),
        (credit("within_side"), 6, 5),
        (credit("side_mean"), 3, 2),
    ],
    ids=["output_row", "topk_hidden", "lm_head", "within_side", "side_mean"],
)
def test_recomputing_says_what_it_costs(make_trainer, rollout, monkeypatch, options, readings, per_refinement, K):
    for mode in (ALIGNED, MISALIGNED):
        refined = {"rule_kwargs": {"refinement_steps": K}}
        kwargs = refined if options["token_credit"] == "side_mean" else {"refinement_steps": K}
        kwargs = {**options["token_credit_kwargs"], **kwargs}
        trainer = make_trainer(
            **mode, token_credit=options["token_credit"], token_credit_kwargs=kwargs, hidden_state_cache="recompute"
        )
        trainer._trim(trainer.model)  # asks the model what may be trimmed
        calls = []
        score = GRPOTrainer._get_per_token_logps_and_entropies
        with monkeypatch.context() as patch:
            patch.setattr(
                GRPOTrainer,
                "_get_per_token_logps_and_entropies",
                lambda *a, calls=calls, score=score, **k: calls.append(1) or score(*a, **k),
            )
            rollout(trainer)
        passes = readings + K * per_refinement + (mode is ALIGNED)
        assert trainer._metrics["train"]["credit/extra_forward_passes"] == [passes]
        assert len(calls) == passes + (mode is MISALIGNED)


@pytest.mark.parametrize("tier", ["device", "cpu", "recompute"])
@pytest.mark.parametrize("mode", [ALIGNED, {"steps_per_generation": 4}], ids=["aligned", "misaligned"])
def test_peak_memory(make_trainer, rollout, tier, mode):
    """At most the hidden states of the valid tokens, and those of one micro-batch, beyond the peak without credit."""
    sizes = {"hidden_size": 256, "head_dim": 64}
    shared = {
        **mode,
        "per_device_train_batch_size": 8,
        "max_completion_length": 64,
        "mask_truncated_completions": True,
        "trainer_options": {"rollout_func": ragged_rollout},
    }
    if mode is ALIGNED:
        shared |= {"steps_per_generation": 4, "gradient_accumulation_steps": 4}

    def peak(**options):
        trainer = make_trainer(tiny.model(**sizes), **{**shared, **options})
        with PeakMemory() as memory:
            batch = rollout(trainer)
        return memory.peak, batch

    # with a reference pass instead, for in aligned mode there is no pass over the completions without credit
    score = {"beta": 0.1, "trainer_options": {**shared["trainer_options"], **LORA}} if mode is ALIGNED else {}
    without, _ = peak(token_credit="none", **score)
    credited, batch = peak(hidden_state_cache=tier)
    valid = batch["completion_mask"].bool()
    assert valid.float().mean() < 0.7  # else padding would go unnoticed
    micro_batch = 8 * (valid.size(1) + batch["prompt_ids"].size(1)) * 256 * 4
    # when recomputing, one micro-batch is read while the next is on its way
    kept = micro_batch if tier == "recompute" else valid.sum().item() * 256 * 4
    assert 0.9 * kept < credited - without <= kept + micro_batch


def ragged_rollout(prompts, trainer) -> dict:
    """Completions of 4 to 64 tokens, most of them short."""
    ids = [[2 + (i + t) % 30 for t in range(63 if i % 4 == 0 else 4 + i)] + [1] for i in range(len(prompts))]
    return {"prompt_ids": trainer.processing_class(prompts)["input_ids"], "completion_ids": ids, "logprobs": None}


@pytest.mark.parametrize("tier", ["device", "recompute", "no room"])
def test_nothing_of_a_rollout_batch_waits_for_the_garbage_collector(make_trainer, rollout, monkeypatch, tier):
    options = {"hidden_state_cache": "auto" if tier == "no room" else tier}
    if tier == "no room":
        monkeypatch.setattr(cache, "free_memory", lambda device: (0, 2**40))
    trainer = make_trainer(**MISALIGNED, **options)
    gc.collect()
    gc.disable()
    try:
        rollout(trainer)
        alive = [thing for thing in gc.get_objects() if type(thing) in (RolloutPolicy, ScoringPass, HiddenStateCache)]
        assert not alive
    finally:
        gc.enable()


# --- "auto" ---


def test_processes_of_a_host_share_its_memory(monkeypatch):
    """All of them ask at the same time."""
    monkeypatch.setattr(cache, "free_memory", lambda device: (0 if device.type == "meta" else 900, 1000))
    placement = Placement("auto", torch.device("meta"))
    assert placement.allocate(200, 1, torch.float32) is not None  # a tenth of 1000 stays free
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert placement.allocate(25, 1, torch.float32) is not None
    assert placement.allocate(26, 1, torch.float32) is None


@pytest.mark.parametrize("mode", [ALIGNED, MISALIGNED], ids=["aligned", "misaligned"])
def test_auto_recomputes_without_room_and_says_so_once(make_trainer, monkeypatch, caplog, mode):
    expected = make_trainer(**mode, max_steps=4, hidden_state_cache="device")
    expected.train()
    monkeypatch.setattr(cache, "free_memory", lambda device: (100, 100))
    ours = make_trainer(**mode, max_steps=4)
    ours.train()
    assert logged(ours, "loss") == pytest.approx(logged(expected, "loss"), abs=1e-6)
    assert set(logged(ours, "credit/extra_forward_passes")) == {5 if mode is MISALIGNED else 6}
    assert caplog.text.count("are recomputed") == 1


def test_auto_takes_main_memory_where_nothing_can_be_recomputed(make_trainer, rollout, monkeypatch):
    """By group, every part would be a pass: neither in the middle of a run nor at its start is that an error."""
    expected = rollout(make_trainer(**credit(centroid_scope="group"), hidden_state_cache="device"))
    monkeypatch.setattr(cache, "free_memory", lambda device: (100, 100))
    ours = rollout(make_trainer(**credit(centroid_scope="group")))
    torch.testing.assert_close(ours["token_coefficients"], expected["token_coefficients"])


def sizes(blocks) -> list[tuple[str, int, bool]]:
    return [(block.device.type, len(block), staged) for block, staged in blocks]


def test_auto_prefers_device_then_main_memory(monkeypatch, caplog):
    """The meta device stands in for one with memory of its own; blocks of ten float32 numbers."""
    monkeypatch.setattr(cache, "BLOCK_BYTES", 40)
    meta = torch.device("meta")
    free = {"meta": 180, "cpu": 180}
    monkeypatch.setattr(cache, "free_memory", lambda device: (free[device.type], 1000))
    placement = Placement("auto", meta)
    assert sizes(placement.allocate(20, 1, torch.float32)) == [("meta", 10, False)] * 2  # a tenth stays free
    assert not caplog.text
    for _ in range(2):
        assert sizes(placement.allocate(31, 1, torch.float32)) == [("meta", 10, False)] * 2 + [
            ("cpu", 10, True),
            ("cpu", 1, True),
        ]
    assert caplog.text.count("kept in main memory") == 1
    assert sizes(placement.allocate(20, 1, torch.float32, reserve=40)) == [("meta", 10, False), ("cpu", 10, True)]
    assert placement.allocate(41, 1, torch.float32) is None
    everything = Placement("auto", meta, may_recompute=False)
    assert sizes(everything.allocate(41, 1, torch.float32))[2:] == [("cpu", 10, True)] * 2 + [("cpu", 1, True)]


def test_a_forward_pass_is_left_room(make_trainer, rollout, monkeypatch):
    """Memory is asked for once, after the first and widest forward, for all tokens and with what that forward took."""
    asked = []
    allocate = Placement.allocate
    monkeypatch.setattr(Placement, "allocate", lambda self, *args: asked.append(args) or allocate(self, *args))
    trainer = make_trainer(per_device_train_batch_size=4, steps_per_generation=4)
    batch = rollout(trainer)
    assert asked == [(int(batch["completion_mask"].sum()), 32, torch.float32, 0)]  # a CPU keeps no such books


def test_auto_survives_an_allocation_that_fails(monkeypatch):
    """The figure was wrong: more than any address space is asked for in earnest."""
    monkeypatch.setattr(cache, "free_memory", lambda device: (2**60, 2**60))
    monkeypatch.setattr(cache, "BLOCK_BYTES", 2**60)
    assert Placement("auto", CPU).allocate(10**12, 1000, torch.bfloat16) is None
    for placement in (Placement("device", CPU), Placement("auto", CPU, may_recompute=False)):
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            placement.allocate(10**12, 1000, torch.bfloat16)


def test_pinned_memory_that_was_given_back_counts_as_free(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, dtype, pin_memory: empty(*size, dtype=dtype))
    memory = PinnedMemory()
    first, second = (memory.allocate(4, 8, torch.float32) for _ in range(2))
    assert (memory.used, memory.reusable) == (256, 0)
    part = first[:2]  # what readers hold
    del first
    assert memory.reusable == 0
    del part
    assert (memory.used, memory.reusable) == (128, 128)
    second = memory.allocate(4, 8, torch.float32)
    assert (memory.used, memory.reusable) == (128, 128)
    del second
    assert (memory.used, memory.reusable) == (0, 256)


def test_the_tightest_of_nested_control_groups_counts(monkeypatch, tmp_path):
    """SLURM limits a job in one group and leaves the step's, in which the process is, without limit."""
    for folder in ("", "slurm", "slurm/job", "slurm/job/step"):
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        (path / "memory.max").write_text("1000000" if folder == "slurm/job" else "max")
        (path / "memory.current").write_text("600000")
        (path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    (tmp_path / "cgroup").write_text("0::/slurm/job/step\n")
    monkeypatch.setattr(cache, "CGROUPS", tmp_path)
    monkeypatch.setattr(cache, "OWN_CGROUP", tmp_path / "cgroup")
    assert cache.free_memory(CPU) == (500000, 1000000)


def test_free_memory_is_below_all_memory():
    free, total = cache.free_memory(CPU)
    assert 0 < free <= total


# --- the cache itself ---


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("tier", ["device", "cpu"])
def test_what_is_written_is_read_back(tier):
    """In any order of the tokens, across blocks."""
    states = torch.randn(43, 32)
    kept = HiddenStateCache(Placement(tier, CPU).allocate(43, 32, torch.float32), CPU)
    for ranges in ([(20, 43), (0, 0)], [(1, 2)], [], [(2, 13), (0, 1)], [(13, 20)]):
        kept.write(torch.cat([states[a:b] for a, b in ranges] or [states[:0]]), ranges)
    read = kept.states()
    assert read.shape == (43, 32)
    assert len(read.blocks) == 9
    assert read.staged == [tier == "cpu"] * 9
    for tokens, chunk in read.chunks():
        assert torch.equal(chunk, states[tokens])


@pytest.mark.usefixtures("_small_blocks")
def test_what_is_given_back_is_never_beside_a_copy():
    """States of tools' tokens, of which TRL's scoring pass does not know: two copies would be over the budget."""
    wanted = torch.arange(4000) % 3 != 2
    with PeakMemory() as memory:
        kept = HiddenStateCache(Placement("device", CPU).allocate(4000, 64, torch.float32), CPU)
        for start in range(0, 4000, 500):
            kept.write(torch.full((500, 64), float(start)), [(start, start + 500)])
        everything = 4000 * 64 * 4
        kept.keep_only(wanted)
        assert memory.peak < 1.2 * everything
        assert memory.now < 0.7 * everything
    expected = (torch.arange(4000) // 500 * 500)[wanted]
    for tokens, chunk in kept.states().chunks():
        assert torch.equal(chunk, expected[tokens, None].expand(-1, 64).float())


def test_an_empty_cache():
    kept = HiddenStateCache(Placement("cpu", CPU).allocate(0, 8, torch.float32), CPU)
    kept.write(torch.randn(0, 8), [(0, 0)])
    assert kept.states().shape == (0, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_state_cache": "disk"}, "hidden_state_cache='disk'"),
        ({"hidden_state_cache": "cpu", **credit(token_gradient="full")}, "hidden_state_cache='cpu': without effect"),
        ({"hidden_state_cache": "cpu", **credit("random")}, "hidden_state_cache='cpu': without effect"),
        (
            {"hidden_state_cache": "recompute", **credit(centroid_scope="group")},
            "every prompt would cost forward passes",
        ),
    ],
    ids=str,
)
def test_options_that_cannot_work(make_trainer, options, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(**options)
