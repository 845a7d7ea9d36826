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
