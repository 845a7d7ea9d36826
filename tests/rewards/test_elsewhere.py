"""The rewards in other trainers: the example of docs/rewards.md, called as each of them calls a reward."""

import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from ..documented import shown_module


EXAMPLE = shown_module("elsewhere.py", "rewards.md")
RIGHT, WRONG = r"It is \boxed{2}", r"It is \boxed{3}"


class EnvironmentReturn(NamedTuple):
    """The fields of NeMo-RL's."""

    observations: list[dict[str, str]]
    metadata: list[Any]
    next_stop_strings: list[None]
    rewards: torch.Tensor
    terminateds: torch.Tensor
    answers: list[str | None] | None = None


@pytest.fixture
def example(monkeypatch):
    """The example as a module. Of NeMo-RL there is its interface, of ray what decorates an actor."""
    interfaces = ModuleType("nemo_rl.environments.interfaces")
    interfaces.EnvironmentInterface = object
    interfaces.EnvironmentReturn = EnvironmentReturn
    ray = ModuleType("ray")
    ray.remote = lambda kind: kind
    for module in (interfaces, ray):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    found: dict = {}
    exec(EXAMPLE, found)
    return SimpleNamespace(**found)


def test_the_examples_for_other_trainers_return_what_these_expect(example):
    of_verl = {"data_source": "gsm8k", "ground_truth": "2", "extra_info": {"index": 1}}
    assert example.compute_score(solution_str=RIGHT, **of_verl) == 1.0
    assert example.compute_score(solution_str=WRONG, **of_verl) == 0.0
    with pytest.raises(TypeError):  # a gold that cannot be used is no 0
        example.compute_score("gsm8k", RIGHT, "")

    texts = ["1+1=" + RIGHT, "4-1=" + WRONG]
    of_openrlhf = example.reward_func(texts, ["1+1=", "4-1="], ["2", "3"])
    assert of_openrlhf["rewards"].tolist() == [1.0, 1.0]
    assert of_openrlhf["scores"].tolist() == [1.0, 1.0]

    question = {"role": "user", "content": "1+1="}
    right = {"role": "assistant", "content": RIGHT}
    wrong = {"role": "assistant", "content": WRONG}
    of_verifiers = {"answer": "2", "prompt": [question], "state": {}}
    assert example.correct([right], **of_verifiers) == 1.0
    assert example.correct([wrong], **of_verifiers) == 0.0

    chats = [[question, right], [question, wrong]]
    of_nemo_rl = example.Math().step(chats, [{"ground_truth": "2"}] * 2)
    assert of_nemo_rl.rewards.tolist() == [1.0, 0.0]
    assert of_nemo_rl.terminateds.tolist() == [1, 1]
    assert len(of_nemo_rl.observations) == 2
    assert len(of_nemo_rl.next_stop_strings) == 2


@pytest.mark.processes
def test_rewards_import_neither_torch_nor_trl():
    code = """
import sys
from delta_trl.rewards import code_reward, get_reward, math_reward

assert math_reward(["It is \\\\boxed{2}"], ["2"]) == [1.0]
assert code_reward(["print(input())"], [{"inputs": ["1"], "outputs": ["1"]}]) == [1.0]
assert not {"torch", "trl", "transformers", "datasets"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
