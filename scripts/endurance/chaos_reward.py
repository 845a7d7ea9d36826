"""A reward for chaos.py: checks that both rewards' workers answer rightly, whatever happens to them."""

from delta_trl.rewards import MathReward
from delta_trl.rewards.code import CodeReward
from tests.corpus import tiny


MATH = MathReward(num_workers=1)
CODE = CodeReward(workers=1)


def reward(completions, **kwargs) -> list[float]:
    math = MATH([r"\boxed{1}", r"\boxed{2}"], ["1", "1"])
    tests = {"test": "assert f(1) == 2"}
    code = CODE(["print(7)", "print(8)", "def f(x): return x + 1"], [{"inputs": [""], "outputs": ["7"]}] * 2 + [tests])
    if (math, code) != ([1.0, 0.0], [1.0, 0.0, 1.0]):
        raise RuntimeError(f"The rewards' workers failed: math_reward gave {math}, code_reward {code}.")
    return tiny.reward_letters(completions)
