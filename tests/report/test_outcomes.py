"""What a run of a comparison reached, by hand."""

import json

import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.report import read_run
from delta_trl.report.outcomes import OUTCOMES, outcomes_of

from . import runs


def test_outcomes_by_hand(tmp_path):
    rewards = [0.1] * 18 + [0.7, 0.9]
    steps = range(1, 21)
    evaluated = {"eval_a_reward": [0.0] * 19 + [0.2], "eval_b_reward": [0.0] * 19 + [0.4]}
    runs.write_history(tmp_path, steps, reward=rewards, **evaluated)
    for name, problems, accuracy in (("few", 10, 0.5), ("many", 30, 0.1)):
        content = {"settings": {"num_generations": 1}, "results": {"problems": problems, "avg_at_k": accuracy}}
        path = tmp_path / "benchmarks" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    found = outcomes_of(read_run(tmp_path), OUTCOMES)
    expected = {"accuracy": 0.2, "eval_reward": 0.3, "training_reward": 0.17, "training_reward_at_end": 0.8}
    assert found == pytest.approx(expected)


def test_an_outcome_that_was_not_measured(tmp_path):
    runs.write_history(tmp_path, [1, 2], reward=[0.1, 0.2])
    with pytest.raises(UsageError, match="measured no eval_reward"):
        outcomes_of(read_run(tmp_path), OUTCOMES[1:])
