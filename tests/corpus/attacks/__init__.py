"""Programs that misbehave. Each is (name, program, tests), and earns 0.

The tests reward an attack that works. If the program must not be able to read something, this is the expected output.
If it must not be able to do something, it prints "done" afterwards, which is the expected output.
Words in capitals are replaced by `test_attacks.py` (paths, ports and process ids of things on the host).
"""

from . import files, guesses, harness, names, network, processes, resources, text


def _named(table: str) -> list[tuple]:
    return [
        (f"{module.__name__.rpartition('.')[2]}: {name}", program, tests)
        for module in (files, guesses, harness, names, network, processes, resources, text)
        for name, program, tests in getattr(module, table, ())
    ]


ATTACKS = _named("ATTACKS")
LASTING = _named("LASTING")  # those that only their time limit ends
