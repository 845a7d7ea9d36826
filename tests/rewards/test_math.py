import unicodedata
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from delta_trl.rewards import MathReward, code_reward, get_reward, math_reward
from delta_trl.rewards.reasoning import told_of_reasoning

from ..corpus import tiny


def test_a_math_reward_logs_answers_and_golds():
    columns, metrics = {}, {}
    rewards = math_reward(
        [r"\boxed{1/2}", "?", r"\boxed{\gcd(2,4)}", r"\boxed{1}", r"\boxed{x-x^2}"],
        ["0.5", "1", "2", "", "x(1-x)"],
        log_extra=columns.__setitem__,
        log_metric=metrics.__setitem__,
        prompts=["a", "b", "c", "d", "Factor $x-x^2$."],
        timeout=["a column of the data set"] * 5,
    )
    assert rewards == [1.0, 0.0, 0.0, None, 0.0]
    assert columns["gold"] == ["0.5", "1", "2", "", "x(1-x)"]
    assert columns["extracted_answer"] == ["1/2", "", r"\gcd(2,4)", "1", "x-x^2"]
    refused = ["refused: gcd", "unusable gold", "refused: a formula of the prompt"]
    assert columns["verdict"] == ["right", "no answer", *refused]
    assert metrics["math_reward/unusable_gold"] == 0.2
    assert metrics["math_reward/timeouts"] == 0.0
    assert metrics["math_reward/not_checked"] == 0.0
    assert math_reward([], [], log_metric=metrics.__setitem__) == []


@pytest.mark.parametrize(
    ("gold", "kind"),
    [
        (["4"] * 1000, "list"),
        (2j, "complex"),
    ],
)
def test_what_is_no_gold_is_refused(gold, kind):
    with pytest.raises(TypeError, match=rf"`solution` .* {kind}") as raised:
        math_reward(["4", "4"], ["4", gold])
    assert len(str(raised.value)) < 500


def test_numbers_are_golds():
    four, five = r"\boxed{4}", r"\boxed{5}"
    fours = [4, 4.0, np.int64(4), np.float32(4), Decimal("4.00"), Fraction(8, 2)]
    assert math_reward([four] * 6, fours) == [1.0] * 6
    no_numbers = [np.float32("nan"), Decimal("nan")]
    assert math_reward([four] * 2, no_numbers) == [None, None]
    column = np.array([4, 4])
    assert math_reward([four, five], column) == [1.0, 0.0]


def test_parts_of_messages():
    parts = [
        "So ",
        {"type": "text", "text": r"\boxed{"},
        {"type": "image"},
        "4}",
    ]
    answer = {"content": parts}
    nothing = {"content": None}
    calls = {"role": "assistant", "tool_calls": []}
    assert math_reward([[answer], [nothing], [calls], []], ["4"] * 4) == [1.0, 0.0, 0.0, 0.0]


def test_zero_is_a_gold():
    assert math_reward([r"\boxed{0}", r"\boxed{1}"] * 2, [0, 0, 0.0, 0.0]) == [1.0, 0.0] * 2


def test_missing_golds():
    """However a column writes them. An answer in the same words is not right."""
    golds = [None, "", " \n", "None", "nan", "NaN", "N/A", "n/a", " null\n", "<NA>", float("nan")]
    answers = [rf"\boxed{{{gold}}}" for gold in golds]
    assert math_reward(answers, golds) == [None] * len(golds)
    assert math_reward([r"\boxed{x^2-1}"], [None], prompts=["Factor $x^2-1$."]) == [None]


def test_an_outage_is_no_reward(monkeypatch):
    """Not 0: that would teach."""
    monkeypatch.setattr("sys.executable", "/no/such/python")
    columns, metrics = {}, {}
    reward = MathReward(num_workers=3)  # which nobody else has started
    hooks = {"log_extra": columns.__setitem__, "log_metric": metrics.__setitem__}
    assert reward([r"\boxed{1}", r"\boxed{2}", "?"], ["1", "1", "1"], **hooks) == [None] * 3
    assert columns["verdict"] == ["not checked"] * 3
    assert metrics["math_reward/not_checked"] == 1.0
    assert metrics["math_reward/unusable_gold"] == 0.0


@pytest.mark.parametrize(
    "end", ["</s>", "<eos>", " <end_of_turn>\n", "<|im_end|><|endoftext|>", "<|eot_id|>\n<eos>", ""]
)
def test_special_tokens_at_the_end_are_no_answer(end):
    assert math_reward([f"After </s> nothing ends. The answer is $x<4${end}"], ["x<4"]) == [1.0]


def test_the_longest_answer():
    answers = [rf"\boxed{{5{' ' * (length - 2)}.}}" for length in (1000, 1001)]
    assert math_reward(answers, ["5", "5"]) == [1.0, 0.0]


def test_a_comma_in_brackets_is_not_of_thousands():
    assert math_reward([r"\boxed{(1, 234)}", r"\boxed{1234}"], ["(1,234)"] * 2) == [1.0, 0.0]
    assert math_reward([r"\boxed{1234}", r"\boxed{1, 234}"], ["1,234"] * 2) == [1.0, 0.0]


def test_a_letter_of_a_unit_keeps_its_case():
    """M is no metre, but a factor."""
    answers = [r"\boxed{5M}", r"\boxed{3 m}", r"\boxed{5 m}"]
    assert math_reward(answers, ["5", "3 M", "5"]) == [0.0, 0.0, 1.0]


def test_what_the_policy_said_last_is_graded():
    """Not a tool's message after it, where a tool loop was cut off."""
    answer = {"role": "assistant", "content": r"\boxed{4}"}
    of_tool = {"role": "tool", "content": r"\boxed{5}"}
    assert math_reward([[answer, of_tool], [of_tool]], ["4", "5"]) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"timeout": 0}, "a number > 0"),
        ({"num_workers": 0}, "a whole number >= 1"),
    ],
)
def test_options_out_of_range(options, expected):
    with pytest.raises(ValueError, match=f"=0: expected {expected}"):
        MathReward(**options)


def test_formulas_of_a_chat():
    """Of all its messages. The labelled answers have prompts that are texts."""

    def scores(formula):
        prompt = [
            {"role": "user", "content": f"Factor ${formula}$."},
            {"role": "assistant", "content": "Over the integers?"},
            {"role": "user", "content": "Yes."},
        ]
        return math_reward([r"\boxed{x^2-1}"], ["(x-1)(x+1)"], prompts=[prompt])

    assert scores("x^2-1") == [0.0]
    assert scores("x^3-x") == [1.0]


def test_lengths_must_agree():
    for reward, name in ((math_reward, "solution"), (code_reward, "tests")):
        with pytest.raises(ValueError, match=f"1 values in `{name}` for 2 completions"):
            reward(["1", "1"], ["1"])
        for other in (None, dict.fromkeys(range(1000))):
            with pytest.raises(TypeError, match=r"A completion is .{4,80}: expected"):
                reward(["1", other], ["1", "1"])


def test_a_text_in_place_of_a_list_is_refused():
    for reward in (math_reward, code_reward):
        with pytest.raises(TypeError, match=r"one text, .{9,200}: expected a list. Give \[completion\]"):
            reward(r"\boxed{2}" * 100, "2")


def test_reasoning_that_the_prompt_opens():
    """Templates end the prompt so: the completion has the closing tag only, or never ends its reasoning."""
    completions = [r"Maybe \boxed{A}. Wait", r"Maybe \boxed{B}. No.</think>\boxed{A}"]

    def scores(prompt):
        return math_reward(completions, ["A", "A"], prompts=[prompt] * 2)

    chat = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<think>\n"},
    ]
    for opens in ("1+1? <think>\n", "1+1? <reasoning>", chat):
        assert scores(opens) == [0.0, 1.0]
    users_words = [{"role": "user", "content": "<think>"}]
    for names in ("Reason inside <think>, then answer.", users_words):
        assert scores(names) == [1.0, 1.0]


def test_mixed_numbers_with_fractions_of_unicode():
    fractions = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
    golds = [str(2 + Fraction(unicodedata.numeric(character)).limit_denominator(10)) for character in fractions]
    answers = [rf"\boxed{{2{character}}}" for character in fractions]
    assert math_reward(answers, golds) == [1.0] * len(golds)


def test_a_reward_that_asks_is_told_what_the_chat_template_opens():
    """Its copy. One that was told by its user stays as it is."""
    tokenizer = tiny.tokenizer()
    opens = "{% if add_generation_prompt and not quiet %}<think>\n{% endif %}"
    tokenizer.chat_template = "{{ messages[0].content }}" + opens
    rewards = [get_reward("math_reward", reasoning_opened=opened) for opened in (None, False, True)]
    chat = [{"role": "user", "content": "1+1?"}]
    told = told_of_reasoning(rewards, chat, tokenizer, None)
    assert [reward.reasoning_opened for reward in told] == [True, False, True]
    assert told[1:] == rewards[1:]
    assert rewards[0].reasoning_opened is None
    assert told_of_reasoning(rewards, "1+1?", tokenizer, None) == rewards
    assert told_of_reasoning(rewards, chat, tokenizer, {"quiet": True}) == rewards
    for parser in ("response_template", "response_schema"):  # by which TRL takes the reasoning out
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tokenizer, parser, "x", raising=False)
            assert told_of_reasoning(rewards, chat, tokenizer, None) == rewards


def test_reasoning_that_the_chat_template_opens():
    completions = [
        r"Maybe \boxed{A}. Wait",
        r"Maybe \boxed{B}. No.</think>\boxed{A}",
        r"<think>B</think>\boxed{A}",
    ]
    prompts = [[{"role": "user", "content": "1+1?"}]] * 3
    not_opened = get_reward("math_reward", reasoning_opened=False)
    opened = get_reward("math_reward", reasoning_opened=True)
    assert not_opened(completions, ["A"] * 3, prompts=prompts) == [1.0, 1.0, 1.0]
    assert opened(completions, ["A"] * 3, prompts=prompts) == [0.0, 1.0, 1.0]
    for parsed_as in ("reasoning_content", "thinking"):
        parsed = {"role": "assistant", parsed_as: "Maybe B.", "content": r"\boxed{A}"}
        assert opened([[parsed]], ["A"]) == [1.0]
    said = {"role": "assistant", "content": r"\boxed{A}"}
    assert opened([[said, parsed], [parsed, said]], ["A"] * 2) == [1.0, 1.0]
    mixed = [completions[0], completions[1], [parsed], [{"role": "assistant", "content": completions[0]}]]
    assert opened(mixed, ["A"] * 4) == [0.0, 1.0, 1.0, 0.0]
