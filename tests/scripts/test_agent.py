"""The example of an agent: its calculator, its teacher, and a shortened training with a reward for each turn."""

import random
from itertools import islice

import numpy as np
import pytest

from delta_trl.report import read_run
from scripts import agent


def test_a_mistake_counts_only_in_its_turn():
    conversation = agent.Conversation("48+27+95+16=")
    turns = ["48+27=", "75+94=", "169+16=", "185"]
    assert [conversation.take(turn) for turn in turns] == ["75\n", "169\n", "185\n", ""]
    assert conversation.rewards == [1.0, 0.0, 1.0, 1.0]
    assert conversation.done


@pytest.mark.parametrize("turn", ["48", "48+27", "=", "", "48+27=75\n75+95="])
def test_what_is_no_sum_ends_the_conversation(turn):
    conversation = agent.Conversation("48+27+95+16=")
    assert conversation.take(turn) == ""
    assert (conversation.done, conversation.rewards) == (True, [0.0])


def test_the_teacher_is_careless():
    prompts, texts = zip(*islice(agent.demonstrations(random.Random(0)), 400), strict=True)
    solutions = [str(sum(map(int, prompt[:-1].split("+")))) for prompt in prompts]
    assert 0.2 < np.mean(agent.outcome(texts, solutions)) < 0.4  # four turns of seven right ones in ten, and luck


@pytest.mark.slow
def test_a_shortened_training_records_the_reward_of_each_turn(tmp_path):
    agent.make_start(tmp_path / "start", 60)
    found = agent.train(tmp_path / "start", tmp_path / "run", "own_turn", 0, 4)
    assert 0 <= found["after"] <= 1
    assert "turn 2: reward" in (tmp_path / "run" / "report.html").read_text()
    for group in read_run(tmp_path / "run").groups:
        for completion in group.completions:
            conversation = agent.Conversation(group.prompt)
            for line in "".join(completion.tokens).removesuffix("<eos>").split("\n"):
                said, equals, _ = line.partition("=")  # and the calculator's answer
                conversation.take(said + equals)
            rewards = completion.step_rewards
            assert rewards[np.isfinite(rewards)].tolist() == conversation.rewards
