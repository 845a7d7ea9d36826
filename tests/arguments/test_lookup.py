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
        ("mine/here.value", "dotted path"),
        ("detla", "did you mean 'delta'"),
        ("json.absent.value", "there is no module 'json.absent'"),
        ("json.lods", "module 'json' has no 'lods' .did you mean 'loads'"),
    ],
)
def test_what_is_not_there_is_named(folder, path, message):
    with pytest.raises(ValueError, match=message):
        import_dotted("rule", path, ["delta"])


def test_what_a_module_itself_lacks_is_passed_on(folder):
    (folder / "broken_here.py").write_text("import absent_elsewhere")
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="No module named 'absent_elsewhere'"):
        import_dotted("rule", "broken_here.value", ())
