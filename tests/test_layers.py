"""
Which code may be where, and in which direction imports point. `make lint` runs this; CONTRIBUTING.md says where a
change goes.

Reads imports without running them, also those inside functions.
"""

import ast
from functools import cache
from pathlib import Path


ROOT = Path(__file__).parents[1]
ROOT_MODULES = {"__init__", "__main__", "cli", "files", "version"}
# A module imports from its own layer and from those after it.
LAYERS = (
    *("cli", "commands", "audit", "trainer", "report", "evaluation", "data", "rewards", "scoring"),
    *("credit", "sandbox", "files", "arguments", "version"),
)
LAYERS_OF_CREDIT = (
    *("__init__", "names", "rules", "coefficients", "gradients", "rule", "policy_outputs", "head"),
    *("hidden_states", "options"),
)
KNOW_NOTHING_OF_TRL = ("credit", "sandbox", "data", "report")
FOR_ANY_TRAINER = ("checkpoints", "dynamic_sampling", "finite_updates")
SCRIPTS = ("gpu", "build", "endurance", "studies", "benchmarks")
# Expressions (`ast.expr` nodes) of the rooms, and `raise` statements of the package. No line break changes them.
# CONTRIBUTING.md says what raising one takes; whoever deletes lowers it.
BUDGET = {
    ("scoring",): 4_750,
    ("trainer",): 4_100,
    ("credit",): 7_900,
    ("rewards",): 8_350,
    ("sandbox",): 9_100,
    ("report", "audit"): 6_350,
    ("evaluation", "commands", "arguments", "data", *sorted(ROOT_MODULES)): 10_400,
}
RAISES = 200
OUTSIDE = {"tests": 55_700, "scripts": 17_300}  # expressions
WORDS = 14_000  # of README and docs


def module_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).with_suffix("").parts


@cache
def imported(path: Path) -> set[tuple[str, ...]]:
    """The modules that a file imports; of `from package import name`, the package and the name."""
    package, found = module_of(path)[:-1], set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            found |= {(*module, alias.name) for alias in node.names}
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def modules_of(root: str, paths: list[Path]) -> set[tuple[str, ...]]:
    """What files import of the package `root`."""
    return {module for path in paths for module in imported(path) if module[0] == root}


def upwards(folder: str, layers: tuple[str, ...], free: tuple[str, ...] = ()) -> list[str]:
    """Imports within a folder that go to an earlier layer, or to what is in none."""
    root, wrong = tuple(folder.split("/")), []
    for path in files(folder):
        own = module_of(path)[len(root)]
        if own in free:
            continue
        for module in imported(path):
            if module[: len(root)] != root:
                continue
            other = module[len(root)] if len(module) > len(root) else "__init__"
            if other not in layers or layers.index(other) < layers.index(own):
                wrong.append(f"{path.relative_to(ROOT)} imports {'.'.join(module)}")
    return wrong


def test_what_stands_in_the_root_of_the_package():
    modules = {path.stem for path in (ROOT / "delta_trl").glob("*.py")}
    rooms = {path.parent.name for path in (ROOT / "delta_trl").glob("*/*.py")}
    assert modules == ROOT_MODULES, "a new module belongs in a room: CONTRIBUTING.md has a table of them"
    assert modules | rooms == {*LAYERS, "__init__", "__main__"}, "a new room needs a layer"


def expressions(paths: list[Path]) -> int:
    trees = [ast.parse(path.read_text()) for path in paths]
    return sum(isinstance(node, ast.expr) for tree in trees for node in ast.walk(tree))


def test_every_room_keeps_to_its_budget():
    by_room: dict[str, list[Path]] = {}
    for path in files("delta_trl"):
        by_room.setdefault(module_of(path)[1], []).append(path)
    budgeted = [room for rooms in BUDGET for room in rooms]
    assert sorted(budgeted) == sorted(by_room)
    for rooms, allowed in BUDGET.items():
        used = sum(expressions(by_room[room]) for room in rooms)
        assert used <= allowed, (
            f"{rooms}: something else must go first: CONTRIBUTING.md, What this package does not do"
        )


def test_tests_scripts_and_pages_keep_to_theirs():
    for folder, allowed in OUTSIDE.items():
        assert expressions(files(folder)) <= allowed
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert sum(len(path.read_text().split()) for path in pages) <= WORDS


def test_errors_keep_to_their_budget():
    trees = [ast.parse(path.read_text()) for path in files("delta_trl")]
    assert sum(isinstance(node, ast.Raise) for tree in trees for node in ast.walk(tree)) <= RAISES


def test_imports_point_one_way():
    assert not upwards("delta_trl", LAYERS, free=("__init__", "__main__"))
    assert not upwards("delta_trl/credit", LAYERS_OF_CREDIT)


def test_some_rooms_know_nothing_of_trl():
    for room in KNOW_NOTHING_OF_TRL:
        assert files(f"delta_trl/{room}")
        assert not modules_of("trl", files(f"delta_trl/{room}")), room


def test_scripts_and_tests_stay_outside():
    """The package imports neither. Scripts import only the corpus of the tests, and only tests of scripts them."""
    assert not modules_of("scripts", files("delta_trl")) | modules_of("tests", files("delta_trl"))
    assert not upwards("scripts", SCRIPTS, free=("__init__", "train", "quickstart", "agent"))
    of_scripts = modules_of("tests", [*files("scripts"), *files("tests/corpus")])
    assert {module[:2] for module in of_scripts} == {("tests", "corpus")}
    others = [path for path in files("tests") if module_of(path)[1] != "scripts"]
    assert len(others) > 100
    assert not modules_of("scripts", others)


def test_classes_for_any_trainer_know_no_other():
    """Each is tested on a plain `GRPOTrainer`."""
    for name in FOR_ANY_TRAINER:
        path = ROOT / "delta_trl" / "trainer" / f"{name}.py"
        known = {module[2] for module in imported(path) if module[:2] == ("delta_trl", "trainer")}
        assert not known & {*FOR_ANY_TRAINER, "trainer", "config", "credit_rule"}, name
        assert ("delta_trl", "credit") not in {module[:2] for module in imported(path)}, name
