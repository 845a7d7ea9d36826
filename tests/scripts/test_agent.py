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
    answers = [conversation.take(turn) for turn in turns]
    assert answers == ["75\n", "169\n", "185\n", ""]
    assert conversation.rewards == [1.0, 0.0, 1.0, 1.0]
    assert conversation.done


@pytest.mark.parametrize("turn", ["48", "48+27", "=", "", "48+27=75\n75+95="])
def test_what_is_no_sum_ends_the_conversation(turn):
    conversation = agent.Conversation("48+27+95+16=")
    assert conversation.take(turn) == ""
    assert conversation.done
    assert conversation.rewards == [0.0]


def test_the_teacher_is_careless():
    demonstrations = agent.demonstrations(random.Random(0))
    texts, solutions = [], []
    for prompt, text in islice(demonstrations, 400):
        summands = map(int, prompt.removesuffix("=").split("+"))
        texts.append(text)
        solutions.append(str(sum(summands)))
    right = np.mean(agent.outcome(texts, solutions))
    assert 0.2 < right < 0.4  # four turns of seven right ones in ten, and luck


@pytest.mark.slow
def test_a_shortened_training_records_the_reward_of_each_turn(tmp_path):
    start = tmp_path / "start"
    run = tmp_path / "run"
    agent.make_start(start, 60)

    found = agent.train(start, run, "own_turn", 0, 4)

    assert 0 <= found["after"] <= 1
    assert "turn 2: reward" in (run / "report.html").read_text()
    for group in read_run(run).groups:
        for completion in group.completions:
            tokens = np.array(completion.tokens)
            conversation = agent.Conversation(group.prompt)
            for turn in range(1, max(completion.turns) + 1):
                said = "".join(tokens[completion.turns == turn])
                conversation.take(said.removesuffix("<eos>"))
            rewards = completion.step_rewards
            known = rewards[np.isfinite(rewards)]
            assert known.tolist() == conversation.rewards
