"""
Which code may be where, and in which direction imports point. `make lint` runs this; CONTRIBUTING.md says where a
change goes.

Reads imports without running them, also those inside functions.
"""

import ast
from functools import cache
from importlib.util import resolve_name
from pathlib import Path


ROOT = Path(__file__).parents[1]
ROOT_MODULES = {"__init__", "__main__", "cli", "files", "version"}
# A module imports from its own layer and from those after it.
LAYERS = (
    "cli",
    "commands",
    "audit",
    "trainer",
    "report",
    "evaluation",
    "data",
    "rewards",
    "scoring",
    "credit",
    "sandbox",
    "files",
    "arguments",
    "version",
)
LAYERS_OF_CREDIT = (
    "__init__",
    "names",
    "rules",
    "coefficients",
    "gradients",
    "rule",
    "ranks",
    "policy_outputs",
    "head",
    "hidden_states",
    "options",
)
KNOW_NOTHING_OF_TRL = ("credit", "sandbox", "data", "report")
FOR_ANY_TRAINER = ("checkpoints", "finite_updates")
SCRIPTS = ("gpu", "build", "endurance", "studies", "benchmarks")


def module_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).with_suffix("").parts


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def imported(path: Path) -> set[tuple[str, ...]]:
    """The modules that a file imports; of `from package import name`, the package and the name."""
    package = ".".join(module_of(path)[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = resolve_name(relative, package)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {tuple(name.split(".")) for name in names}
    return found


def modules_of(root: str, paths: list[Path]) -> set[tuple[str, ...]]:
    """What files import of the package `root`."""
    every = set().union(*map(imported, paths))
    return {module for module in every if module[0] == root}


def upwards(folder: str, layers: tuple[str, ...], free: tuple[str, ...] = ()) -> list[str]:
    """Imports within a folder that go to an earlier layer, or to what is in none."""
    depth = folder.count("/") + 1
    wrong = []
    for path in files(folder):
        *root, own = module_of(path)[: depth + 1]
        if own in free:
            continue
        own_and_later = layers[layers.index(own) :]
        for module in imported(path):
            *package, other = (*module, "__init__")[: depth + 1]
            if package == root and other not in own_and_later:
                wrong.append(f"{path.relative_to(ROOT)} imports {'.'.join(module)}")
    return wrong


def test_every_module_is_in_a_room_and_every_room_in_a_layer():
    modules = {path.stem for path in (ROOT / "delta_trl").glob("*.py")}
    rooms = {path.parent.name for path in (ROOT / "delta_trl").glob("*/*.py")}
    assert modules == ROOT_MODULES, "a new module belongs in a room: CONTRIBUTING.md has a table of them"
    assert modules | rooms == {*LAYERS, "__init__", "__main__"}, "a new room needs a layer"


def test_imports_point_one_way():
    assert not upwards("delta_trl", LAYERS, free=("__init__", "__main__"))
    assert not upwards("delta_trl/credit", LAYERS_OF_CREDIT)


def test_some_rooms_know_nothing_of_trl():
    for room in KNOW_NOTHING_OF_TRL:
        assert files(f"delta_trl/{room}")
        assert not modules_of("trl", files(f"delta_trl/{room}")), room


def test_scripts_and_tests_stay_outside():
    """The package imports neither. Scripts import only the corpus of the tests, and only tests of scripts them."""
    assert not modules_of("scripts", files("delta_trl"))
    assert not modules_of("tests", files("delta_trl"))
    assert not upwards("scripts", SCRIPTS, free=("__init__", "train", "quickstart", "agent"))
    of_scripts = modules_of("tests", [*files("scripts"), *files("tests/corpus")])
    assert {module[:2] for module in of_scripts} == {("tests", "corpus")}
    others = [path for path in files("tests") if module_of(path)[1] != "scripts"]
    assert len(others) > 100
    assert not modules_of("scripts", others)


def test_classes_for_any_trainer_know_no_other():
    """Each is tested on a plain `GRPOTrainer`."""
    others = {("trainer", name) for name in (*FOR_ANY_TRAINER, "trainer", "config", "credit_rule")}
    for name in FOR_ANY_TRAINER:
        path = ROOT / f"delta_trl/trainer/{name}.py"
        known = modules_of("delta_trl", [path])
        assert not {module[1:3] for module in known} & others, name
        assert "credit" not in {module[1] for module in known}, name
