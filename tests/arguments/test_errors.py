"""Which line of the user's code an error names."""

import sysconfig
from pathlib import Path

import pytest

import delta_trl
from delta_trl.arguments.errors import users_line


@pytest.mark.parametrize("folder", [Path(delta_trl.__file__).parent, Path(sysconfig.get_path("stdlib"))])
def test_a_module_beside_a_library_is_the_user_s(folder):
    """Also one whose name begins with that of the library."""
    path = folder.with_name(f"{folder.name}_rewards.py")
    with pytest.raises(ZeroDivisionError) as error:
        exec(compile("1 / 0", path, "exec"))
    assert users_line(error.value).startswith(f"{path}, line 1")
