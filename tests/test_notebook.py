"""The notebook runs from top to bottom on a CPU, and stays small."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient


ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"


@pytest.mark.processes
def test_the_notebook_runs(tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")  # what it looks for; it writes to outputs/ beside them
    notebook = nbformat.read(NOTEBOOK, 4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}})
    client.execute(env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)})

    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    install, _, train, heat_maps, report, own = outputs
    assert not install  # the package is there
    assert "Training Loss" in "".join(displayed(train))
    for shown in (displayed(heat_maps), displayed(own)[1:]):  # ours after its own table
        winner, loser = shown
        assert 'class="tokens"' in winner
        assert 'class="tokens"' in loser
    assert 'srcdoc="&lt;!doctype html&gt;' in displayed(report)[0]


def displayed(outputs: list) -> list[str]:
    shown = [output.get("data", {}) for output in outputs]
    return [data["text/html"] for data in shown if "text/html" in data]


def test_the_notebook_is_small():
    assert NOTEBOOK.stat().st_size < 150_000
