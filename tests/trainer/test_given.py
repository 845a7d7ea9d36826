"""Evidence from outside: weights and step rewards per token, span or turn, from a function, a column, environments."""

import asyncio
import math
import os
from functools import partial
from itertools import count
from pathlib import Path
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
    values = []
    for i, ids in enumerate(completion_ids):
        of_tokens = [float(j) for j in range(len(ids))]
        values.append(None if i % 3 == 2 else of_tokens)
    return values


async def counted(completions, **columns):
    """Uses a client that belongs to the loop of its first call, as HTTP clients do."""
    loop = asyncio.get_running_loop()
    LOOPS.append(loop)
    assert loop is LOOPS[0]
    return [None] * len(completions)


async def halves(completions, **columns):
    """Two spans of characters, of unlike value."""
    spans = []
    for text in completions:
        middle = len(text) // 2
        spans.append([(0, middle, 0.25), (middle, len(text), 2.0)])
    return spans


def tokens_of(n: int = 2, groups: list[int] | None = None, **columns) -> Tokens:
    """Those of `n` completions 'l m n o p' and an end."""
    texts = ["l", " m", " n", " o", " p", None]
    responses = Responses(
        prompts=["1+1="] * n,
        completions=["l m n o p"] * n,
        ids=[[13] * 6] * n,
        columns=columns,
        texts=[texts] * n,
        turns=[[Turn("l m n o p", 0, 9, 0, 5)]] * n,
    )
    policy = SimpleNamespace(responses=lambda: responses)
    mask = torch.ones(n, 6)
    numbers = torch.tensor(groups or [0] * n)
    return Tokens(mask, mask, torch.ones(n), policy=policy, groups=numbers)


def process_supervision(rewards: list[list[float] | None], discount: float = 1.0) -> list[list[float]]:
    """DeepSeekMath 4.1.3 for groups of 4, written out: the advantage of a row's tokens up to each step's end."""
    advantages = []
    for group in (rewards[:4], rewards[4:]):
        steps_of = [np.array(row or []) for row in group]
        known = np.concatenate(steps_of)
        for steps in steps_of:
            normalised = (steps - known.mean()) / (known.std(ddof=1) + 1e-4)
            of_row = []
            for j in range(len(steps)):
                to_come = normalised[j:]
                discounts = discount ** np.arange(len(to_come))
                of_row.append((to_come * discounts).sum())
            advantages.append(of_row)
    return advantages


def test_tokens_get_the_weights_of_the_source_but_for_a_tools(make_trainer, rollout):
    """A tool's tokens have none; a completion of which nothing is known keeps 1. A weight of 0 is one of them."""
    rule = Given(numbers, outside=0.5)
    trainer = make_trainer(token_credit=rule, rollout_func=rollout_with_environment)
    batch = rollout(trainer)
    assert trainer._metrics["train"]["credit/coefficient_min"] == [0.0]
    known = [0.0, 1.0, 0.0, 3.0, 4.0, 0.0, 6.0]
    unknown = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert batch["token_coefficients"].tolist() == [known, known, unknown] * 2 + [known, known]

    normalised = Given(numbers, normalize=True).of_rollout(tokens_of(1)).weights
    with_mean_1 = [j / 2.5 for j in range(6)]
    assert normalised.tolist() == pytest.approx(with_mean_1)


def test_nothing_is_read_of_a_completion_that_the_loss_masks():
    """Say because it is cut off. What the source says of it is no mistake, but it is one of the completions."""
    mask = torch.tensor([[1] * 6, [0] * 6, [1] * 6])
    tokens = Tokens(mask, mask, torch.ones(3), policy=tokens_of(3).policy)
    credit = Given(lambda **_: [[0.5] * 6, [1.0], [1.0]]).of_rollout(tokens)
    assert credit.weights.tolist() == [0.5] * 6 + [1.0] * 6
    assert credit.metrics["mismatched_completions"] == pytest.approx(1 / 3)


def test_spans_of_a_source_by_its_path():
    by_path = Given("tests.trainer.test_given.halves", outside=0.0)
    credit = by_path.of_rollout(tokens_of(1))
    # a token that both spans cut has the later one's; the end of sequence belongs to the text before it
    assert credit.weights.tolist() == [0.25, 0.25, 2.0, 2.0, 2.0, 2.0]

    no_spans = Given(lambda **_: [[]], outside=0.5)  # as of a completion without text
    credit = no_spans.of_rollout(tokens_of(1))
    assert credit.weights.tolist() == [0.5] * 6


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
    final_answer = page("my_judge.py")["final_answer"]
    of_lines, of_nothing, of_a_line = final_answer(["a\nbc", "", "d"], [])
    assert of_lines == [(2, 4, 2.0)]
    assert of_nothing is None
    assert of_a_line == [(0, 1, 2.0)]


def save_process_reward_model(folder: Path) -> None:
    """A tiny token classifier, as TRL's PRMTrainer saves it."""
    tokenizer = tiny.tokenizer(tiny.CHARACTERS + "\n")
    sizes = {**tiny.SIZES, "vocab_size": len(tokenizer)}
    config = Qwen3Config(**sizes, head_dim=8, num_labels=2)
    AutoModelForTokenClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_the_documented_process_reward_model_scores_steps_as_far_as_they_go(
    make_trainer, rollout, tmp_path, monkeypatch
):
    save_process_reward_model(tmp_path / "my-prm")
    monkeypatch.chdir(tmp_path)
    source = page("my_prm.py")["steps"]

    [[first, second], [only]] = source(["12\n345", "6"], ["1+1=", "2+2="])
    *bounds, score_of_first = first
    assert bounds == [0, 3]
    *bounds, score_of_second = second
    assert bounds == [3, 6]
    *bounds, _ = only
    assert bounds == [0, 1]
    assert 0 < score_of_first < 1
    assert score_of_first != score_of_second

    [[alone]] = source(["12\n"], ["1+1="])
    assert alone[2] == pytest.approx(score_of_first, abs=1e-6)  # a step is scored without those to come

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
        ([[(0, 10, 1.0)]] * 2, "0:10"),  # one more than there are
        ([[(-1, 3, 1.0)]] * 2, "-1:3"),
        ([[(2, 2, 1.0)]] * 2, "2:2"),
        ([[(0.0, 3, 1.0)]] * 2, r"\(0.0, 3, 1.0\)"),
        ([[(0, 3, -0.5)]] * 2, "-0.5: expected finite numbers >= 0"),
        ([None, [(0, 3, math.inf)]], "completion 2: inf"),
        ([[1.0, None] * 3] * 2, "1.0: expected a number for each token"),
        ([[None] * 6] * 2, "None: expected a number for each token"),
    ],
    ids=repr,
)
def test_unusable_weights_end_the_run_with_their_place(returned, message):
    with pytest.raises(TokenCreditError, match=rf"source='<lambda>'.*{message}"):
        Given(lambda **_: returned).of_rollout(tokens_of())


def test_a_source_without_a_name_of_its_own_is_named():
    with pytest.raises(TokenCreditError, match=r"source=functools\.partial.*: returned <class 'NoneType'>"):
        Given(partial(lambda **_: None)).of_rollout(tokens_of())


@pytest.mark.parametrize(
    ("short", "weight", "share"),
    [
        ([1.0] * 5, 1.0, 1 / 3),
        ([], 0.5, 0.0),
    ],
    ids=["numbers", "spans"],
)
def test_a_mismatch_is_of_one_completion(short, weight, share):
    """As if nothing were known of it; no spans are none."""
    rule = Given(lambda **_: [[2.0] * 6, short, None], outside=0.5)
    credit = rule.of_rollout(tokens_of(3))
    matching, of_short, unknown = credit.weights.view(3, 6)
    assert (matching == 2.0).all()
    assert (of_short == weight).all()
    assert (unknown == 1.0).all()
    assert credit.metrics == {"mismatched_completions": pytest.approx(share)}


@pytest.mark.parametrize("wrong", [[math.nan, 1.0], ["a", 1.0], [-1.0, 1.0], "ab"], ids=repr)
def test_what_is_no_number_is_refused_in_a_mismatch_too(wrong):
    tokens = tokens_of(weights=[[1.0], wrong])
    with pytest.raises(TokenCreditError, match=r"completion 2.*expected"):
        Given("column:weights").of_rollout(tokens)


def work(rank: int, store: str):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    rule = Given("column:weights")

    def tokens_with(numbers: int) -> Tokens:
        """In each completion, for its one turn."""
        return tokens_of(weights=[[1.0] * numbers] * 2)

    credit = rule.of_rollout(tokens_with(2 - rank))
    assert credit.metrics == {"mismatched_completions": 0.5}

    with pytest.raises(TokenCreditError, match=rf"completion 1: {2 + rank} numbers for 1 turns.*No completion"):
        rule.of_rollout(tokens_with(2 + rank))

    rewards = Given("column:steps", what="rewards", outcome_weight=0.0)
    # a group of three completions, and another one on the second process alone
    steps, groups, expected = [
        ([[5.0], [6.0]], [0, 0], [-1.0, 0.0]),
        ([[7.0], [9.0]], [0, 3], [1.0, 0.0]),
    ][rank]
    credit = rewards.of_rollout(tokens_of(groups=groups, steps=steps))
    torch.testing.assert_close(credit.advantages.view(2, 6)[:, 0], torch.tensor(expected), atol=1e-3, rtol=0)
    on_the_first = [[[1.0], [2.0]], [None, None]][rank]
    assert not rewards.of_rollout(tokens_of(steps=on_the_first)).neutral
    dist.barrier()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit


@pytest.mark.processes
def test_all_completions_are_those_of_all_processes(tmp_path):
    """One whose own are all mismatched goes on; otherwise, both end. Groups and steps are those of both."""
    mp.spawn(work, (str(tmp_path / "store"),), nprocs=2)


def test_a_column_whose_name_the_source_needs():
    with pytest.raises(TokenCreditError, match=r"a column 'turns'.*rename it"):
        Given(counted).of_rollout(tokens_of(turns=[3, 3]))


# Two turns, a tool's token after each, and a turn without text. An empty token is a part of a character that a later
# one completes.
TEXTS = ["a", None, "", " the", None, None, None, "b", None, "c", None, None]
TURNS = [
    Turn("a the", 0, 5, 0, 4),
    Turn("bc", 5, 7, 6, 9),
    Turn("", 7, 7, 11, 11),
]


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
    bounds = bounds_of(TEXTS, TURNS)
    step = Given(lambda: None)._step(0, (start, end, 1.0), bounds, TURNS)
    assert step == (*tokens, 1.0)


def test_special_tokens_are_those_that_decoding_skips():
    """Also those that no attribute of the tokenizer names; each turn is decoded by itself."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(
        [
            AddedToken("<end_of_turn>", special=True),
            AddedToken("<call>", special=False),
        ]
    )
    turn_end = tokenizer.convert_tokens_to_ids("<end_of_turn>")
    assert turn_end not in tokenizer.all_special_ids

    ids = tokenizer.convert_tokens_to_ids(["=", "<end_of_turn>", "=", "<call>", "<end_of_turn>"])
    is_policys = [True, True, False, True, True]
    texts, turns = TokenTexts(tokenizer).of_turns(ids, is_policys)
    assert texts == ["=", None, None, "<call>", None]
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


def test_a_source_sees_what_rewards_see_and_environments_have_values(make_trainer, rollout, caplog):
    """
    Prompts with the observation, the environments, and all text of completions that the loss masks. That the dataset
    has no prompts is no mistake.
    """
    rewards_see, source_sees = {}, {}

    def reward(**columns):
        rewards_see.update(columns)
        return [0.0] * len(columns["completions"])

    def source(**columns):
        source_sees.update(columns)
        return [None] * len(columns["completions"])

    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = qwen3_chat_template
    names_of_trl = ("completion", "completion_ids")  # it leaves such columns out
    data = Dataset.from_dict({"kind": ["new"] * 16, **dict.fromkeys(names_of_trl, [0] * 16)})
    options = {
        "environment_factory": Game,
        "processing_class": tokenizer,
        "reward_funcs": reward,
        "train_dataset": data,
    }
    rollout(make_trainer(token_credit=Given(source), mask_truncated_completions=True, **options))
    assert not caplog.text
    assert rewards_see.keys() - source_sees.keys() == {"log_extra", "log_metric"}
    assert source_sees.keys() - rewards_see.keys() == {"turns"}
    for name in ("completions", "prompts", "completion_ids", "kind", "environments", "trainer_state"):
        assert source_sees[name] == rewards_see[name]
    last_message = source_sees["prompts"][0][-1]
    assert last_message["content"] == " Observation."
    assert [] in source_sees["turns"]  # cut off

    of_games = Given("environment:turn_rewards", what="rewards")
    trainer = make_trainer(token_credit=of_games, **options)
    batch = rollout(trainer)
    expected = process_supervision([game.turn_rewards for game in trainer.environments])
    np.testing.assert_allclose(batch["advantages"][:, :1], expected, atol=1e-4)


def test_step_rewards_of_turns_are_deepseekmaths(make_trainer, rollout, tmp_path):
    """From a column, the `rollout_func`'s, with a discount, special tokens and half of the outcome's advantage."""
    of_first_group: list = [[0.0, 0.0, 0.0], [-1.0, 2.0, 3.0], None, [3.0, -2.0, 1.0]]
    rewards = [*of_first_group, [5.0, 7.0, 9.0], None, *of_first_group[:2]]
    outcomes = [float(i % 3) for i in range(8)]
    conversation = rollout_of(lambda i: [13, 1, 14, 15, 1, 16, 1])

    def rollout_func(prompts, trainer):
        env_mask = [[1, 1, 0, 1, 1, 0, 1] for _ in prompts]
        return {**conversation(prompts, trainer), "env_mask": env_mask, "turn_rewards": rewards}

    trainer = make_trainer(
        reward_funcs=lambda completions, **_: outcomes,
        rollout_func=rollout_func,
        log_token_credit=1,
        **credit("given", source="column:turn_rewards", what="rewards", outcome_weight=0.5, discount=0.5),
    )
    batch = rollout(trainer)

    of_outcomes = process_supervision([[outcome] for outcome in outcomes])
    of_steps = process_supervision(rewards, discount=0.5)
    for i in range(8):
        [of_outcome] = of_outcomes[i]
        first, second, third = 0.5 * of_outcome + np.array(of_steps[i] or [0.0] * 3)
        expected = [first, first, 0.0, second, second, 0.0, third]
        assert batch["advantages"][i].tolist() == pytest.approx(expected, abs=1e-4)

    one, two = read_run(tmp_path / "run").groups
    for i, completion in enumerate([*one.completions, *two.completions]):
        first, second, third = rewards[i] or [np.nan] * 3
        expected = [np.nan, first, np.nan, np.nan, second, np.nan, third]
        np.testing.assert_equal(completion.step_rewards, np.array(expected))


@pytest.mark.parametrize("discount", [0.5, 0.0, 1.0])
@pytest.mark.parametrize("order", [1, -1])
def test_spans_may_come_in_any_order_and_end_at_the_same_token(order, discount):
    """The group's only completion, 'l m n o p': steps end at its tokens 1, 5 and 5. A later one counts less."""
    spans = ((0, 3, 1.0), [3, 9, 3.0], (5, 9, 5.0))
    rule = Given(lambda **_: (spans[::order],), what="rewards", outcome_weight=0.0, discount=discount)
    credit = rule.of_rollout(tokens_of(1))
    assert not credit.neutral

    deviation = 2.0 + 1e-4  # from 3.0
    first = -2.0 / deviation
    at_end = 0.0 + discount * 2.0 / deviation
    from_start = first + discount * at_end
    assert credit.advantages.tolist() == pytest.approx([from_start] * 2 + [at_end] * 4)
    expected = [np.nan, 1.0, np.nan, np.nan, np.nan, 3.0 + 5.0]
    np.testing.assert_equal(credit.step_rewards.numpy(), expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"outside": 1.0}, [0.0, 2.0, 4.0]),
        ({"normalize": True}, [0.0, 1.0, 2.0]),
        ({"what": "rewards", "outcome_weight": 0.0}, [0.0, 1.0, 1.0]),  # -1, 0 and 1, and what comes after
    ],
    ids=str,
)
def test_a_number_for_a_tools_token_has_no_effect(options, expected):
    responses = Responses(
        prompts=["1+1="],
        completions=["abc"],
        ids=[[13, 14, 2, 15]],
        columns={},
        texts=[["a", "b", None, "c"]],
        turns=[[Turn("ab", 0, 2, 0, 1), Turn("c", 2, 3, 3, 3)]],
    )
    mask = torch.tensor([[1, 1, 0, 1]])
    policy = SimpleNamespace(responses=lambda: responses)
    tokens = Tokens(torch.tensor(responses.ids), mask, torch.ones(1), policy=policy)
    credit = Given(lambda **_: [[0.0, 2.0, math.nan, 4.0]], **options).of_rollout(tokens)
    found = credit.advantages if credit.weights is None else credit.weights
    assert found.tolist() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("nothing", [None, []])
def test_without_any_step_the_outcome_s_advantage_is_left(nothing):
    rule = Given(lambda **_: [nothing] * 2, what="rewards", outcome_weight=0.5)
    credit = rule.of_rollout(tokens_of())
    assert credit.neutral
    assert credit.advantages.tolist() == [0.5] * 12
    assert credit.step_rewards.isnan().all()


def test_a_column_that_is_missing_is_named_with_those_there_are():
    tokens = tokens_of(weights=[[1.0]] * 2, kind=["new"] * 2)
    with pytest.raises(TokenCreditError, match=r"source='column:weight': no such column\. There are weights, kind"):
        Given("column:weight").of_rollout(tokens)


class Unfinished:
    """An environment whose property fails."""

    @property
    def turn_rewards(self):
        return self.moves


@pytest.mark.parametrize(("environment", "attributes"), [(Unfinished(), "turn_rewards"), (object(), "none")])
def test_a_property_that_fails_is_named_with_the_attributes_there_are(environment, attributes):
    tokens = tokens_of(environments=[environment] * 2)
    with pytest.raises(TokenCreditError, match=rf"or its property fails\. There are {attributes}\."):
        Given("environment:turn_rewards").of_rollout(tokens)


def test_equal_step_rewards_are_no_advantage():
    """Eight tenths differ from their mean by rounding."""
    rule = Given(lambda **_: [[(0, 9, 0.1)]] * 8, what="rewards", outcome_weight=0.0)
    credit = rule.of_rollout(tokens_of(8))
    assert not credit.advantages.any()


def test_step_rewards_train_where_outcomes_are_equal(make_trainer):
    """Contrast is that of the tokens' advantages; dynamic sampling, which looks at rewards, is refused."""
    step_rewards = [[float(i)] * 6 for i in range(8)]
    options = {
        "reward_funcs": lambda completions, **_: [1.0] * len(completions),
        "rollout_func": rollout_of(lambda i: [13] * 6),
        "token_credit": Given(lambda **_: step_rewards, what="rewards"),
    }
    trainer = make_trainer(**options, max_steps=1)
    trainer.train()
    assert logged(trainer, "frac_reward_zero_std") == [1.0]
    assert logged(trainer, "credit/no_advantage") == [0.0]
    assert logged(trainer, "grad_norm")[0] > 0
    with pytest.raises(ValueError, match="dynamic_sampling=True"):
        make_trainer(**options, dynamic_sampling=True)
    make_trainer(**{**options, "token_credit": Given(numbers)}, dynamic_sampling=True)  # weights need no such rows
