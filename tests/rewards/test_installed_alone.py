"""The rewards without torch and TRL, as docs/rewards.md installs them."""

import json
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/rewards.md").read_text()
INSTALLED = PAGE.split("```bash\npip install ")[1].split("```")[0]
GRADED = r"""
import json, sys
from delta_trl.rewards import code_reward, math_reward

programs = ["```python\nprint(int(input()) + 1)\n```", "```python\nprint(2)\n```"]
tests = [{"inputs": ["1", "2"], "outputs": ["2", "3"]}, {"test": "assert f(1) == 2"}]
rewards = [
    math_reward([r"It is \boxed{0.5}.", r"It is \boxed{0.6}."], [r"\frac{1}{2}"] * 2),
    code_reward(programs, [tests[0]] * 2),
    code_reward(["def f(x): return 2 * x", "def f(x): return x"], [tests[1]] * 2),
]
print(json.dumps([rewards, sorted({"torch", "trl", "transformers", "datasets"} & set(sys.modules))]))
"""


def test_what_is_installed_are_dependencies_of_the_package():
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (verify,) = [one for one in needed if one.startswith("math-verify")]
    assert f'"{verify}" psutil ' in INSTALLED


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_answer_and_a_program_are_graded_in_a_fresh_environment(tmp_path):
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=True)
    python = str(fresh / "bin" / "python")
    lines = f"pip install {INSTALLED}".replace("pip install", f"{python} -m pip install -q")
    subprocess.run(["bash", "-ec", lines], cwd=ROOT, check=True)
    ran = subprocess.run([python, "-c", GRADED], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    rewards, imported = json.loads(ran.stdout)
    assert rewards == [[1.0, 0.0]] * 3
    assert not imported
    absent = subprocess.run([python, "-c", "import torch"], capture_output=True)
    assert b"No module named 'torch'" in absent.stderr
