"""A rule of somebody else's: the example of docs/token_credit.md as it stands there, and rules with mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from delta_trl.cli import main
from delta_trl.credit import Cost, Credit, DelTA, TokenCredit, Tokens, all_reduce
from delta_trl.credit.rule import TokenCreditError

from . import tiny
from .trainers import LORA, credit, logged, plain_forward, valid_tokens


EXAMPLE = Path("docs/token_credit.md").read_text().split("```python\n")[1].split("```")[0]


def unexpected(strength: float) -> TokenCredit:
    namespace = {"__name__": "my_credit"}
    sys.modules["my_credit"] = type(sys)("my_credit")  # where dataclasses look
    exec(EXAMPLE, namespace)
    return namespace["Unexpected"](strength)


def test_the_example_is_short():
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize(
    ("mode", "passes"), [({}, 1), ({"steps_per_generation": 2}, 0)], ids=["aligned", "misaligned"]
)
def test_in_python(make_trainer, rollout, mode, passes):
    trainer = make_trainer(**mode, trainer_options={"token_credit": unexpected(1.0)})
    batch = rollout(trainer)
    valid = valid_tokens(batch)
    with torch.no_grad():
        expected = 2 - plain_forward(trainer.model, batch)[1].exp()[valid]
    torch.testing.assert_close(batch["token_coefficients"][valid], expected / expected.mean(), atol=1e-5, rtol=0)
    assert not batch["token_coefficients"][~valid].any()
    assert trainer._metrics["train"]["credit/raw_mean"] == pytest.approx([expected.mean().item()])
    assert trainer._metrics["train"]["credit/extra_forward_passes"] == [passes]
    trainer.train()
    assert logged(trainer, "credit/coefficient_mean") == pytest.approx([1.0] * len(logged(trainer, "credit/raw_mean")))


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    (tmp_path / "my_credit.py").write_text(EXAMPLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_credit", None)
    tiny.model().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    tiny.dataset().to_json(tmp_path / "train.jsonl")
    values = {
        "model_name_or_path": str(tmp_path / "model"),
        "dataset_name": str(tmp_path / "train.jsonl"),
        "reward_funcs": ["tests.tiny.reward_letters"],
        "output_dir": str(tmp_path / "run"),
        "token_credit": "my_credit.Unexpected",
        "token_credit_kwargs": {"strength": 1.0},
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": 2,
        "logging_steps": 1,
        "log_token_credit": 1,
        "report_to": "none",
        "save_strategy": "no",
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def check_run(folder: Path):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    credited = [entry for entry in history if "credit/raw_mean" in entry]
    assert len(credited) == 1
    assert credited[0]["credit/coefficient_mean"] == pytest.approx(1)
    assert credited[0]["credit/extra_forward_passes"] == 0
    assert 1 < credited[0]["credit/raw_mean"] < 2


def test_in_a_recipe(recipe, capsys):
    assert main(["train", "--config", str(recipe), "--dry-run"]) == 0
    assert "my_credit.Unexpected, strength 1.0" in capsys.readouterr().out
    assert main(["train", "--config", str(recipe)]) == 0
    check_run(recipe.parent / "run")
    assert main(["inspect", str(recipe.parent / "run")]) == 0
    assert "raw_mean" in (recipe.parent / "run" / "report.html").read_text()
    assert main(["train", "--config", str(recipe), "--token_credit_kwargs", "{strenght: 1}"]) == 2
    assert "does not know 'strenght' (did you mean 'strength'?)" in capsys.readouterr().err


def launch(*arguments, folder: Path) -> subprocess.CompletedProcess:
    config = "accelerate_configs/cpu_ddp.yaml"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, "--main_process_port", "0"]
    return subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), str(folder)]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_in_a_recipe_on_two_processes(recipe):
    done = launch("scripts/train.py", "--config", recipe, folder=recipe.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    check_run(recipe.parent / "run")


# --- the trainer's argument ---


def test_an_instance_is_what_the_name_means(make_trainer):
    losses = []
    for options in (
        credit(lambda_max=1.5),
        {"trainer_options": {"token_credit": DelTA(lambda_max=1.5)}},
    ):
        trainer = make_trainer(**options)
        trainer.train()
        losses.append(logged(trainer, "loss"))
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        (credit("fipo"), DelTA(), "beside args.token_credit='fipo'"),
        (credit(lambda_max=1.5), DelTA(), "beside.*lambda_max"),
        ({}, "dleta", "Did you mean 'delta'"),
        ({}, DelTA, "expected an instance"),
        ({"hidden_state_cache": "cpu"}, "random", "hidden_state_cache='cpu': without effect"),
    ],
)
def test_a_rule_that_cannot_be_meant(make_trainer, options, given, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(**options, trainer_options={"token_credit": given})


# --- both hooks, and what tokens know ---


class Both(TokenCredit):
    def of_rollout(self, tokens):
        self.rollout = tokens
        return Credit(1 + tokens.row.float())

    def of_micro_batch(self, tokens):
        self.micro_batch = tokens
        return Credit(torch.where(tokens.advantages > 0, 2.0, 1.0))


def test_both_hooks_multiply(make_trainer, rollout):
    rule = Both()
    trainer = make_trainer(steps_per_generation=2, trainer_options={"token_credit": rule})
    batch = rollout(trainer)
    expected = batch["token_coefficients"] * torch.where(batch["advantages"] > 0, 2.0, 1.0)[:, None]
    ours = trainer._compute_loss(trainer.model, batch)
    plain = {key: value for key, value in batch.items() if key != "token_coefficients"}
    trainer.token_credit = TokenCredit()
    by_hand = trainer._compute_loss(trainer.model, {**plain, "advantages": batch["advantages"][:, None] * expected})
    assert ours.item() == pytest.approx(by_hand.item(), abs=1e-6)


def test_micro_batches_know_the_same_of_their_responses(make_trainer):
    """TRL shuffles rows between the hooks: rewards, groups and advantages stay with their responses."""
    rule = Both()
    trainer = make_trainer(
        steps_per_generation=2,
        max_steps=1,
        reward_funcs=lambda completions, **_: [None if i == 3 else i / 7 for i in range(len(completions))],
        trainer_options={"token_credit": rule},
    )
    trainer.train()
    rollout, micro_batch = rule.rollout, rule.micro_batch
    assert rollout.n_groups == micro_batch.n_groups == 4
    assert rollout.rewards[rollout.row == 3].isnan().all()
    assert rollout.group.tolist() == (rollout.row // 4).tolist()

    def described(tokens):
        values = zip(tokens.ids, tokens.rewards.nan_to_num(-1), tokens.group, tokens.advantages, strict=True)
        return {tuple(value.item() for value in row) for row in values}

    assert described(micro_batch) < described(rollout)
    assert micro_batch.log_probs.shape == micro_batch.entropies.shape == micro_batch.ids.shape
    with pytest.raises(RuntimeError, match=r"tokens\.hidden is not at hand"):
        _ = micro_batch.hidden


class Everything(TokenCredit):
    def of_rollout(self, tokens):
        self.seen = [tokens.entropies, tokens.log_probs, tokens.hidden, tokens.head, tokens.old_log_probs]
        return None


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("mode", [{}, {"steps_per_generation": 2}], ids=["aligned", "misaligned"])
def test_everything_is_fetched_in_one_pass(make_trainer, rollout, monkeypatch, mode, announced):
    """None where TRL scores the batch and hidden states are announced; a rule that returns None changes nothing."""
    rule = Everything()
    if announced:
        rule.cost = lambda: Cost(hidden_states=1)
    trainer = make_trainer(**mode, trainer_options={"token_credit": rule})
    passes = []
    score = trainer._scorer.log_probs
    monkeypatch.setattr(trainer._scorer, "log_probs", lambda *a, **k: passes.append(1) or score(*a, **k))
    batch = rollout(trainer)
    free = bool(mode) and announced
    # asked for log-probabilities first, a rule that does not announce hidden states needs another pass for these
    assert len(passes) == (0 if free else 1 if announced or mode else 2)
    assert "token_coefficients" not in batch
    with torch.no_grad():
        hidden, log_probs = plain_forward(trainer.model, batch)
    valid = valid_tokens(batch)
    logits = trainer.model.lm_head(hidden)[valid]
    torch.testing.assert_close(rule.seen[0], torch.distributions.Categorical(logits=logits).entropy())
    torch.testing.assert_close(rule.seen[1], log_probs[valid], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.cat([h for _, h in rule.seen[2].chunks()]), hidden[valid], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(rule.seen[3].logits(hidden[valid])[0], logits)
    assert rule.seen[4] is rule.seen[1]


def test_log_probs_at_are_differentiable(make_trainer, rollout):
    class Gradient(TokenCredit):
        def of_rollout(self, tokens):
            with torch.enable_grad():
                self.log_probs = tokens.log_probs_at(torch.tensor([5, 2]))
            return None

    trainer = make_trainer(trainer_options={"token_credit": Gradient(), **LORA})
    batch = rollout(trainer)
    _, expected = plain_forward(trainer.model, batch)
    valid = valid_tokens(batch)
    ours = trainer.token_credit.log_probs
    torch.testing.assert_close(ours, torch.cat([expected[i][valid[i]] for i in (5, 2)]), atol=1e-5, rtol=1e-4)
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    assert any(g.any() for g in torch.autograd.grad(ours.sum(), parameters))


def test_flat_and_padded_undo_each_other():
    mask = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]])
    tokens = Tokens(torch.arange(9).view(3, 3), mask, torch.tensor([1.0, 2.0, 3.0]))
    assert tokens.ids.tolist() == [0, 1, 6, 7, 8]
    assert tokens.advantages.tolist() == [1, 1, 3, 3, 3]
    assert tokens.row.tolist() == [0, 0, 2, 2, 2]
    assert torch.equal(tokens.padded(tokens.ids), torch.arange(9).view(3, 3) * mask)


# --- mistakes ---


class Wrong(TokenCredit):
    def __init__(self, returns):
        self.returns = returns

    def of_rollout(self, tokens):
        return self.returns(tokens)


WRONG = {
    "of the padded shape": (lambda t: Credit(torch.ones(t.mask.shape)), r"shape \(8, \d\).*tokens.flat\(weights\)"),
    "one short": (lambda t: Credit(torch.ones(len(t) - 1)), r"shape \(\d+,\): expected \(\d+,\)"),
    "NaN": (lambda t: Credit(torch.full((len(t),), torch.nan)), r"\[nan, nan, nan\]"),
    "negative": (lambda t: Credit(-torch.ones(len(t))), r"\[-1.0, -1.0, -1.0\] among its weights.*>= 0"),
    "integers": (lambda t: Credit(torch.ones(len(t), dtype=torch.long)), "torch.int64"),
    "a tensor": (lambda t: torch.ones(len(t)), "torch.Tensor'>: expected a delta_trl.credit.Credit"),
    "a list": (lambda t: Credit([1.0] * len(t)), "weights of <class 'list'>.*tensor"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_trained_with_is_named(make_trainer, name):
    returns, message = WRONG[name]
    trainer = make_trainer(trainer_options={"token_credit": Wrong(returns)})
    with pytest.raises(TokenCreditError, match=rf"Wrong.of_rollout.*{message}"):
        trainer.train()


OUT_OF_STEP = {
    "sums": lambda rank, tokens: all_reduce(torch.zeros(3)) if rank else None,
    "values": lambda rank, tokens: tokens.hidden if rank else tokens.log_probs,
    "result": lambda rank, tokens: Credit(torch.ones(len(tokens))) if rank else None,
    "raises": lambda rank, tokens: 1 / (1 - rank),
}


def test_processes_that_do_different_things(tmp_path):
    """Both get an error that says which, instead of waiting for each other; and are in step again after it."""
    done = launch("-m", "tests.test_own_rule", tmp_path, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    errors = [json.loads((tmp_path / f"errors-{rank}.json").read_text()) for rank in range(2)]
    for name in OUT_OF_STEP:
        for rank in range(2):
            assert "OutOfStep.of_rollout does not do the same on all ranks (rank 0: " in errors[rank][name], name
    assert "rank 1: ZeroDivisionError: division by zero" in errors[0]["raises"]
    assert "rank 0: tokens.log_probs; rank 1: tokens.hidden" in errors[0]["values"]


class OutOfStep(TokenCredit):
    def __init__(self, what):
        self.what = what

    def of_rollout(self, tokens):
        returned = self.what(int(os.environ["RANK"]), tokens)
        return returned if isinstance(returned, Credit) else None


if __name__ == "__main__":  # what test_processes_that_do_different_things launches
    from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer

    folder, errors = Path(sys.argv[1]), {}
    for name, what in OUT_OF_STEP.items():
        args = DeltaGRPOConfig(
            str(folder / "run"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=4,
            max_steps=1,
            report_to="none",
        )
        trainer = DeltaGRPOTrainer(
            tiny.model(),
            tiny.reward_letters,
            args,
            tiny.dataset(),
            processing_class=tiny.tokenizer(),
            token_credit=OutOfStep(what),
        )
        try:
            trainer.train()
        except TokenCreditError as error:
            errors[name] = str(error)
    (folder / f"errors-{os.environ['RANK']}.json").write_text(json.dumps(errors))
    torch.distributed.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit
