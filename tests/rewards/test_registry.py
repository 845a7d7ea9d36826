import pickle
from dataclasses import dataclass

import pytest

from delta_trl.rewards import REWARDS, CodeReward, MathReward, get_reward
from delta_trl.rewards.registry import with_names
from delta_trl.sandbox import Limits, RemoteSandbox

from ..documented import defaults


OPTIONS = {"soft_overlong_punishment": {"max_completion_len": 100, "soft_punish_cache": 20}}


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_every_reward_loads_has_a_name_and_pickles(name):
    reward = get_reward(name, **OPTIONS.get(name, {}))
    assert name in reward.__name__
    assert pickle.loads(pickle.dumps(reward)).__name__ == reward.__name__


@pytest.mark.parametrize("called", [MathReward, CodeReward, Limits, RemoteSandbox])
def test_defaults_are_those_of_the_docstring(called):
    said, real = defaults(called)
    assert said
    assert said == real


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mth_reward", {}, f"'mth_reward'.*did you mean 'math_reward'.*{', '.join(sorted(REWARDS))}"),
        ("soft_overlong_punishment", {}, "missing a required argument: 'max_completion_len'"),
        ("math_reward", {"time_out": 1}, "did you mean 'timeout'"),
        ("think_format_reward", {"strict": True, "fast": 1}, "takes no options, got strict, fast"),
        ("code_reward", {"tier": "C"}, "'A' or 'B', got 'C'"),
    ],
)
def test_a_wrong_name_or_option_is_refused_with_the_right_one(name, options, message):
    with pytest.raises(ValueError, match=message):
        get_reward(name, **options)


def test_users_own_function_from_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "users_rewards.py").write_text(
        "def short(completions, limit=3, **kwargs):\n    return [float(len(c) <= limit) for c in completions]\n"
        "LIMIT = 3\n"
        "class Short:\n    def __init__(self, limit): self.limit = limit\n"
        "    def __call__(self, completions, **kwargs): return [float(len(c) <= self.limit) for c in completions]\n"
        "of_one = Short(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert get_reward("users_rewards.short")(completions=["ab", "abcd"]) == [1.0, 0.0]
    bound = get_reward("users_rewards.short", limit=4)
    assert bound(completions=["ab", "abcd"]) == [1.0, 1.0]
    assert pickle.loads(pickle.dumps(bound)).__name__ == "short"
    assert get_reward("users_rewards.of_one", style="x").__name__ == "Short"
    assert get_reward("users_rewards.short", limit=0)(completions=["", "a"]) == [1.0, 0.0]
    assert get_reward("users_rewards.Short", limit=1)(completions=["ab"]) == [0.0]
    with pytest.raises(ValueError, match="missing a required argument: 'limit'"):
        get_reward("users_rewards.Short")
    with pytest.raises(ValueError, match=r"'users_rewards\.LIMIT' is 3: expected a function"):
        get_reward("users_rewards.LIMIT")


@dataclass
class Mine:
    """A reward with options, which has no hash."""

    def __call__(self, completions, **kwargs): ...


def test_names_in_place_of_functions():
    """As a trainer takes them: one, or a list in its order. Other texts are names of reward models."""
    mine = Mine()
    named = with_names(["some/model", "math_reward", mine, "think_format_reward"])
    assert named[::2] == ["some/model", mine]
    assert [reward.__name__ for reward in named[1::2]] == ["math_reward", "think_format_reward"]
    assert with_names("code_reward").__name__ == "code_reward"
    assert with_names("some/model") == "some/model"
    assert with_names(mine) is mine
