"""Two nodes that share no folder: a run cannot resume there, and every process says so."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from accelerate.utils.other import get_free_port

from delta_trl.cli import main
from delta_trl.files import read_json

from ..corpus import tiny
from .launch import accelerate_launch


@pytest.mark.processes
def test_nodes_without_a_shared_folder_do_not_wait_for_each_other(tmp_path, monkeypatch):
    recipe = tiny.recipe(tmp_path, output_dir="run", save_strategy="steps", save_steps=2)
    node_0, node_1 = tmp_path / "node-0", tmp_path / "node-1"
    node_0.mkdir()
    node_1.mkdir()
    with monkeypatch.context() as at_node_0:
        at_node_0.chdir(node_0)
        assert main(["train", "--config", recipe]) == 0
        (node_0 / "run" / "config.json").unlink()  # else the run is finished

    options = f"--num_machines 2 --main_process_ip 127.0.0.1 --main_process_port {get_free_port()}"

    def start(rank):
        here = f"{options} --machine_rank {rank}"
        accelerate_launch("cpu_ddp", "tests/distributed/node.py", tmp_path, options=here)

    with ThreadPoolExecutor() as nodes:
        list(nodes.map(start, range(2)))
    said, other = read_json(tmp_path / "said-0.json"), read_json(tmp_path / "said-1.json")
    for name, part in (("nothing here", "config.json"), ("no model here", "model.safetensors")):
        for node in (said, other):
            assert node[name]["code"] == 2
            [line] = [line for line in node[name]["err"].splitlines() if "error" in line]
            assert f"'run/checkpoint-2': on process 1, {part} is missing. All nodes need a shared folder" in line
    assert said["new run"]["code"] == 0
    assert other["new run"]["code"] == 0
    assert "Model saved to new" in said["new run"]["out"]
    assert "saved" not in other["new run"]["out"]
