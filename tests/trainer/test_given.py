"""Evidence from outside: weights and step rewards per token or span, from a user's function."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import AutoModelForTokenClassification, Qwen3Config

from delta_trl.credit import Given
from delta_trl.credit.rule import TokenCreditError

from ..corpus import tiny
from ..trainers import credit, response_advantages, rollout_of, rollout_with_environment, valid_tokens


SEEN: list[dict] = []


def numbers(completions, prompts, completion_ids, solution, trainer_state, **columns):
    """A number for each token; nothing is known of every third completion."""
    SEEN.append({"completions": completions, "prompts": prompts, "solution": solution, "step": trainer_state})
    return [None if i % 3 == 2 else [0.5 + j for j in range(len(ids))] for i, ids in enumerate(completion_ids)]


async def halves(completions, **columns):
    """Two spans of characters, of unlike value."""
    return [[(0, len(text) // 2, 0.25), (len(text) // 2, len(text), 2.0)] for text in completions]


@pytest.mark.parametrize("options", [{}, {"rollout_func": rollout_with_environment}], ids=["", "tools' texts"])
def test_weights_of_tokens(make_trainer, rollout, options):
    SEEN.clear()
    weights, normalised = (
        rollout(make_trainer(trainer_options={"token_credit": Given(numbers, normalize=normalize), **options}))
        for normalize in (False, True)
    )
    valid = valid_tokens(weights)
    for i, (row, inside) in enumerate(zip(weights["token_coefficients"], valid, strict=True)):
        n = int(inside.sum())
        assert row[inside].tolist() == ([1.0] * n if i % 3 == 2 else [0.5 + j for j in range(n)])
        assert not row[~inside].any()
    assert normalised["token_coefficients"][valid].mean().item() == pytest.approx(1, abs=1e-6)
    seen = SEEN[0]
    assert len(seen["completions"]) == len(seen["solution"]) == 8
    assert seen["prompts"][0].count("+") == 1
    assert "<eos>" not in "".join(seen["completions"])


def test_spans_in_a_recipe(make_trainer, rollout):
    options = {"source": "tests.trainer.test_given.halves", "outside": 0.0}
    functions = {"rollout_func": rollout_of(lambda i: [13, 14, 15, 16, 17, 1])}
    batch = rollout(make_trainer(**credit("given", **options), trainer_options=functions))
    # a token that both spans cut has the later one's; the end of sequence is in none
    assert batch["token_coefficients"].tolist() == [[0.25, 0.25, 2.0, 2.0, 2.0, 0.0]] * 8


def test_no_spans_at_all(make_trainer, rollout):
    """As of a completion without text. Not an error: it would end a long run."""
    rule = Given(lambda completions, **_: [[] for _ in completions], outside=0.5)
    batch = rollout(make_trainer(trainer_options={"token_credit": rule}))
    assert (batch["token_coefficients"][valid_tokens(batch)] == 0.5).all()


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
        seen.extend(zip(completions, turns, strict=True))
        return [[(start, end, 1.0 + i) for i, (start, end) in enumerate(row)] for row in turns]

    options = {"token_credit": Given(source), "rollout_func": rollout_with_environment}
    batch = rollout(make_trainer(trainer_options=options))  # every third of seven tokens is the tool's
    for text, row in seen:
        assert [start for start, _ in row] == [0, *(end for _, end in row[:-1])]
        assert row[-1][1] == len(text)
        assert len(row) == 3
    weights = batch["token_coefficients"][0].tolist()
    assert weights[:6] == [1.0, 1.0, 0.0, 2.0, 2.0, 0.0]


@rollout_of
def six_letters(i: int) -> list[int]:
    return [13 + (5 * i + t) % 26 for t in range(6)]


def test_step_rewards_are_deepseekmaths(make_trainer, rollout):
    """Process supervision written out: all steps of a group are normalised together, a token counts those to come."""
    steps = [[(j, float((3 * i + j) % 5)) for j in range(1, 4 + i % 2, 2)] for i in range(8)]  # last token and reward

    # a letter and the space before it are a token
    spans = [None if i == 3 else [(2 * j, 2 * j + 1, r) for j, r in row] for i, row in enumerate(steps)]
    by_steps = Given(lambda **_: spans, what="rewards", outcome_weight=0.5)
    batch, plain = (
        rollout(
            make_trainer(
                reward_funcs=tiny.reward_every_other,
                trainer_options={"rollout_func": six_letters, "token_credit": rule},
            )
        )
        for rule in (by_steps, None)
    )
    outcome = response_advantages(plain)
    assert outcome.all()
    for group in (range(4), range(4, 8)):
        rewards = np.array([r for i in group if i != 3 for _, r in steps[i]])
        for i in group:
            for t in range(6):
                to_come = [] if i == 3 else [r for j, r in steps[i] if j >= t]
                expected = sum((r - rewards.mean()) / (rewards.std(ddof=1) + 1e-4) for r in to_come)
                expected += 0.5 * outcome[i].item()
                assert batch["advantages"][i, t].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([[1.0] * 6] * 7, "7 values"),
        (None, "NoneType"),
        ([[1.0] * 50] * 8, "completion 1: 50 numbers"),
        ([[(0, 99, 1.0)]] * 8, "0:99"),
        ([[float("nan")] * 6] * 8, "nan"),
        ([[-1.0] * 6] * 8, "-1.0"),
    ],
    ids=repr,
)
def test_what_cannot_be_used_is_named(make_trainer, rollout, returned, message):
    def source(completions, **columns):
        return returned

    options = {"token_credit": Given(source), "rollout_func": six_letters}
    with pytest.raises(TokenCreditError, match=rf"source='source'.*{message}"):
        rollout(make_trainer(trainer_options=options))


@given(st.lists(st.sampled_from([None, "", "a", " the"]), min_size=1, max_size=8), st.data())
def test_a_span_is_the_tokens_that_have_its_characters(pieces, data):
    """An empty token is a part of a character that a later one completes; a special one is in no span."""
    owners = [i for i, piece in enumerate(pieces) for _ in piece or ""]  # the token of each character
    assume(owners)
    start = data.draw(st.integers(0, len(owners) - 1))
    end = data.draw(st.integers(start + 1, len(owners)))

    def is_inside(i: int) -> bool:
        completing = next((j for j in range(i, len(pieces)) if pieces[j]), None)
        return pieces[i] is not None and completing in owners[start:end]

    inside = [i for i in range(len(pieces)) if is_inside(i)]
    [span] = Given(lambda: None)._read(0, [(start, end, 1.0)], pieces)
    assert span == (inside[0], inside[-1], 1.0)
