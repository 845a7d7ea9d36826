"""Which line of the user's code an error names."""

from pathlib import Path

import pytest

import delta_trl
from delta_trl.arguments.errors import users_line


def test_a_module_beside_the_package_is_the_user_s():
    path = Path(delta_trl.__file__).parent.with_name("delta_trl_rewards.py")
    with pytest.raises(ZeroDivisionError) as error:
        exec(compile("1 / 0", path, "exec"))
    assert users_line(error.value).startswith(f"{path}, line 1")
