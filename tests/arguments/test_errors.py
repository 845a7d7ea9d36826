"""Whose mistake an error is, and which line of the user's code it names."""

import sysconfig
from pathlib import Path

import pytest
from yaml import YAMLError

import delta_trl
from delta_trl.arguments.errors import UsageError, mistakes, users_line


@pytest.mark.parametrize("kind", [ValueError, TypeError, OSError, ImportError, RuntimeError, YAMLError])
def test_what_libraries_raise_is_a_mistake_of_the_user_s(kind):
    """A `RuntimeError` if weights do not fit the model, for example."""
    with pytest.raises(UsageError, match=r"^sizes differ$"), mistakes():
        raise kind("sizes differ")


def test_a_mistake_of_ours_is_none_of_the_user_s():
    with pytest.raises(KeyError), mistakes():
        raise KeyError("sizes")


@pytest.mark.parametrize("folder", [Path(delta_trl.__file__).parent, Path(sysconfig.get_path("stdlib"))])
def test_a_module_beside_a_library_is_the_user_s(folder):
    """Also one whose name begins with that of the library."""
    path = folder.with_name(f"{folder.name}_rewards.py")
    with pytest.raises(ZeroDivisionError) as error:
        exec(compile("1 / 0", path, "exec"))
    assert users_line(error.value).startswith(f"{path}, line 1")


LIBRARIES = {
    "stdlib": "import json; json.loads('[')",
    "frozen": "import os; os.path.join(1)",
    "site-packages": "import pandas; pandas.Series([1]).groupby('a')",
    "dist-packages": "exec(compile('1 / 0', '/usr/lib/dist-packages/any.py', 'exec'))",
    "ours": "from delta_trl.arguments.values import in_words; in_words('')",
}


@pytest.mark.parametrize("code", LIBRARIES.values(), ids=LIBRARIES)
def test_an_error_within_a_library_has_the_user_s_line(code):
    with pytest.raises(Exception) as error:  # noqa: PT011
        exec(compile(code, "mine.py", "exec"))
    assert users_line(error.value).startswith("mine.py, line 1")


def test_a_module_that_cannot_be_decoded_is_named():
    """Python does not say what stands in its line."""
    with pytest.raises(SyntaxError) as error:
        compile(b"# coding: nope", "mine.py", "exec")
    assert users_line(error.value).startswith("mine.py, line ")
