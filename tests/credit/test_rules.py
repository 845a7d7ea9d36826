"""Rules beside DelTA against explicit loops in plain Python, on one process and on two."""

import math
import os
import pickle

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from delta_trl.credit import (
    FIPO,
    RLCSD,
    STARE,
    TACO,
    AdvantageReweighting,
    DelTA,
    Entropy,
    GroupContrast,
    HiddenStates,
    LMHead,
    OptimalTokenBaseline,
    Position,
    RandomCredit,
    Selected,
    Shuffled,
    SiblingValue,
    SideMean,
    SideWeights,
    Surprisal,
    Tokens,
)

from ..documented import defaults
from .test_controls import Given


GROUPS, RESPONSES, LONGEST, WIDTH, VOCABULARY = 4, 4, 9, 6, 11


class Batch:
    """A rollout batch: the last group has no contrast, one response no tokens."""

    def __init__(self, seed: int = 0):
        rng = np.random.default_rng(seed)
        B = GROUPS * RESPONSES
        self.lengths = rng.integers(1, LONGEST + 1, B)
        self.lengths[5] = 0
        self.advantages = rng.normal(size=B)
        self.advantages[-RESPONSES:] = 0.0
        self.rewards = rng.integers(0, 2, B).astype(float)
        # siblings start alike and drift apart
        common = rng.normal(size=(GROUPS, LONGEST, WIDTH)).cumsum(axis=1).repeat(RESPONSES, axis=0)
        self.states = common + rng.normal(size=(B, LONGEST, WIDTH)).cumsum(axis=1) / 9
        self.ids = rng.integers(0, VOCABULARY, (B, LONGEST))
        self.head = rng.normal(size=(VOCABULARY, WIDTH))
        logits = self.states @ self.head.T
        distribution = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        self.log_probs = np.take_along_axis(distribution, self.ids[..., None], axis=-1)[..., 0]
        self.entropies = -(np.exp(distribution) * distribution).sum(axis=-1)

    def tokens(self, rows=slice(None), hidden: HiddenStates | None = None) -> Tokens:
        numbers = torch.arange(len(self.lengths))[rows]
        mask = torch.arange(LONGEST) < torch.tensor(self.lengths)[rows][:, None]
        states = torch.tensor(self.states)[rows][mask]
        blocks = list(states.split(7)) if len(states) else [states]
        return Tokens(
            torch.tensor(self.ids)[rows],
            mask,
            torch.tensor(self.advantages)[rows],
            rewards=torch.tensor(self.rewards)[rows],
            groups=numbers // RESPONSES,
            n_groups=GROUPS,
            log_probs=torch.tensor(self.log_probs)[rows],
            entropies=torch.tensor(self.entropies)[rows],
            hidden=hidden or HiddenStates(blocks),
            head=LMHead(torch.tensor(self.head)),
        )

    def each(self):
        """Row and position of every token, in order."""
        return [(i, t) for i, length in enumerate(self.lengths) for t in range(length)]


def credit_of(rule, tokens):
    """Of the hook that the rule has."""
    return (rule.of_rollout if rule.credits_rollouts else rule.of_micro_batch)(tokens)


def with_mean_one(batch: Batch, weights: dict) -> list[float]:
    train = [key for key in batch.each() if batch.advantages[key[0]]]
    mean = sum(weights[key] for key in train) / len(train)
    return [weights[key] / mean if batch.advantages[key[0]] else 1.0 for key in batch.each()]


def side_weights(batch: Batch) -> list[float]:
    by_sign = {1: 0.9, -1: 0.3, 0: 1.0}
    return with_mean_one(batch, {key: by_sign[int(np.sign(batch.advantages[key[0]]))] for key in batch.each()})


def top_of_response(batch: Batch, scores, fraction: float, rest: float, side: str) -> list[float]:
    weights = {}
    for i, length in enumerate(batch.lengths):
        best = sorted(range(length), key=lambda t: (-scores[i, t], t))[: math.ceil(fraction * length)]
        applies = {"losers": batch.advantages[i] < 0, "winners": batch.advantages[i] > 0, "both": batch.advantages[i]}
        for t in range(length):
            weights[i, t] = rest if applies[side] and t not in best else 1.0
    return with_mean_one(batch, weights)


def advantage_reweighting(batch: Batch) -> list[float]:
    return [0.25 * math.exp(batch.log_probs[key]) + 0.75 for key in batch.each()]


def stare(batch: Batch) -> list[float]:
    weights = dict.fromkeys(batch.each(), 1.0)
    for sign, factor in ((1, 1.1), (-1, 0.9)):
        side = [key for key in batch.each() if np.sign(batch.advantages[key[0]]) == sign]
        for key in sorted(side, key=lambda key: batch.log_probs[key])[: math.ceil(0.1 * len(side))]:
            weights[key] = factor
    return list(weights.values())


def taco(batch: Batch) -> list[float]:
    weights = []
    for i, t in batch.each():
        risk = -batch.log_probs[i, t] - batch.entropies[i, t] + math.log(0.7)
        weights.append(1 - 0.9 * (1 - math.exp(-risk)) if risk > 0 and batch.advantages[i] > 0 else 1.0)
    return weights


def optimal_token_baseline(batch: Batch) -> list[float]:
    energy = {}
    for i, t in batch.each():
        logits = batch.states[i, t] @ batch.head.T
        p = np.exp(logits) / np.exp(logits).sum()
        one_hot = np.eye(VOCABULARY)[batch.ids[i, t]]
        energy[i, t] = ((one_hot - p) ** 2).sum()  # the logits' share of |grad log p|^2
    weights = []
    for i, t in batch.each():
        group = range(i // RESPONSES * RESPONSES, (i // RESPONSES + 1) * RESPONSES)
        long_enough = [b for b in group if batch.lengths[b] > t]
        W = [sum(energy[b, s] for s in range(t + 1)) for b in long_enough]
        baseline = sum(w * batch.rewards[b] for w, b in zip(W, long_enough, strict=True)) / sum(W)
        A = batch.advantages[i]
        weights.append((batch.rewards[i] - baseline) / A if A else 1.0)
    return weights


def position(batch: Batch) -> list[float]:
    lambdas = [0.8 + 0.4 * t / max(batch.lengths[i] - 1, 1) for i, t in batch.each()]
    return [value * len(lambdas) / sum(lambdas) for value in lambdas]


def sibling_value(batch: Batch) -> list[float]:
    jumps = {}
    for group in range(GROUPS):
        members = range(group * RESPONSES, (group + 1) * RESPONSES)
        states = np.concatenate([batch.states[i, : batch.lengths[i]] for i in members])
        h = 0.1 * np.sqrt(states.var(axis=0).sum())

        def value(i, t, members=members, h=h):
            weighted = mass = 0.0
            for b in members:
                if b == i or not batch.lengths[b]:
                    continue
                distance = min(
                    np.linalg.norm(batch.states[i, t] - batch.states[b, u]) for u in range(batch.lengths[b])
                )
                kernel = math.exp(-((distance / h) ** 2))
                weighted, mass = weighted + kernel * batch.advantages[b], mass + kernel
            return weighted / (mass + 1e-3)

        for i in members:
            for t in range(batch.lengths[i]):
                last = t + 1 == batch.lengths[i]
                jump = 0.0 if last else value(i, t + 1) - value(i, t)
                jumps[i, t] = np.sign(batch.advantages[i]) * jump
    gamma = {}
    for sign in (1, -1):
        side = [abs(jump) for (i, _), jump in jumps.items() if np.sign(batch.advantages[i]) == sign]
        gamma[sign] = max(sum(side) / len(side), 1e-3)
    lambdas = []
    for i, t in batch.each():
        sign = int(np.sign(batch.advantages[i]))
        scaled = jumps[i, t] / gamma[sign] if sign else 0.0
        lambdas.append(0.8 + 0.4 / (1 + math.exp(-scaled)))
    return [value * len(lambdas) / sum(lambdas) for value in lambdas]


RULES = {
    "side weights": (SideWeights(0.9, 0.3), side_weights),
    "surprisal, losers": (Surprisal(0.4), lambda b: top_of_response(b, -b.log_probs, 0.4, 0.0, "losers")),
    "surprisal, both": (
        Surprisal(0.3, side="both", rest=0.5),
        lambda b: top_of_response(b, -b.log_probs, 0.3, 0.5, "both"),
    ),
    "entropy, winners": (
        Entropy(0.2, side="winners", rest=0.1),
        lambda b: top_of_response(b, b.entropies, 0.2, 0.1, "winners"),
    ),
    "advantage reweighting": (AdvantageReweighting(0.25), advantage_reweighting),
    "STARE": (STARE(entropy=9.0), stare),
    "TACO": (TACO(alpha=0.7), taco),
    "optimal token baseline": (OptimalTokenBaseline(), optimal_token_baseline),
    "position": (Position(), position),
    "sibling value": (SiblingValue(), sibling_value),
}


@pytest.mark.parametrize(
    "rule",
    [
        FIPO,
        RLCSD,
        STARE,
        TACO,
        AdvantageReweighting,
        DelTA,
        RandomCredit,
        Selected,
        SiblingValue,
        SideWeights,
        Surprisal,
    ],
)
def test_defaults_are_those_of_the_docstring(rule):
    said, real = defaults(rule)
    assert said == real != {}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RULES)
def test_weights_are_those_of_explicit_loops(name, seed):
    rule, explicit = RULES[name]
    batch = Batch(seed)
    weights = credit_of(rule, batch.tokens()).weights
    assert weights.tolist() == pytest.approx(explicit(batch), abs=2e-5)
    assert weights.std() > 0.01


def test_the_optimal_baseline_leaves_alone_what_only_rounding_would_train():
    """A response with its group's mean reward has an advantage of 0, or of whatever float32 makes of that."""
    batch = Batch()
    row = int(batch.tokens().row[0])
    batch.advantages[row] = 3e-8
    tokens = batch.tokens()
    weights = OptimalTokenBaseline().of_rollout(tokens).weights
    assert (weights[tokens.row == row] == 1).all()
    assert weights.abs().max() < 1e3


@pytest.mark.parametrize("staged", [False, True])
def test_sibling_value_of_states_in_many_blocks(staged):
    """Staged ones share two buffers."""
    whole = torch.cat(Batch().tokens().hidden.blocks).float()
    blocks = whole.split(4)
    in_blocks = Batch().tokens(hidden=HiddenStates(blocks, staged=[staged] * len(blocks)))
    expected = SiblingValue().of_rollout(Batch().tokens(hidden=HiddenStates([whole]))).weights
    torch.testing.assert_close(SiblingValue().of_rollout(in_blocks).weights, expected)


def test_group_contrast_is_delta_of_the_group():
    tokens = Batch().tokens()
    expected = DelTA(token_gradient="lm_head", centroid_scope="group").of_rollout(tokens).weights
    assert torch.equal(GroupContrast().of_rollout(tokens).weights, expected)
    mask = Selected(GroupContrast(), fraction=0.3).of_rollout(tokens).weights
    assert len(mask.unique()) == 2


def test_what_stare_waits_for():
    tokens = Batch().tokens()
    entropy = tokens.entropies.mean().item()
    credit = STARE(entropy=entropy - 1e-6).of_micro_batch(tokens)
    assert credit.neutral
    assert (credit.weights == 1).all()
    assert not STARE(entropy=entropy + 1e-6).of_micro_batch(tokens).neutral


WRAPPED = [
    SideWeights(),
    Surprisal(),
    STARE(entropy=9.0),
    SiblingValue(),
    GroupContrast(),
    DelTA(),
    RandomCredit(),
    SideMean(),
]


@pytest.mark.parametrize("rule", WRAPPED, ids=repr)
def test_shuffling_keeps_what_each_response_gets(rule):
    tokens = Batch().tokens()
    torch.manual_seed(0)
    before = credit_of(rule, tokens).weights
    torch.manual_seed(0)
    after = credit_of(Shuffled(rule), tokens).weights
    for row in tokens.row.unique():
        assert torch.equal(after[tokens.row == row].sort().values, before[tokens.row == row].sort().values)
    if not isinstance(rule, (SideWeights, SideMean)):
        assert not torch.equal(after, before)


@pytest.mark.parametrize("known", [(), ("log_probs",), ("entropies", "hidden")])
def test_what_tokens_know(known):
    """A report records what costs no forward pass."""
    values = {
        "log_probs": torch.zeros(2, 3),
        "entropies": torch.zeros(2, 3),
        "hidden": HiddenStates([torch.ones(6, 2)]),
    }
    given = {name: values[name] for name in known}
    tokens = Tokens(torch.zeros(2, 3).long(), torch.ones(2, 3), torch.tensor([1.0, -1.0]), **given)
    assert [name for name in values if tokens.knows(name)] == [*known]


def test_shuffling_is_fair():
    """Every token of a response gets each of its weights equally often."""
    tokens = Tokens(torch.zeros(2, 3).long(), torch.ones(2, 3), torch.tensor([1.0, -1.0]), log_probs=torch.zeros(2, 3))
    rule = Shuffled(Given(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])))
    drawn = torch.stack([rule.of_rollout(tokens).weights for _ in range(3000)])
    torch.testing.assert_close(drawn.mean(dim=0), torch.tensor([1.0, 1, 1, 4, 4, 4]), atol=0.06, rtol=0)
    assert (drawn[:, :3].sum(dim=1) == 3).all()


ONE_SIDED = [SideWeights(winners=0, losers=1), SideWeights(winners=1, losers=0)]


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES.values()] + [GroupContrast(), *ONE_SIDED], ids=repr)
@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
def test_without_contrast_and_without_tokens(rule, advantage):
    batch = Batch()
    batch.advantages[:] = advantage
    weights = credit_of(rule, batch.tokens()).weights
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all() or isinstance(rule, OptimalTokenBaseline)
    batch.lengths[:] = 0
    assert len(credit_of(rule, batch.tokens()).weights) == 0


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (SideWeights, {"losers": -1}, r"losers=-1: expected a number in \[0, inf\)"),
        (SideWeights, {"winners": 0, "losers": 0}, "nothing would be left"),
        (Surprisal, {"fraction": 0}, "fraction=0"),
        (Surprisal, {"side": "loser"}, "side='loser'"),
        (Entropy, {"rest": 1}, "rest=1"),
        (AdvantageReweighting, {"alpha": 2}, "alpha=2"),
        (STARE, {"fraction": 2}, "fraction=2"),
        (TACO, {"alpha": 0}, "alpha=0"),
        (TACO, {"strength": 2}, "strength=2"),
        (Position, {"lambda_min": 2.0}, "lambda_min"),
        (SiblingValue, {"bandwidth": 0}, "bandwidth=0"),
    ],
)
def test_options_out_of_range(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_siblings_on_another_process_are_refused(make_trainer):
    trainer = make_trainer(token_credit="sibling_value")
    trainer.args.per_device_train_batch_size = 2  # as two processes would have it
    with pytest.raises(ValueError, match=r"the 2 rows of a process .* are no multiple of num_generations=4"):
        SiblingValue().check(trainer)


# --- two processes ---

SHARES = {"half each": [slice(0, 8), slice(8, 16)], "all and none": [slice(0, 16), slice(16, 16)]}


def work(rank: int, store: str, share: str, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    tokens = Batch().tokens(SHARES[share][rank])
    weights = {name: credit_of(rule, tokens).weights for name, (rule, _) in RULES.items()}
    (folder / str(rank)).write_bytes(pickle.dumps(weights))
    dist.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.processes
def test_two_processes_equal_one(tmp_path, share):
    context = mp.get_context("spawn")
    workers = [context.Process(target=work, args=(r, tmp_path / "store", share, tmp_path)) for r in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    parts = [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(2)]
    tokens = Batch().tokens()
    for name, (rule, _) in RULES.items():
        together = torch.cat([part[name] for part in parts])
        torch.testing.assert_close(together, credit_of(rule, tokens).weights, atol=1e-6, rtol=0, msg=name)


@pytest.mark.parametrize(
    "rule",
    [FIPO(decay=math.inf, clip=math.inf, safety_threshold=math.inf), STARE(entropy=math.inf), RLCSD(clip=math.inf)],
    ids=lambda rule: type(rule).__name__,
)
def test_bounds_may_be_infinite(rule):
    assert "inf" in repr(rule)
