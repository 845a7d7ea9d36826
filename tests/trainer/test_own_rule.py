"""A user's own rule: the example of docs/token_credit.md, unchanged, and rules with mistakes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.cli import main
from delta_trl.credit import Credit, DelTA, PolicyOutputs, TokenCredit, Tokens, checked_credit
from delta_trl.credit.hidden_states import HiddenStates
from delta_trl.credit.rule import TokenCreditError, uniform
from delta_trl.files import read_json
from delta_trl.report import read_run
from delta_trl.trainer.credit_rule import choose_rule

from ..corpus import tiny
from ..documented import shown_module
from ..trainers import logged, plain_forward, rollout_of, sharp, valid_tokens


EXAMPLE = shown_module("my_credit.py")


def example(name: str, module: str = "my_credit", **options) -> TokenCredit:
    namespace = {"__name__": module}
    sys.modules[module] = type(sys)(module)  # where dataclasses look
    exec(shown_module(f"{module}.py"), namespace)
    return namespace[name](**options)


def test_the_documented_rule_keeps_the_most_uncertain_tokens():
    """Of four and of three tokens, each fraction rounded up."""
    of_four = [0.1, 0.4, 0.2, 0.3]
    of_three = [0.0, 0.5, 0.1]
    padding = 9.0
    entropies = torch.tensor([of_four, [*of_three, padding]])
    mask = entropies != padding
    tokens = Tokens(mask, mask, torch.ones(2), entropies=entropies)
    credit = example("Entropy", fraction=0.3).of_rollout(tokens)
    assert credit.weights.tolist() == [0, 1, 0, 1, 0, 1, 0]


def test_a_rule_in_python_gives_the_coefficients_that_train(make_trainer, rollout):
    """Of the tokens that train is `coefficient_mean`."""
    trainer = make_trainer(token_credit=example("Surprisal", strength=1.0))
    batch = rollout(trainer)
    valid = valid_tokens(batch)
    coefficients = batch["token_coefficients"]
    with torch.no_grad():
        _, log_probs = plain_forward(trainer.model, batch)
    raw = 1 - log_probs[valid]
    torch.testing.assert_close(coefficients[valid], raw / raw.mean(), atol=1e-5, rtol=0)
    assert not coefficients[~valid].any()

    metrics = trainer._metrics["train"]
    assert metrics["credit/raw_mean"] == pytest.approx([raw.mean().item()])
    assert 0 < metrics["credit/seconds"][0] < 60
    trains = valid & (batch["advantages"] != 0)
    mean_of_trained = coefficients[trains].mean().item()
    assert metrics["credit/coefficient_mean"] == pytest.approx([mean_of_trained])


# Two groups, of which the second one has no contrast
MASK = torch.ones(4, 5)
MASK[2, 3:] = 0
ADVANTAGES = torch.tensor([1.0, -1.0, 0.0, 0.0])
GROUPS = torch.tensor([0, 0, 1, 1])


def test_entropy_by_sign():
    entropies = torch.rand(4, 5)
    tokens = Tokens(MASK, MASK, ADVANTAGES, groups=GROUPS, entropies=entropies)
    rule = example("EntropyBySign", "my_signals", winners=0.8, losers=0.3)
    credit = rule.of_rollout(tokens)

    of_group = entropies[:2].double()
    relative = of_group / of_group.mean() - 1
    winner = 1 + 0.8 * relative[0]
    loser = 1 + 0.3 * relative[1]
    raw = torch.cat([winner, loser])
    torch.testing.assert_close(credit.weights[:10].double(), raw / raw.mean(), atol=1e-5, rtol=0)


def test_spans_weigh_by_their_distance_from_the_other_side():
    """Against plain loops in float64. A prefix that both sides share, in the same states, gets nothing."""
    hidden = torch.randn(18, 6)
    hidden[5:7] = hidden[0:2]
    tokens = Tokens(MASK, MASK, ADVANTAGES, groups=GROUPS, hidden=HiddenStates([hidden]))
    credit = example("SpanDistance", "my_signals", span=2).of_rollout(tokens)

    directions = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    projected = hidden.double() @ directions.double()
    of_winner, of_loser = projected[:5].split(2), projected[5:10].split(2)

    def two_quantiles(span: torch.Tensor) -> torch.Tensor:
        return torch.stack([span.amin(dim=0), span.amax(dim=0)])

    def distance(one: torch.Tensor, other: torch.Tensor) -> float:
        return (two_quantiles(one) - two_quantiles(other)).norm().item()

    raw = []
    for spans, others in ((of_winner, of_loser), (of_loser, of_winner)):
        for span in spans:
            nearest = min(distance(span, other) for other in others)
            raw += [nearest] * len(span)
    expected = np.array(raw) / np.mean(raw)
    np.testing.assert_allclose(credit.weights[:10], expected, atol=1e-4)
    shared_prefix = credit.weights[[0, 1, 5, 6]]
    assert shared_prefix.abs().max() < 1e-5


@pytest.mark.parametrize("name", ["EntropyBySign", "SpanDistance"])
def test_published_signals_train(make_trainer, name):
    trainer = make_trainer(sharp(), token_credit=example(name, "my_signals"))
    trainer.train()
    assert min(logged(trainer, "credit/coefficient_std")) > 0.01
    assert logged(trainer, "credit/coefficient_mean") == pytest.approx([1.0, 1.0], abs=1e-4)


def write_recipe(folder: Path) -> str:
    """The example as a module in `folder`, and a recipe that names it."""
    (folder / "my_credit.py").write_text(EXAMPLE)
    return tiny.recipe(
        folder,
        token_credit="my_credit.Surprisal",
        token_credit_kwargs={"strength": 1.0},
        per_device_train_batch_size=4,
        steps_per_generation=2,
        log_token_credit=1,
    )


def check_run(folder: Path) -> None:
    """Of two processes, see tests/distributed."""
    state = read_json(folder / "trainer_state.json")
    [credited] = [entry for entry in state["log_history"] if "credit/raw_mean" in entry]
    assert credited["credit/coefficient_mean"] == pytest.approx(1)
    assert credited["credit/extra_forward_passes"] == 0
    assert credited["credit/raw_mean"] > 1


def test_in_a_recipe_s_dry_run(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_credit", None)
    recipe = write_recipe(tmp_path)
    assert main(["train", "--config", recipe, "--dry_run"]) == 0
    assert "Surprisal(strength=1.0)" in capsys.readouterr().out


# --- the trainer's argument ---


class Misspelt(TokenCredit):
    def of_rollot(self, tokens):
        return None


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"token_credit": "fipo"}, DelTA(), "beside args.token_credit='fipo'"),
        ({"token_credit_kwargs": {"lambda_max": 1.5}}, DelTA(), "beside.*lambda_max"),
        ({"token_credit": "side_weights"}, "fipo", "'fipo' is given beside args.token_credit='side_weights'"),
        ({}, DelTA, "or in Python an instance"),
        ({}, Misspelt(), "Did you mean `of_rollout` by `of_rollot`"),
        ({}, "tests.trainer.test_own_rule.Misspelt", "Misspelt overrides neither"),
    ],
)
def test_a_rule_given_twice_or_of_no_use_is_refused(options, given, message):
    args = DeltaGRPOConfig("unused", use_cpu=True, bf16=False, **options)
    with pytest.raises(ValueError, match=message):
        choose_rule(given, args, args)


def test_a_rule_by_its_name():
    args = DeltaGRPOConfig("unused", use_cpu=True, bf16=False)
    assert choose_rule("delta:lambda_max=1.5", args, args) == DelTA(lambda_max=1.5)


# --- both hooks, and what tokens know ---


class Both(TokenCredit):
    def of_rollout(self, tokens):
        self.rollout = tokens
        return Credit(1 + tokens.row.float())

    def of_micro_batch(self, tokens):
        self.micro_batch = tokens
        return Credit(torch.ones(len(tokens)))


def test_a_rule_may_credit_rollouts_and_micro_batches(make_trainer):
    """TRL shuffles rows between the hooks: advantages stay with their responses, weighted by the first hook."""

    def reward(completions, **_):
        values = [i / 7 for i in range(len(completions))]
        values[3] = None
        return values

    def second(completions, **_):
        return [2.0] + [None] * (len(completions) - 1)

    def of_tokens(ids, advantages) -> set[tuple[int, float]]:
        return set(zip(ids.tolist(), advantages.tolist(), strict=True))

    rule = Both()
    rewards = {"reward_funcs": [reward, second], "reward_weights": [1.0, 0.5]}
    make_trainer(steps_per_generation=2, max_steps=1, **rewards, token_credit=rule).train()
    rollout, micro_batch = rule.rollout, rule.micro_batch

    totals = torch.arange(16) / 7
    totals[0] = 0.5 * 2.0
    totals[3] = torch.nan
    torch.testing.assert_close(rollout.rewards, totals[rollout.row], equal_nan=True)
    assert torch.equal(rollout.group, rollout.row // 4)
    weighted = rollout.advantages * (1 + rollout.row)
    assert of_tokens(micro_batch.ids, micro_batch.advantages) < of_tokens(rollout.ids, weighted)
    assert micro_batch.log_probs.shape == micro_batch.entropies.shape == micro_batch.ids.shape
    assert micro_batch.log_probs.max() < 0
    assert micro_batch.entropies.min() > 0
    for of_rollouts in ("hidden", "head"):
        with pytest.raises(RuntimeError, match="of_micro_batch"):
            getattr(micro_batch, of_rollouts)


class Draws(TokenCredit):
    """Random weights."""

    def __init__(self):
        self.drawn = []

    def of_rollout(self, tokens):
        self.drawn.append(uniform(tokens))
        return Credit(self.drawn[-1])


def test_each_rollout_batch_has_random_numbers_of_its_own(make_trainer):
    """Also where all completions are equal; a run with the same seed repeats them."""
    equal = {"rollout_func": rollout_of(lambda i: [5, 6, 1])}

    def drawn(seed: int) -> list[tuple[float, ...]]:
        rule = Draws()
        make_trainer(token_credit=rule, seed=seed, max_steps=3, **equal).train()
        return [tuple(numbers.tolist()) for numbers in rule.drawn]

    with_seed_0 = drawn(seed=0)
    assert drawn(seed=0) == with_seed_0
    assert len({*with_seed_0, *drawn(seed=1)}) == 6


class Everything(TokenCredit):
    needs_hidden_states = False

    def of_rollout(self, tokens):
        entropies, log_probs = tokens.entropies, tokens.log_probs
        hidden = torch.cat([chunk for _, chunk in tokens.hidden.chunks()])
        logits, *_ = tokens.head.logits(hidden)
        self.seen = [entropies, log_probs, hidden, logits]
        self.passes = tokens.policy.forward_passes
        assert tokens.old_log_probs is tokens.log_probs


@pytest.mark.parametrize(
    ("steps", "announced", "needed"),
    [
        (1, True, 1),
        (1, False, 2),
        (2, True, 0),
        (2, False, 1),
    ],
)
def test_everything_is_fetched_in_one_pass(make_trainer, rollout, steps, announced, needed):
    """
    None where TRL scores the batch and hidden states are announced; a rule that returns None changes nothing. Asked
    for log-probabilities first, a rule that does not announce hidden states needs another pass for these. Of all
    responses, also of those without an advantage.
    """
    rule = Everything()
    rule.needs_hidden_states = announced
    trainer = make_trainer(
        steps_per_generation=steps,
        token_credit=rule,
        reward_funcs=lambda completions, **_: [float(i == 0) for i in range(len(completions))],
    )
    batch = rollout(trainer)
    assert not batch["advantages"][4:].any()  # all but the first group
    assert rule.passes == needed
    assert "token_coefficients" not in batch
    valid = valid_tokens(batch)
    with torch.no_grad():
        hidden, log_probs = plain_forward(trainer.model, batch)
        logits = trainer.model.lm_head(hidden)[valid]
    entropies = torch.distributions.Categorical(logits=logits).entropy()
    expected = [entropies, log_probs[valid], hidden[valid], logits]
    torch.testing.assert_close(rule.seen, expected, atol=1e-5, rtol=1e-4)


class AfterEquals(TokenCredit):
    """Weighs what comes after an equals sign double. Counts the calls, from 0 at the start of its life."""

    def load_state_dict(self, state):
        self.calls = 0

    def _credit(self, tokens) -> Credit:
        self.calls += 1
        sign = tokens.tokenizer.convert_tokens_to_ids("=")
        is_sign = tokens.padded(tokens.ids) == sign
        comes_after = tokens.flat(is_sign.cumsum(1) > 0)
        return Credit(1 + comes_after.float(), {"calls": self.calls})


class AfterEqualsInRollout(AfterEquals):
    def of_rollout(self, tokens):
        return self._credit(tokens)


class AfterEqualsInMicroBatch(AfterEquals):
    def of_micro_batch(self, tokens):
        assert torch.equal(tokens.old_log_probs, tokens.log_probs)  # one step: the policy is the rollout's
        return self._credit(tokens)


@pytest.mark.parametrize("rule", [AfterEqualsInRollout, AfterEqualsInMicroBatch])
def test_a_rule_has_the_tokenizer_in_training(make_trainer, rule):
    trainer = make_trainer(token_credit=rule())
    trainer.train()
    assert logged(trainer, "credit/calls") == [1, 2]


def test_a_rule_has_the_tokenizer_without_training(tmp_path):
    """In `explain` and `audit`."""
    model, data = tmp_path / "model", tmp_path / "data.jsonl"
    tiny.save(model)
    right = {"prompt": "1", "completion": "1=1", "reward": 1.0, "marks": [[0, 1]]}
    wrong = {"prompt": "1", "completion": "111", "reward": 0.0, "marks": [[0, 1]]}
    data.write_text(f"{json.dumps(right)}\n{json.dumps(wrong)}")
    rule = f"{__name__}.AfterEqualsInRollout"
    options = [f"--model_name_or_path={model}", f"--token_credit={rule}"]

    def weights(completions) -> dict[str, list[float]]:
        """By the completion's text."""
        found = {}
        for tokens, of_tokens in completions:
            text = "".join(tokens).replace(" ", "")
            found[text] = list(of_tokens)
        return found

    expected = {
        "1=1": [1, 2, 2],
        "111": [1, 1, 1],
    }

    explained = tmp_path / "explained"
    assert main(["explain", *options, f"--data={data}", f"--output_dir={explained}"]) == 0
    [group] = read_run(explained).groups
    assert weights((c.tokens, c.coefficients) for c in group.completions) == expected

    audited = tmp_path / "audited"
    assert main(["audit", *options, f"--benchmarks={data}", f"--output_dir={audited}"]) == 0
    lines = (audited / "scores.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert weights((record["tokens"], record["scores"][rule]) for record in records) == expected


# --- mistakes ---


class Returns(TokenCredit):
    def __init__(self, returns):
        self.returns = returns

    def of_rollout(self, tokens):
        return self.returns


def check(returned, advantages=(1.0, -1.0)) -> Credit:
    """What a rule returned for two responses of two tokens."""
    tokens = Tokens(torch.zeros(2, 2).long(), torch.ones(2, 2), torch.tensor(advantages))
    return checked_credit(Returns(returned), "of_rollout", tokens)


def test_weights_that_reverse_tokens_are_warned_of():
    with pytest.warns(UserWarning, match=r"Returns\.of_rollout returned negative weights"):
        check(Credit(-torch.ones(4)))


def test_weights_that_train_nothing_are_warned_of():
    with pytest.warns(UserWarning, match=r"Returns\.of_rollout returned weights that are all 0"):
        check(Credit(torch.zeros(4)))


def test_no_token_and_negative_advantages_are_nothing_to_warn_of(recwarn):
    """A process may have completions that the loss masks, and no others."""
    mask = torch.zeros(2, 2)
    checked_credit(Returns(Credit(torch.zeros(0))), "of_rollout", Tokens(mask.long(), mask, torch.ones(2)))
    check(Credit(advantages=-torch.ones(4)))
    assert not recwarn.list


def metric(value) -> Credit:
    return Credit(torch.ones(4), {"mine": value})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (Credit(torch.ones(2, 2)), r"shape \(2, 2\).*tokens.flat"),
        (Credit(torch.ones(3)), r"shape \(3,\)"),
        (Credit(torch.full((4,), torch.nan)), "nan"),
        (Credit(torch.tensor([1.0, 2.0, torch.inf, 3.0])), r"\[inf\] among its weights"),
        (Credit(advantages=torch.full((4,), -torch.inf)), "-inf.* among its advantages"),
        (Credit(), "either weights or advantages"),
        (Credit(torch.ones(4), advantages=torch.ones(4)), "either weights or advantages"),
        (Credit(advantages=torch.ones(2, 2)), r"advantages of shape \(2, 2\)"),
        (Credit(torch.ones(4, dtype=torch.long)), "torch.int64"),
        (Credit(torch.ones(4, dtype=torch.bool)), "torch.bool"),
        (Credit([1.0] * 4), "<class 'list'>"),
        (torch.ones(4), "torch.Tensor'>"),
        (metric(torch.ones(2)), "'mine'"),
        (metric("1.5"), "'mine'"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_with_is_named(returned, message):
    with pytest.raises(TokenCreditError, match=f"Returns.of_rollout.*{message}"):
        check(returned)


def test_what_a_rule_returns_is_made_fit_for_training():
    """And otherwise kept, also for tokens that do not train."""
    weights = torch.tensor([0.5, 2.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    step_rewards = torch.full((4,), torch.nan)
    returned = Credit(weights, {"mine": torch.tensor(2)}, neutral=True, step_rewards=step_rewards)
    with pytest.warns(UserWarning, match="negative weights"):
        credit = check(returned, advantages=(0.0, -2.0))
    assert credit.weights.tolist() == [0.5, 2.0, 0.0, -1.0]
    assert credit.advantages.tolist() == [0.0, 0.0, 0.0, 2.0]
    for values in (credit.weights, credit.advantages):
        assert values.dtype == torch.float32
        assert not values.requires_grad
    assert credit.metrics == {"mine": 2.0}
    assert credit.neutral
    assert credit.step_rewards is step_rewards


class Fetched:
    """A policy whose passes give other values than those that are known."""

    def outputs(self, hidden):
        zeros = torch.zeros(2, 2)
        return PolicyOutputs(zeros, zeros, HiddenStates([torch.ones(4, 3)]) if hidden else None)


def test_what_is_known_stays():
    mask = torch.ones(2, 2)
    known = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    tokens = Tokens(mask, mask, torch.ones(2), policy=Fetched(), log_probs=known)
    assert not tokens.entropies.any()
    assert tokens.hidden.shape == (4, 3)
    assert tokens.log_probs.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert tokens.rewards.isnan().all()


def test_advantages_of_a_rule_are_weights_where_the_response_has_an_advantage():
    returned = Credit(advantages=torch.tensor([1.0, -4, 3, 0]))
    credit = check(returned, advantages=(-2.0, 0.0))
    assert credit.weights.tolist() == [-0.5, 2, 1, 1]
    assert credit.advantages.tolist() == [1, -4, 3, 0]


class Counts(TokenCredit):
    micro_batches = 0

    def of_micro_batch(self, tokens):
        self.micro_batches += 1


class WithTeacher(GRPOTrainer):
    """Scores with another model after the policy. `batch_size` comes by position, as TRL allows."""

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        completion_length = inputs["completion_ids"].size(1)
        with torch.no_grad():
            self._get_per_token_logps_and_entropies(self.model, ids, mask, completion_length, len(ids))
        return loss


class Distilled(DeltaGRPOTrainer, WithTeacher):
    pass


def test_a_later_scoring_call_is_not_the_policy_s(make_trainer):
    rule = Counts()
    make_trainer(trainer_class=Distilled, token_credit=rule, max_steps=2).train()
    assert rule.micro_batches == 2


class GivesAll(TokenCredit):
    """An advantage to every token, and reads nothing of responses without one."""

    reads_all_rows = False

    def of_rollout(self, tokens):
        return Credit(advantages=-torch.ones(len(tokens)))


def test_a_rule_that_credits_rows_which_it_does_not_read_is_refused(make_trainer, rollout):
    rewards = [0.0, 1.0, 0.0, 1.0] + [0.0] * 4  # the second group's are equal
    trainer = make_trainer(token_credit=GivesAll(), num_iterations=2, reward_funcs=lambda **_: rewards)
    with pytest.raises(TokenCreditError, match=r"GivesAll\(\) gives advantages .* `reads_all_rows` has to be True"):
        rollout(trainer)
