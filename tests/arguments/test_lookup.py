import importlib
import sys

import pytest

from delta_trl.arguments.lookup import import_dotted


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_what_lies_in_the_working_directory_is_found(folder):
    (folder / "mine_here.py").write_text("value = 3")
    assert import_dotted("rule", "mine_here.value", ()) == 3


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("mine/here.value", "No module named 'mine/here'"),
        ("detla", "did you mean 'delta'.*a dotted path"),
        ("json.absent.value", "No module named 'json.absent'"),
        ("broken_here.value", "No module named 'absent_elsewhere'"),
        ("json.lods", "module 'json' has no 'lods' .did you mean 'loads'"),
    ],
)
def test_what_is_not_there_is_named(folder, path, message):
    (folder / "broken_here.py").write_text("import absent_elsewhere")
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match=message):
        import_dotted("rule", path, ["delta"])
