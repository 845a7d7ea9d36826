import re
from importlib.metadata import version
from pathlib import Path

import delta_trl


def test_version_is_the_same_everywhere():
    pyproject = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    declared = re.search(r'^version = "(.+)"$', pyproject, re.MULTILINE).group(1)
    assert delta_trl.__version__ == version("delta-trl") == declared
