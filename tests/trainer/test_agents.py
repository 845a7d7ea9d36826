"""
Rewards of turns in TRL's own conversations with tools and environments, and in those of a `rollout_func`. What the
policy writes is scripted; TRL calls the tools, or not.
"""

import json
import string

import numpy as np
import pytest
from datasets import Dataset
from tokenizers import decoders
from trl.chat_template_utils import add_response_schema, qwen3_chat_template

from delta_trl import DeltaGRPOTrainer
from delta_trl.credit import Turn
from delta_trl.credit.rule import TokenCreditError
from delta_trl.report import read_run
from delta_trl.report.verdict import verdict
from delta_trl.scoring.texts import TokenTexts

from ..corpus import tiny
from ..documented import shown_module
from ..trainers import credit, logged


ASKS = "<|im_start|>assistant\n"
END = "<|im_end|>"


def call(name: str = "move", **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


CONVERSATIONS = {
    "right": [call(steps=1), call(steps=2), "done"],
    "without an argument": [call(), "done"],
    "two tools": [call(steps=1) + call(steps=2), "done"],
    "no tool of that name": [call("fly"), "done"],
    "cut off": [call(steps=999)],  # the tool's text does not fit: TRL drops it, and asks no more
    "no tool": ["done"],
}
TOOLS = {
    "right": [("move",), ("move",), ()],
    "without an argument": [("move",), ()],
    "two tools": [("move", "move"), ()],
    "no tool of that name": [("fly",), ()],
    "cut off": [("move",)],
    "no tool": [()],
}
FITS = {"right", "no tool"}  # the environment sees as many turns as there are


class Walk:
    """An environment that sees only the calls that reach it, and knows that an answer follows them."""

    def reset(self, **columns) -> None:
        self.moves = []

    def move(self, steps: int) -> str:
        """
        Walk.

        Args:
            steps: How many.
        """
        self.moves.append(float(steps))
        return "moved" * steps

    @property
    def turn_rewards(self) -> list[float]:
        return [*self.moves, 0.0]


class Scripted(DeltaGRPOTrainer):
    """The policy says what the script of the prompt's name says next."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        turns = []
        for ids in prompt_ids:
            chat = self._tokenizer.decode(ids)
            name = next(name for name in CONVERSATIONS if f"{name}{END}" in chat)
            number = chat.count(ASKS) - 1  # the prompt asks for the first turn
            text = CONVERSATIONS[name][number] + END
            turns.append(self._tokenizer(text).input_ids)
        return turns, None


def chat_tokenizer():
    """One token for each character; those of the chat template are special, as in Qwen's tokenizers."""
    tokenizer = tiny.tokenizer(string.printable)
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens({"eos_token": END, "additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = qwen3_chat_template
    return tokenizer


def of_chats(names) -> Dataset:
    return Dataset.from_list([{"prompt": [{"role": "user", "content": name}]} for name in names])


def second_wins(completions, **columns) -> list[float]:
    return [float(i % 2) for i in range(len(completions))]


@pytest.fixture
def make_agent(make_trainer):
    def make(source, names=tuple(CONVERSATIONS), **options):
        tokenizer = chat_tokenizer()
        return make_trainer(
            **{
                "trainer_class": Scripted,
                "model": tiny.model(vocab_size=len(tokenizer)),
                "processing_class": tokenizer,
                "train_dataset": of_chats(names),
                "shuffle_dataset": False,
                "environment_factory": Walk,
                "reward_funcs": second_wins,
                "max_completion_length": 600,
                "num_generations": 2,
                "per_device_train_batch_size": 2 * len(names),
                **credit("given", source=source, what="rewards", outcome_weight=0.0),
                **options,
            }
        )

    return make


def test_turns_that_an_environment_does_not_see(make_agent, tmp_path):
    """A conversation of another number of turns has no rewards of them; others keep theirs."""
    trainer = make_agent("environment:turn_rewards", log_token_credit=1, log_token_credit_completions=99, max_steps=6)
    trainer.train()
    trainer.save_state()
    assert logged(trainer, "credit/mismatched_completions") == pytest.approx([4 / 6] * 6)
    run = read_run(tmp_path / "run")
    for group in run.groups[: len(CONVERSATIONS)]:
        name = next(name for name in CONVERSATIONS if f"user\n{name}\n" in group.prompt)
        of_turns = [1.0, 2.0, 0.0] if name == "right" else [0.0]
        for completion in group.completions:
            known = ~np.isnan(completion.step_rewards)
            rewards = completion.step_rewards[known].tolist()
            assert rewards == (of_turns if name in FITS else [])
    [(_, text, is_bad)] = [line for line in verdict(run) if line[0] == "Mismatch"]
    assert text.startswith("For 66.7% of completions (at most 66.7% in a step), the source gave")
    assert is_bad


def test_all_conversations_with_other_numbers_end_the_run(make_agent):
    """By a mistake of the user, with the numbers of the first."""
    with pytest.raises(TokenCreditError, match=r"completion 1: 2 numbers for 3 turns\. No completion"):
        make_agent("environment:moves", names=["right", "no tool"], max_steps=1).train()
    trainer = make_agent("environment:moves", names=["right", "two tools"], max_steps=1)
    trainer.train()  # two calls in one of two turns are two numbers
    assert logged(trainer, "credit/mismatched_completions") == [0.5]


def test_a_misspelt_attribute_ends_the_run(make_agent):
    message = r"Walk has no such attribute.*There are moves, turn_rewards\."
    with pytest.raises(TokenCreditError, match=message):
        make_agent("environment:turn_reward", max_steps=1).train()


def test_a_source_of_environments_without_any(make_trainer, rollout):
    trainer = make_trainer(**credit("given", source="environment:turn_rewards"))
    with pytest.raises(TokenCreditError, match="there are no environments"):
        rollout(trainer)


def responses_seen(make_agent, rollout, **options) -> tuple[list[list[Turn]], list[list[dict]]]:
    """Turns and messages of the first conversation of each prompt."""
    seen: dict[str, list] = {"turns": [], "messages": []}

    def source(completions, turns, **columns):
        seen["turns"] += turns
        seen["messages"] += completions
        return [None] * len(completions)

    rollout(make_agent(source, **options))
    return seen["turns"][::2], seen["messages"][::2]


def tools_of(turns: list[list[Turn]]) -> list[list[tuple]]:
    return [[turn.tools for turn in row] for row in turns]


def test_tools_of_turns_are_those_of_their_messages(make_agent, rollout):
    """In TRL's own loop, which makes a message of each turn."""
    turns, conversations = responses_seen(make_agent, rollout)
    assert tools_of(turns) == list(TOOLS.values())
    for of_turns, messages in zip(tools_of(turns), conversations, strict=True):
        of_messages = []
        for message in messages:
            if message["role"] == "assistant":
                calls = message.get("tool_calls", [])
                of_messages.append(tuple(call["function"]["name"] for call in calls))
        assert of_turns == of_messages


ANSWER = f"\n<|im_start|>user\n<tool_response>\n{call('echo')}\n</tool_response>{END}\n{ASKS}"


def conversations(prompts, trainer) -> dict:
    """A `rollout_func` on chats. Its tool writes what looks like a call."""
    encode = trainer.processing_class
    output: dict = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "logprobs": None}
    tool_ids = encode(ANSWER).input_ids
    for [message] in prompts:
        name = message["content"]
        output["prompt_ids"].append(encode(f"<|im_start|>user\n{name}{END}\n{ASKS}").input_ids)
        ids, mask = [], []
        for turn in CONVERSATIONS[name]:
            if ids:
                ids += tool_ids
                mask += [0] * len(tool_ids)
            turn_ids = encode(turn + END).input_ids
            ids += turn_ids
            mask += [1] * len(turn_ids)
        output["completion_ids"].append(ids)
        output["env_mask"].append(mask)
    return output


OF_ROLLOUT_FUNC = {"environment_factory": None, "rollout_func": conversations}


def test_tools_of_turns_in_conversations_of_a_rollout_func(make_agent, rollout):
    """TRL makes one message of each conversation."""
    tokenizer = add_response_schema(chat_tokenizer())
    turns, _ = responses_seen(make_agent, rollout, processing_class=tokenizer, **OF_ROLLOUT_FUNC)
    assert tools_of(turns) == list(TOOLS.values())
    page: dict = {}
    exec(shown_module("my_judge.py", "agents.md"), page)
    spans_of_rows = page["turns"]([], turns)
    costs = [[value for _, _, value in spans] for spans in spans_of_rows]
    assert costs == [[-0.1, -0.1], [-0.1], [-0.2], [-0.1], [], []]


def test_a_tokenizer_without_a_parser_shows_no_tools(make_agent, rollout):
    turns, _ = responses_seen(make_agent, rollout, **OF_ROLLOUT_FUNC)
    assert tools_of(turns) == [[()] * len(turns) for turns in CONVERSATIONS.values()]


def test_a_call_in_a_thought_that_the_template_opens_is_none():
    tokenizer = add_response_schema(chat_tokenizer())
    texts = TokenTexts(tokenizer)
    turn = tokenizer(f"{call()}</think>done{END}").input_ids
    plain = tokenizer(ASKS).input_ids
    opens_a_thought = tokenizer(f"{ASKS}<think>\n").input_ids
    assert texts.tools_called(turn, plain) == ("move",)
    assert texts.tools_called(turn, opens_a_thought) == ()

    answer = tokenizer("moved").input_ids  # within the message, and before each turn
    of_policy = [0] * len(answer) + [1] * len(turn)
    twice = 2 * (answer + turn)
    _, turns = texts.of_turns(twice, 2 * of_policy, opens_a_thought)
    assert tools_of([turns]) == [[(), ("move",)]]  # the first one has closed the thought


def test_a_parser_may_read_special_tokens_and_give_calls_without_a_function():
    tokenizer = add_response_schema(chat_tokenizer())
    tokenizer.add_tokens("<tool_call>", special_tokens=True)
    del tokenizer.response_template["fields"]["tool_calls"]["transform"]
    turn = tokenizer(call() + call("fly")).input_ids
    prompt = tokenizer(ASKS).input_ids
    _, turns = TokenTexts(tokenizer).of_turns(turn, [1] * len(turn), prompt)
    assert tools_of([turns]) == [[("move", "fly")]]


def test_a_text_calls_no_tools():
    tokenizer = add_response_schema(chat_tokenizer())
    ids = tokenizer(call()).input_ids
    responses = TokenTexts(tokenizer).responses(["1"], [call()], [ids], [[1] * len(ids)], {}, [[1]])
    [[turn]] = responses.turns
    assert turn.tools == ()
