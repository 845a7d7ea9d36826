import json

from delta_trl.commands.dataset import load_prepared
from delta_trl.commands.recipe import RunArguments
from delta_trl.rewards import math_reward


def test_rows_without_a_usable_solution_are_left_out(tmp_path):
    rows = [{"prompt": str(i), "solution": solution} for i, solution in enumerate(["1", "no number", " ", "4"])]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    run_args = RunArguments(dataset_name=str(file), reward_funcs=["math_reward"])
    kept = load_prepared(run_args, [math_reward], "train")
    assert {"0", "3"} <= set(kept["prompt"]) < {"0", "1", "2", "3"}
