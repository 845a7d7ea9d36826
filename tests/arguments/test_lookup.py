import sys

import pytest

from delta_trl.arguments.lookup import import_dotted, refuse_missing_path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("detla", "did you mean 'delta'.*a dotted path"),
        ("fipa", "did you mean 'FIPO'"),
        ("DETLA", "did you mean 'delta'"),
        ("random", "a dotted path"),  # also a module, with a function of that name
        ("broken_here.value", "No module named 'absent_elsewhere'"),
        ("./rewards.py", "a dotted path"),
        ("json.lods", "module 'json' has no 'lods' .did you mean 'loads'"),
    ],
)
def test_an_unknown_name_is_refused_and_says_why(tmp_path, monkeypatch, path, message):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_here.py").write_text("import absent_elsewhere")
    with pytest.raises(ValueError, match=message):
        import_dotted("rule", path, ["delta", "FIPO"])


def test_a_module_of_the_working_directory_comes_before_an_installed_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (tmp_path / "colorsys.py").write_text("mine = 3")
    assert import_dotted("reward", "colorsys.mine", []) == 3
    monkeypatch.delitem(sys.modules, "colorsys")


@pytest.mark.parametrize("name", ["./here", "../here", "/here", "~/here", "a/b/here"])
def test_what_can_only_be_a_path_has_to_be_there(name):
    with pytest.raises(ValueError, match=f"model='{name}': there is no such file or folder in "):
        refuse_missing_path("model", name)


def test_an_id_on_the_hub_is_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b" / "here").mkdir(parents=True)
    for name in ("gpt2", "Qwen/Qwen3-0.6B", "a/b/here", f"{tmp_path}/a"):
        refuse_missing_path("model", name)
