import pytest

from delta_trl.arguments.lookup import import_dotted


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
