"""The rewards in other trainers: the example of docs/rewards.md, called as each of them calls a reward."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch


EXAMPLE = Path("docs/rewards.md").read_text().split("```python\n# elsewhere.py\n")[1].split("```")[0]
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
    interfaces.EnvironmentInterface, interfaces.EnvironmentReturn = object, EnvironmentReturn
    ray = ModuleType("ray")
    ray.remote = lambda kind: kind
    for name, module in ((interfaces.__name__, interfaces), ("ray", ray)):
        monkeypatch.setitem(sys.modules, name, module)
    found: dict = {}
    exec(EXAMPLE, found)
    return SimpleNamespace(**found)


def test_the_examples_for_other_trainers_return_what_these_expect(example):
    of_verl = [example.compute_score(data_source="gsm8k", solution_str=text, ground_truth="2", extra_info={"index": 1})
               for text in (RIGHT, WRONG)]  # fmt: skip
    of_openrlhf = example.reward_func(["1+1=" + RIGHT, "4-1=" + WRONG], ["1+1=", "4-1="], ["2", "3"])
    chats = [[{"role": "user", "content": "1+1="}, {"role": "assistant", "content": text}] for text in (RIGHT, WRONG)]
    of_verifiers = [example.correct(chat[-1:], answer="2", prompt=chat[:1], state={}) for chat in chats]
    of_nemo_rl = example.Math().step(chats, [{"ground_truth": "2"}] * 2)
    assert of_verl == of_verifiers == [1.0, 0.0]
    assert of_openrlhf["rewards"].tolist() == of_openrlhf["scores"].tolist() == [1.0, 1.0]
    assert of_nemo_rl.rewards.tolist() == [1.0, 0.0]
    assert of_nemo_rl.terminateds.tolist() == [1, 1]
    assert len(of_nemo_rl.observations) == len(of_nemo_rl.next_stop_strings) == 2
    with pytest.raises(TypeError):  # a gold that cannot be used is no 0
        example.compute_score("gsm8k", RIGHT, "")


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
