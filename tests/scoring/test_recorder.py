"""Where hidden states are kept, and for how long. What a GPU does, too, is in tests/gpu/test_hidden_states.py."""

import gc

import pytest
import torch
from peft import PromptTuningConfig, get_peft_model

from delta_trl.credit import HiddenStates
from delta_trl.scoring import recorder
from delta_trl.scoring.policy import RolloutPolicy
from delta_trl.scoring.recorder import Recorder, backbone_of, without_adapter

from ..memory import PeakMemory
from ..trainers import MISALIGNED, sharp


CPU = torch.device("cpu")


def test_nothing_of_a_rollout_batch_waits_for_the_garbage_collector(make_trainer, rollout):
    trainer = make_trainer(**MISALIGNED)
    gc.collect()
    gc.disable()
    try:
        rollout(trainer)
        alive = [thing for thing in gc.get_objects() if type(thing) in (RolloutPolicy, Recorder, HiddenStates)]
        assert not alive
    finally:
        gc.enable()


# --- one pass ---


def with_virtual_tokens():
    return get_peft_model(sharp(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


@pytest.mark.parametrize(("make", "autocast"), [(sharp, False), (sharp, True), (with_virtual_tokens, False)])
def test_states_are_put_together_row_by_row(make, autocast):
    """Of micro-batches in any order, in the dtype in which they enter the LM head; 0 in rows that did not run."""
    model = make()
    lengths = torch.tensor([4, 1, 3, 2])
    tokens = torch.arange(4) < lengths[:, None]
    ids = torch.randint(2, 38, (4, 3 + 4))
    labels = ids.clone()
    labels[:, :3] = -100
    labels[:, 3:][~tokens] = -100
    recorder = Recorder(backbone_of(without_adapter(model)))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        states = model(ids, output_hidden_states=True).hidden_states[-1][:, -5:-1]
        recorder.expect(torch.tensor([3, 0, 2]), tokens)
        recorder.run(model, 2, input_ids=ids[[3, 0]], labels=labels[[3, 0]])
        recorder.finish(tokens)
        assert recorder.hidden is None  # a row is still to come
        recorder.run(model, 1, input_ids=ids[[2]], labels=labels[[2]])
    recorder.finish(tokens)

    states[1] = 0.0
    found = torch.cat([states for _, states in recorder.hidden.chunks()])
    assert recorder.hidden.dtype == (torch.bfloat16 if autocast else torch.float32)
    torch.testing.assert_close(found.float(), states[tokens].float(), atol=0.1 if autocast else 1e-5, rtol=1e-2)


def test_a_pass_that_fails_leaves_no_hook():
    model = sharp()
    recorder = Recorder(backbone_of(model))
    with pytest.raises(ValueError, match="exactly one of"):
        recorder.run(model, 1, input_ids=None, labels=torch.zeros(1, 2))
    assert not model.model._forward_hooks


# --- "auto" ---


@pytest.mark.parametrize(("free", "has_room"), [(1600, True), (1599, False)])
def test_reserved_memory_is_free_and_a_tenth_stays_so(monkeypatch, free, has_room):
    """What PyTorch has reserved and does not use is free, too; a tenth stays so."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - 500, 10_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    assert recorder.has_room(torch.device("cuda"), 600) is has_room
    assert recorder.has_room(torch.device("cpu"), 600)  # main memory either way


def test_auto_takes_main_memory_without_room_and_says_so(make_trainer, rollout, monkeypatch, caplog):
    expected = rollout(make_trainer(hidden_state_cache="device"))
    asked = []
    monkeypatch.setattr(recorder, "has_room", lambda *args: asked.append(args))
    recorder.logger.warning_once.cache_clear()
    trainer = make_trainer(per_device_train_batch_size=4, steps_per_generation=2)
    ours = [rollout(trainer), rollout(trainer)]
    torch.testing.assert_close(ours[0]["token_coefficients"], expected["token_coefficients"])
    assert caplog.text.count("main memory") == 1
    # once for each rollout batch, for all of its tokens
    sizes = [int(batch["completion_mask"].sum()) * 32 * 4 for batch in ours]
    assert asked == [(CPU, size) for size in sizes]


# --- the cache itself ---


def test_what_is_given_back_is_never_beside_a_copy():
    """States of tools' tokens, of which TRL's scoring pass does not know: two copies would be over the budget."""
    wanted = torch.arange(4000) % 3 != 2
    everything = 4000 * 64 * 4
    with PeakMemory() as memory:
        kept = HiddenStates([torch.full((500, 64), float(i)) for i in range(8)])
        kept.keep_only(wanted)
        assert memory.peak < 1.2 * everything
        assert memory.now < 0.7 * everything
    block_of = torch.arange(4000) // 500
    expected = block_of[wanted].float()
    for tokens, chunk in kept.chunks():
        assert torch.equal(chunk, expected[tokens, None].expand(-1, 64))
