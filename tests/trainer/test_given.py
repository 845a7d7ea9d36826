"""Evidence from outside: weights and step rewards per token, span or turn, from a function, a column, environments."""

import asyncio
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import AddedToken, AutoModelForTokenClassification, Qwen3Config
from trl.chat_template_utils import qwen3_chat_template

from delta_trl.credit import Given, Responses, Tokens, Turn
from delta_trl.credit.rule import TokenCreditError
from delta_trl.credit.rules.given import bounds_of
from delta_trl.report import read_run
from delta_trl.scoring.texts import TokenTexts

from ..corpus import tiny
from ..trainers import credit, logged, rollout_of, rollout_with_environment, valid_tokens


SEEN: list[dict] = []
LOOPS: list = []


def numbers(completions, prompts, completion_ids, solution, trainer_state, **columns):
    """A number for each token; nothing is known of every third completion."""
    SEEN.append({"completions": completions, "prompts": prompts, "solution": solution, "step": trainer_state})
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
    """Those of `n` completions 'l m n o p' and an end, in groups of 4, whose advantages are 0, 1, 2, ..."""
    texts = ["l", " m", " n", " o", " p", None]
    turn = Turn("l m n o p", 0, 9, 0, 5)
    responses = Responses(["1+1="] * n, ["l m n o p"] * n, [[13] * 6] * n, columns, [texts] * n, [[turn]] * n)
    rows = torch.arange(n)
    policy = SimpleNamespace(responses=lambda: responses)
    return Tokens(torch.zeros(n, 6).long(), torch.ones(n, 6), rows.float(), groups=rows // 4, policy=policy)


def test_weights_of_tokens(make_trainer, rollout):
    SEEN.clear()
    options = {"rollout_func": rollout_with_environment}
    weights, normalised = (
        rollout(make_trainer(trainer_options={"token_credit": Given(numbers, normalize=normalize), **options}))
        for normalize in (False, True)
    )
    valid = valid_tokens(weights)
    for i, (row, inside) in enumerate(zip(weights["token_coefficients"], valid, strict=True)):
        places = inside.nonzero()[:, 0].tolist()  # numbers of a tool's tokens have no effect
        assert row[inside].tolist() == ([1.0] * len(places) if i % 3 == 2 else [0.5 + j for j in places])
        assert not row[~inside].any()
    assert normalised["token_coefficients"][valid].mean().item() == pytest.approx(1, abs=1e-6)
    seen = SEEN[0]
    assert len(seen["completions"]) == len(seen["solution"]) == 8
    assert seen["prompts"][0].count("+") == 1
    assert "<eos>" not in "".join(seen["completions"])


def test_spans_of_a_source_by_its_path():
    credit = Given("tests.trainer.test_given.halves", outside=0.0).of_rollout(tokens_of(1))
    # a token that both spans cut has the later one's; the end of sequence belongs to the text before it
    assert credit.weights.tolist() == [0.25, 0.25, 2.0, 2.0, 2.0, 2.0]


def test_one_loop_for_all_rollout_batches():
    LOOPS.clear()
    rule = Given(counted)
    rule.of_rollout(tokens_of())
    rule.of_rollout(tokens_of())
    assert len(LOOPS) == 2


def test_no_spans_at_all():
    """As of a completion without text. Not an error: it would end a long run."""
    rule = Given(lambda completions, **_: [[] for _ in completions], outside=0.5)
    assert (rule.of_rollout(tokens_of()).weights == 0.5).all()


def page(name: str) -> dict:
    """An example of docs/token_credit.md, run as a module."""
    text = Path(__file__).parents[2].joinpath("docs", "token_credit.md").read_text()
    namespace: dict = {}
    exec(text.split(f"```python\n# {name}\n")[1].split("```")[0], namespace)
    return namespace


def test_the_page_s_weights():
    assert page("my_judge.py")["final_answer"](["a\nbc", "", "d"], []) == [[(2, 4, 2.0)], None, [(0, 1, 2.0)]]


def test_the_page_s_process_reward_model(make_trainer, rollout, tmp_path, monkeypatch):
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
    batch = rollout(make_trainer(trainer_options={"token_credit": Given(source, what="rewards")}))
    assert batch["advantages"].isfinite().all()


def test_turns_are_what_a_tool_s_text_separates(make_trainer, rollout):
    seen = []

    def source(completions, turns, **columns):
        seen.extend(turns)
        return [[(turn.start, turn.end, 1.0 + i) for i, turn in enumerate(row)] for row in turns]

    options = {"token_credit": Given(source), "rollout_func": rollout_with_environment}
    batch = rollout(make_trainer(trainer_options=options))  # the third and the sixth of seven tokens are the tool's
    for row in seen:
        assert [(turn.first, turn.last) for turn in row] == [(0, 1), (3, 4), (6, 6)]
        assert [turn.start for turn in row] == [0, *(turn.end for turn in row[:-1])]
        assert all(len(turn.text) == turn.end - turn.start for turn in row)
    assert batch["token_coefficients"].tolist() == [[1.0, 1.0, 0.0, 2.0, 2.0, 0.0, 3.0]] * 8


def test_step_rewards_are_deepseekmaths():
    """Process supervision written out: all steps of a group are normalised together, a token counts those to come."""
    steps = [[(j, float((3 * i + j) % 5)) for j in range(1, 4 + i % 2, 2)] for i in range(8)]  # last token and reward
    # a letter and the space before it are a token
    spans = [None if i == 3 else [(2 * j, 2 * j + 1, r) for j, r in row] for i, row in enumerate(steps)]
    tokens = tokens_of(8)
    by_steps = Given(lambda **_: spans, what="rewards", outcome_weight=0.5)
    advantages = tokens.padded(by_steps.of_rollout(tokens).advantages)
    for group in (range(4), range(4, 8)):
        rewards = np.array([r for i in group if i != 3 for _, r in steps[i]])
        for i in group:
            for t in range(6):
                to_come = [] if i == 3 else [r for j, r in steps[i] if j >= t]
                expected = sum((r - rewards.mean()) / (rewards.std(ddof=1) + 1e-4) for r in to_come)
                assert advantages[i, t].item() == pytest.approx(expected + 0.5 * i, abs=1e-4)


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
        ([torch.ones(6)] * 2, "<class 'torch.Tensor'>"),
        ([[(0, 1)]] * 2, r"\(0, 1\)"),
        ([[None] * 6] * 2, "None: expected a number for each token"),
        ([["a"] * 6] * 2, "'a'"),
    ],
    ids=repr,
)
def test_what_cannot_be_used_is_named(returned, message):
    def source(**columns):
        return returned

    with pytest.raises(TokenCreditError, match=rf"source='source'.*{message}"):
        Given(source).of_rollout(tokens_of())


def test_a_column_whose_name_the_source_needs():
    with pytest.raises(TokenCreditError, match=r"a column 'turns'.*rename it"):
        Given(counted).of_rollout(tokens_of(turns=[3, 3]))


PIECES = st.lists(st.sampled_from([None, "", "a", " the"]), min_size=1, max_size=6)


@given(st.lists(PIECES, min_size=1, max_size=3), st.data())
def test_a_span_is_the_tokens_that_have_its_characters(parts, data):
    """Turns with a tool's token between them. An empty token is a part of a character that a later one completes."""
    texts, turns, owners = [], [], []  # `owners`: the token of each character
    for part in parts:
        first, start = len(texts), len(owners)
        for piece in part:
            owners += [len(texts)] * len(piece or "")
            texts.append(piece)
        turns.append(Turn("".join(filter(None, part)), start, len(owners), first, len(texts) - 1))
        texts.append(None)
    assume(owners)
    start = data.draw(st.integers(0, len(owners) - 1))
    end = data.draw(st.integers(start + 1, len(owners)))
    assume(all((turn.start, turn.end) != (start, end) for turn in turns))

    def character_of(i: int) -> int | None:
        """The token with the characters that a token counts as: its own, or its neighbour's in the turn."""
        turn = next((turn for turn in turns if turn.first <= i <= turn.last), None)
        if turn is None:
            return None
        after = [j for j in range(i, turn.last + 1) if texts[j]]
        before = [j for j in range(turn.first, i) if texts[j] is not None]
        if texts[i] is None and before:
            return character_of(before[-1])
        return after[0] if after else None

    inside = [i for i in range(len(texts)) if character_of(i) in owners[start:end]]
    rule = Given(lambda: None)
    assert rule._step(0, (start, end, 1.0), bounds_of(texts, turns), turns) == (inside[0], inside[-1], 1.0)
    for turn in turns:  # also where it has no text
        whole = rule._step(0, (turn.start, turn.end, 2.0), bounds_of(texts, turns), turns)
        if turn.text:
            assert whole == (turn.first, turn.last, 2.0)


def test_special_tokens_are_those_that_decoding_skips():
    """Also those that no attribute of the tokenizer names; each turn is decoded by itself."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens([AddedToken("<end_of_turn>", special=True), AddedToken("<call>", special=False)])
    turn_end, call, letter = *tokenizer.convert_tokens_to_ids(["<end_of_turn>", "<call>"]), 13
    assert turn_end not in tokenizer.all_special_ids
    ids = [letter, turn_end, letter, call, turn_end]
    texts, turns = TokenTexts(tokenizer).of_turns(ids, [True, True, False, True, True], [("search",)])
    assert [text is None for text in texts] == [False, True, True, False, True]
    assert [(turn.first, turn.last, turn.tools) for turn in turns] == [(0, 1, ("search",)), (3, 4, ())]
    assert turns[1].text == "<call>"


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
    settings = {"reward_funcs": reward, "train_dataset": data, "mask_truncated_completions": True}
    rollout(make_trainer(trainer_options={**options, "token_credit": Given(source)}, **settings))
    rewards_see, source_sees = calls["reward"][0], calls["source"][0]
    assert {*rewards_see} - {*source_sees} == {"log_extra", "log_metric"}
    assert {*source_sees} - {*rewards_see} == {"turns"}
    for name in ("completions", "prompts", "completion_ids", "kind", "environments"):
        assert source_sees[name] == rewards_see[name]
    assert source_sees["prompts"][0][-1]["content"] == " Observation."
    assert any(turns == [] for turns in source_sees["turns"])  # cut off

    of_games = Given("environment:turn_rewards", what="rewards")
    trainer = make_trainer(
        trainer_options={**options, "token_credit": of_games}, **{**settings, "mask_truncated_completions": False}
    )
    batch = rollout(trainer)
    for group in (range(4), range(4, 8)):
        r = np.array([trainer.environments[i].turn_rewards[0] for i in group])
        for i, expected in zip(group, (r - r.mean()) / (r.std(ddof=1) + 1e-4), strict=True):
            assert batch["advantages"][i, 0].item() == pytest.approx(expected, abs=1e-4)
            assert batch["advantages"][i, 0] != 0


@pytest.mark.parametrize("source", ["column:turn_rewards", "column:of_rollout"])
def test_a_number_for_each_turn_from_a_column(make_trainer, rollout, tmp_path, source):
    """By hand after DeepSeekMath 4.1.3, with a discount and special tokens; of the data or of the `rollout_func`."""
    rewards = [[float((i * j) % 4) for j in range(1, 4)] for i in range(8)]
    rewards[2] = None

    def rollout_func(prompts, trainer):
        ids = [[13, 1, 14, 15, 1, 16, 1] for _ in prompts]
        output = rollout_of(lambda i: ids[i])(prompts, trainer)
        return {**output, "env_mask": [[1, 1, 0, 1, 1, 0, 1] for _ in prompts], "of_rollout": rewards}

    data = tiny.dataset()
    data = data.add_column("turn_rewards", [rewards[i % 2 * 4] for i in range(len(data))])
    options = {"source": source, "what": "rewards", "outcome_weight": 0.0, "discount": 0.5}
    trainer = make_trainer(
        train_dataset=data,
        **credit("given", **options),
        trainer_options={"rollout_func": rollout_func},
        log_token_credit=1,
    )
    batch = rollout(trainer)
    used = trainer.last_reward_call[0]
    name = source.removeprefix("column:")
    for group in (range(4), range(4, 8)):
        of_group = [used[i][name] for i in group]
        known = np.array([r for row in of_group if row is not None for r in row])
        for i, row in zip(group, of_group, strict=True):
            r = [0.0] * 3 if row is None else (np.array(row) - known.mean()) / (known.std(ddof=1) + 1e-4)
            expected = [r[0] + 0.5 * r[1] + 0.25 * r[2]] * 2 + [0.0] + [r[1] + 0.5 * r[2]] * 2 + [0.0, r[2]]
            assert batch["advantages"][i].tolist() == pytest.approx(expected, abs=1e-4)
    recorded = [c.step_rewards for group in read_run(tmp_path / "run").groups for c in group.completions]
    for row, of_tokens in zip([row[name] for row in used], recorded, strict=True):
        a, b, c = row or [np.nan] * 3
        np.testing.assert_equal(of_tokens, np.array([np.nan, a, np.nan, np.nan, b, np.nan, c]))


def test_step_rewards_train_where_outcomes_are_equal(make_trainer):
    """Contrast is that of the tokens' advantages; dynamic sampling, which looks at rewards, is refused."""
    options = {
        "reward_funcs": lambda completions, **_: [1.0] * len(completions),
        "trainer_options": {
            "rollout_func": rollout_of(lambda i: [13] * 6),
            "token_credit": Given(lambda completions, **_: [[float(i)] * 6 for i in range(8)], what="rewards"),
        },
    }
    trainer = make_trainer(**options, max_steps=1)
    trainer.train()
    assert logged(trainer, "frac_reward_zero_std") == [1.0]
    assert logged(trainer, "credit/no_advantage") == [0.0]
    assert logged(trainer, "grad_norm")[0] > 0
    with pytest.raises(ValueError, match="dynamic_sampling=True"):
        make_trainer(**options, dynamic_sampling=True)
