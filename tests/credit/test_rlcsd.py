"""RLCSD against explicit forwards, sequence by sequence, without a trainer and in one."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from delta_trl.credit import RLCSD, Tokens
from delta_trl.credit.rules.rlcsd import _siblings
from delta_trl.policy.standalone import given_tokens

from ..corpus import tiny


OPTIONS = {"strength": 0.4, "temperature": 0.05, "threshold": 0.01, "clip": 0.3, "wrong": 2}


def explicit(model, prompts, completions, groups, advantages, *, strength, temperature, threshold, clip, wrong):
    """Weights of every token, row by row."""

    def log_probs(prompt, completion):
        ids = torch.tensor([prompt + completion])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(dim=-1)[torch.arange(len(completion)), torch.tensor(completion)]

    weights = []
    n = len(prompts)
    for i in range(n):
        around = [j for j in [*range(i + 1, n), *range(i)] if groups[j] == groups[i] and completions[j]]
        right = [j for j in around if advantages[j] > 0][:1]
        wrongs = [j for j in around if advantages[j] < 0][:wrong]
        A = advantages[i]
        if not (right and wrongs and A and completions[i]):
            weights += [1.0] * len(completions[i])
            continue
        after = {j: log_probs(prompts[i] + completions[j] + prompts[i], completions[i]) for j in right + wrongs}
        for t in range(len(completions[i])):
            mean = math.log(sum(math.exp(after[j][t]) for j in wrongs) / len(wrongs))
            change = max(-clip, min(clip, strength * math.tanh((after[right[0]][t].item() - mean) / temperature)))
            changed = A + (change if abs(change) > threshold else 0.0)
            changed = max(changed, 0.0) if A > 0 else min(changed, 0.0)
            weights.append(changed / A)
    return weights


def test_weights_are_those_of_explicit_forwards():
    torch.manual_seed(0)
    model = tiny.model().eval()
    rng = torch.Generator().manual_seed(1)
    prompts, completions = [], []
    for i in range(9):
        prompts.append([7, 8, 9][: 1 + i // 3])
        completions.append(torch.randint(3, 30, (2 + i % 4,), generator=rng).tolist())
    groups = [i // 3 for i in range(9)]
    advantages = [
        0.2,
        -0.1,
        -0.1,
        1.0,
        0.5,
        0.0,
        0.0,
        0.0,
        0.0,
    ]  # the second group has no wrong one, the third neither
    rows = [
        {"prompt_ids": p, "token_ids": c, "advantage": a, "reward": a, "group": g}
        for p, c, a, g in zip(prompts, completions, advantages, groups, strict=True)
    ]
    credit = RLCSD(**OPTIONS).of_rollout(given_tokens(model, rows, micro_batch_size=2))
    expected = explicit(model, prompts, completions, groups, advantages, **OPTIONS)
    assert credit.weights.tolist() == pytest.approx(expected, abs=2e-4)
    first = torch.tensor(expected)[: sum(map(len, completions[:3]))]
    assert first.std() > 0.1
    assert (first == 0).any()  # cut off so as to keep the sign
    assert (credit.weights[len(first) :] == 1).all()


@pytest.mark.parametrize("mode", [{}, {"steps_per_generation": 2}], ids=["aligned", "misaligned"])
def test_in_the_trainer(make_trainer, rollout, mode):
    trainer = make_trainer(**mode, token_credit="rlcsd", token_credit_kwargs=OPTIONS)
    batch = rollout(trainer)
    prompts = [ids[mask.bool()].tolist() for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)]
    mask = batch["completion_mask"].bool()
    completions = [ids[row].tolist() for ids, row in zip(batch["completion_ids"], mask, strict=True)]
    groups = [i // trainer.num_generations for i in range(len(prompts))]
    trainer.model.eval()
    expected = explicit(trainer.model, prompts, completions, groups, batch["advantages"].tolist(), **OPTIONS)
    assert batch["token_coefficients"][mask].tolist() == pytest.approx(expected, abs=1e-3)
    assert batch["token_coefficients"][mask].std() > 0.05
    assert trainer._metrics["train"]["credit/extra_forward_passes"] == [3.0]


@pytest.mark.parametrize("name", ["strength", "temperature", "clip", "wrong"])
def test_options_out_of_range(name):
    with pytest.raises(ValueError, match=f"{name}=0: expected a number in"):
        RLCSD(**{name: 0})
    with pytest.raises(ValueError, match="threshold=-1"):
        RLCSD(threshold=-1)
    with pytest.raises(ValueError, match=r"wrong=2.5: expected a whole number"):
        RLCSD(wrong=2.5)


def test_groups_must_be_whole(make_trainer):
    trainer = make_trainer(token_credit="rlcsd")
    trainer.args.per_device_train_batch_size = 2  # as two processes would have it
    with pytest.raises(ValueError, match=r"RLCSD compares the responses to a prompt, which must be on one process"):
        RLCSD().check(trainer)


def test_siblings_are_found_without_asking_the_device_row_by_row():
    """Every question to a tensor is a wait for the device; a rollout batch has hundreds of rows."""

    class Questions(TorchDispatchMode):
        asked = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.asked += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    counts = []
    for B in (8, 64):
        advantages = torch.tensor([1.0, -1.0]).repeat(B // 2)
        groups = torch.arange(B) // 4
        tokens = Tokens(torch.ones(B, 2).long(), torch.ones(B, 2), advantages, groups=groups, n_groups=B // 4)
        with Questions() as questions:
            chosen = _siblings(tokens, -1, 4)
        assert chosen[:4].tolist() == [[1, 3], [3, -1], [3, 1], [1, -1]]
        counts.append(questions.asked)
    assert counts[0] == counts[1]
