"""Evidence from outside: weights and step rewards per token, span or turn, from a function, a column, environments."""

import asyncio
import math
import os
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from datasets import Dataset
from transformers import AddedToken, AutoModelForTokenClassification, Qwen3Config
from trl.chat_template_utils import qwen3_chat_template

from delta_trl.credit import Given, Responses, Tokens, Turn
from delta_trl.credit.rule import TokenCreditError
from delta_trl.credit.rules.given import bounds_of
from delta_trl.report import read_run
from delta_trl.scoring.texts import TokenTexts

from ..corpus import tiny
from ..documented import shown_module
from ..trainers import credit, logged, rollout_of, rollout_with_environment


LOOPS: list = []


def numbers(completion_ids, **columns):
    """A number for each token; nothing is known of every third completion."""
    return [None if i % 3 == 2 else [0.5 + j for j in range(len(ids))] for i, ids in enumerate(completion_ids)]


async def counted(completions, **columns):
    """Uses a client that belongs to the loop of its first call, as HTTP clients do."""
    loop = asyncio.get_running_loop()
    LOOPS.append(loop)
    assert loop is LOOPS[0]
    return [None] * len(completions)


async def halves(completions, **columns):
    """Two spans of characters, of unlike value."""
    return [[(0, len(text) // 2, 0.25), (len(text) // 2, len(text), 2.0)] for text in completions]


def tokens_of(n: int = 2, **columns) -> Tokens:
    """Those of `n` completions 'l m n o p' and an end."""
    texts = ["l", " m", " n", " o", " p", None]
    turn = Turn("l m n o p", 0, 9, 0, 5)
    responses = Responses(["1+1="] * n, ["l m n o p"] * n, [[13] * 6] * n, columns, [texts] * n, [[turn]] * n)
    mask = torch.ones(n, 6)
    return Tokens(mask, mask, torch.ones(n), policy=SimpleNamespace(responses=lambda: responses))


def process_supervision(rewards: list[list[float] | None], discount: float = 1.0) -> list[list[float]]:
    """DeepSeekMath 4.1.3 for groups of 4, written out: the advantage of a row's tokens up to each step's end."""
    advantages = []
    for group in (rewards[:4], rewards[4:]):
        known = np.concatenate([row or [] for row in group])
        for row in group:
            normalised = (np.array(row or []) - known.mean()) / (known.std(ddof=1) + 1e-4)
            to_come = [normalised[j:] for j in range(len(normalised))]
            advantages.append([(steps * discount ** np.arange(len(steps))).sum() for steps in to_come])
    return advantages


def test_tokens_get_the_weights_of_the_source_but_for_a_tools(make_trainer, rollout):
    """A tool's tokens have none; a completion of which nothing is known keeps 1."""
    batch = rollout(make_trainer(token_credit=Given(numbers, outside=0.5), rollout_func=rollout_with_environment))
    known, unknown = [0.5, 1.5, 0.0, 3.5, 4.5, 0.0, 6.5], [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert batch["token_coefficients"].tolist() == [known, known, unknown] * 2 + [known, known]
    normalised = Given(numbers, normalize=True).of_rollout(tokens_of(1)).weights
    assert normalised.tolist() == pytest.approx([(0.5 + j) / 3 for j in range(6)])


def test_spans_of_a_source_by_its_path():
    credit = Given("tests.trainer.test_given.halves", outside=0.0).of_rollout(tokens_of(1))
    # a token that both spans cut has the later one's; the end of sequence belongs to the text before it
    assert credit.weights.tolist() == [0.25, 0.25, 2.0, 2.0, 2.0, 2.0]
    without = Given(lambda **_: [[]], outside=0.5).of_rollout(tokens_of(1))  # as of a completion without text
    assert (without.weights == 0.5).all()


def test_a_coroutine_runs_in_the_same_loop_for_all_rollout_batches():
    LOOPS.clear()
    rule = Given(counted)
    rule.of_rollout(tokens_of())
    rule.of_rollout(tokens_of())
    assert len(LOOPS) == 2


def page(name: str) -> dict:
    """A module of docs/token_credit.md."""
    namespace: dict = {}
    exec(shown_module(name), namespace)
    return namespace


def test_the_documented_judge_marks_the_final_answer():
    assert page("my_judge.py")["final_answer"](["a\nbc", "", "d"], []) == [[(2, 4, 2.0)], None, [(0, 1, 2.0)]]


def test_the_documented_process_reward_model_scores_steps_as_far_as_they_go(
    make_trainer, rollout, tmp_path, monkeypatch
):
    """A tiny token classifier, as TRL's PRMTrainer saves it."""
    tokenizer = tiny.tokenizer(tiny.CHARACTERS + "\n")
    config = Qwen3Config(**{**tiny.SIZES, "vocab_size": len(tokenizer)}, head_dim=8, num_labels=2)
    AutoModelForTokenClassification.from_config(config).save_pretrained(tmp_path / "my-prm")
    tokenizer.save_pretrained(tmp_path / "my-prm")
    monkeypatch.chdir(tmp_path)
    source = page("my_prm.py")["steps"]
    [[first, second], [only]] = source(["12\n345", "6"], ["1+1=", "2+2="])
    assert (first[:2], second[:2], only[:2]) == ((0, 3), (3, 6), (0, 1))
    assert 0 < first[2] < 1
    assert first[2] != second[2]
    alone = source(["12\n"], ["1+1="])
    assert alone[0][0][2] == pytest.approx(first[2], abs=1e-6)  # a step is scored without those to come
    batch = rollout(make_trainer(token_credit=Given(source, what="rewards")))
    assert batch["advantages"].isfinite().all()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([[1.0] * 6], "1 values"),
        (None, "NoneType"),
        ([[1.0] * 50] * 2, "completion 1: 50 numbers"),
        ([[(0, 99, 1.0)]] * 2, "0:99"),
        ([[float("nan")] * 6] * 2, "nan"),
        ([[-1.0] * 6] * 2, "-1.0"),
        ([{0: 1.0}] * 2, "completion 1: <class 'dict'>"),
        ([[(0, 1)]] * 2, r"\(0, 1\)"),
        ([[None] * 6] * 2, "None: expected a number for each token"),
    ],
    ids=repr,
)
def test_unusable_weights_end_the_run_with_their_place(returned, message):
    with pytest.raises(TokenCreditError, match=rf"source='<lambda>'.*{message}"):
        Given(lambda **_: returned).of_rollout(tokens_of())


@pytest.mark.parametrize("short", [[1.0] * 5, []], ids=["numbers", "spans"])
def test_a_mismatch_is_of_one_completion(short):
    """As if nothing were known of it; no spans are none."""
    credit = Given(lambda **_: [[2.0] * 6, short, None], outside=0.5).of_rollout(tokens_of(3))
    expected = [2.0] * 6 + [1.0 if short else 0.5] * 6 + [1.0] * 6
    assert credit.weights.tolist() == expected
    assert credit.metrics == {"mismatched_completions": pytest.approx(len(short) / 5 / 3)}


@pytest.mark.parametrize("wrong", [[math.nan, 1.0], ["a", 1.0], [-1.0, 1.0], "ab"], ids=repr)
def test_what_is_no_number_is_refused_in_a_mismatch_too(wrong):
    with pytest.raises(TokenCreditError, match=r"completion 2.*expected"):
        Given("column:weights").of_rollout(tokens_of(weights=[[1.0], wrong]))


def work(rank: int, store: str):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    one_rank = [[[1.0, 1.0]] * 2, [[1.0]] * 2][rank]
    credit = Given("column:weights").of_rollout(tokens_of(weights=one_rank))
    assert credit.metrics == {"mismatched_completions": 0.5}
    with pytest.raises(TokenCreditError, match=r"completion 1: [23] numbers for 1 turns.*No completion"):
        Given("column:weights").of_rollout(tokens_of(weights=[[1.0] * (2 + rank)] * 2))
    dist.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit


@pytest.mark.processes
def test_all_completions_are_those_of_all_processes(tmp_path):
    """One whose own are all mismatched goes on; otherwise, both end."""
    mp.spawn(work, (str(tmp_path / "store"),), nprocs=2)


def test_a_column_whose_name_the_source_needs():
    with pytest.raises(TokenCreditError, match=r"a column 'turns'.*rename it"):
        Given(counted).of_rollout(tokens_of(turns=[3, 3]))


# Two turns, a tool's token after each, and a turn without text. An empty token is a part of a character that a later
# one completes.
TEXTS = ["a", None, "", " the", None, None, None, "b", None, "c", None, None]
TURNS = [Turn("a the", 0, 5, 0, 4), Turn("bc", 5, 7, 6, 9), Turn("", 7, 7, 11, 11)]


@pytest.mark.parametrize(
    ("start", "end", "tokens"),
    [
        (0, 1, (0, 1)),  # a special token belongs to the text before it
        (1, 2, (2, 4)),
        (4, 6, (2, 8)),
        (5, 6, (6, 8)),  # at the beginning of a turn, to the text after it
        (6, 7, (9, 9)),
        (7, 7, (11, 11)),  # a turn is all its tokens
    ],
)
def test_a_span_is_the_tokens_that_have_its_characters(start, end, tokens):
    step = Given(lambda: None)._step(0, (start, end, 1.0), bounds_of(TEXTS, TURNS), TURNS)
    assert step == (*tokens, 1.0)


def test_special_tokens_are_those_that_decoding_skips():
    """Also those that no attribute of the tokenizer names; each turn is decoded by itself."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens([AddedToken("<end_of_turn>", special=True), AddedToken("<call>", special=False)])
    turn_end, call, letter = *tokenizer.convert_tokens_to_ids(["<end_of_turn>", "<call>"]), 13
    assert turn_end not in tokenizer.all_special_ids
    ids = [letter, turn_end, letter, call, turn_end]
    texts, turns = TokenTexts(tokenizer).of_turns(ids, [True, True, False, True, True])
    assert [text is None for text in texts] == [False, True, True, False, True]
    assert turns == [Turn("=", 0, 1, 0, 1), Turn("<call>", 1, 7, 3, 4)]


class Game:
    """An environment that owns its data, with a reward for each turn."""

    games = count()

    def reset(self, **columns) -> str:
        self.turn_rewards = [float(next(self.games) % 4)]
        return " Observation."

    def move(self) -> str:
        """Make a move."""
        return "moved"


def test_a_source_sees_what_rewards_see_and_environments_have_values(make_trainer, rollout):
    """Prompts with the observation, the environments, and all text of completions that the loss masks."""
    calls: dict[str, list[dict]] = {"reward": [], "source": []}

    def reward(completions, **columns):
        calls["reward"].append(columns | {"completions": completions})
        return [0.0] * len(completions)

    def source(completions, **columns):
        calls["source"].append(columns | {"completions": completions})
        return [None] * len(completions)

    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = qwen3_chat_template
    data = Dataset.from_dict({"kind": ["new"] * 16, "completion_ids": [0] * 16})  # TRL leaves such columns out
    options = {"environment_factory": Game, "processing_class": tokenizer}
    options |= {"reward_funcs": reward, "train_dataset": data}
    rollout(make_trainer(token_credit=Given(source), mask_truncated_completions=True, **options))
    rewards_see, source_sees = calls["reward"][0], calls["source"][0]
    assert {*rewards_see} - {*source_sees} == {"log_extra", "log_metric"}
    assert {*source_sees} - {*rewards_see} == {"turns"}
    for name in ("completions", "prompts", "completion_ids", "kind", "environments"):
        assert source_sees[name] == rewards_see[name]
    assert source_sees["prompts"][0][-1]["content"] == " Observation."
    assert any(turns == [] for turns in source_sees["turns"])  # cut off

    of_games = Given("environment:turn_rewards", what="rewards")
    trainer = make_trainer(token_credit=of_games, **options)
    advantages = rollout(trainer)["advantages"]
    expected = process_supervision([game.turn_rewards for game in trainer.environments])
    assert advantages[:, :1].tolist() == [pytest.approx(row, abs=1e-4) for row in expected]


def test_step_rewards_of_turns_are_deepseekmaths(make_trainer, rollout, tmp_path):
    """From a column, the `rollout_func`'s, with a discount, special tokens and half of the outcome's advantage."""
    rewards: list = [[float((i * j) % 4) for j in range(1, 4)] for i in range(8)]
    rewards[2] = None
    outcomes = [float(i % 3) for i in range(8)]

    def rollout_func(prompts, trainer):
        output = rollout_of(lambda i: [13, 1, 14, 15, 1, 16, 1])(prompts, trainer)
        return {**output, "env_mask": [[1, 1, 0, 1, 1, 0, 1] for _ in prompts], "turn_rewards": rewards}

    options = {"source": "column:turn_rewards", "what": "rewards", "outcome_weight": 0.5, "discount": 0.5}
    options = credit("given", **options) | {"rollout_func": rollout_func, "log_token_credit": 1}
    batch = rollout(make_trainer(reward_funcs=lambda completions, **_: outcomes, **options))
    recorded = [c.step_rewards for group in read_run(tmp_path / "run").groups for c in group.completions]
    of_outcomes = process_supervision([[outcome] for outcome in outcomes])
    for i, steps in enumerate(process_supervision(rewards, discount=0.5)):
        first, second, third = (0.5 * of_outcomes[i][0] + advantage for advantage in steps or [0.0] * 3)
        expected = [first, first, 0.0, second, second, 0.0, third]
        assert batch["advantages"][i].tolist() == pytest.approx(expected, abs=1e-4)
        first, second, third = rewards[i] or [np.nan] * 3
        np.testing.assert_equal(recorded[i], np.array([np.nan, first, np.nan, np.nan, second, np.nan, third]))


@pytest.mark.parametrize("order", [1, -1])
def test_spans_may_come_in_any_order_and_end_at_the_same_token(order):
    """The group's only completion, 'l m n o p': steps end at its tokens 1, 5 and 5. A later one counts by half."""
    spans = [(0, 3, 1.0), (3, 9, 3.0), (5, 9, 5.0)]
    first, second, third = ((reward - 3.0) / (2.0 + 1e-4) for *_, reward in spans)
    at_end = second + 0.5 * third
    rule = Given(lambda **_: [spans[::order]], what="rewards", outcome_weight=0.0, discount=0.5)
    credit = rule.of_rollout(tokens_of(1))
    assert credit.advantages.tolist() == pytest.approx([first + 0.5 * at_end] * 2 + [at_end] * 4)
    np.testing.assert_equal(credit.step_rewards.numpy(), [np.nan, 1.0, np.nan, np.nan, np.nan, 3.0 + 5.0])


def test_equal_step_rewards_are_no_advantage():
    """Eight tenths differ from their mean by rounding."""
    rule = Given(lambda **_: [[(0, 9, 0.1)]] * 8, what="rewards", outcome_weight=0.0)
    assert not rule.of_rollout(tokens_of(8)).advantages.any()


def test_step_rewards_train_where_outcomes_are_equal(make_trainer):
    """Contrast is that of the tokens' advantages; dynamic sampling, which looks at rewards, is refused."""
    options = {
        "reward_funcs": lambda completions, **_: [1.0] * len(completions),
        "rollout_func": rollout_of(lambda i: [13] * 6),
        "token_credit": Given(lambda completions, **_: [[float(i)] * 6 for i in range(8)], what="rewards"),
    }
    trainer = make_trainer(**options, max_steps=1)
    trainer.train()
    assert logged(trainer, "frac_reward_zero_std") == [1.0]
    assert logged(trainer, "credit/no_advantage") == [0.0]
    assert logged(trainer, "grad_norm")[0] > 0
    with pytest.raises(ValueError, match="dynamic_sampling=True"):
        make_trainer(**options, dynamic_sampling=True)
