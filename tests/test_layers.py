"""
Which code may be where, and in which direction imports point. `make lint` runs this; CONTRIBUTING.md says where a
change goes.

Reads imports without running them, also those inside functions.
"""

import ast
from functools import cache
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
ROOT_MODULES = {"__init__", "__main__", "cli", "files", "version"}
# A module imports from its own layer and from those after it.
LAYERS = (
    *("cli", "commands", "audit", "trainer", "report", "evaluation", "data", "rewards", "policy"),
    *("credit", "sandbox", "files", "arguments", "version"),
)
LAYERS_OF_CREDIT = (
    *("__init__", "names", "rules", "coefficients", "gradients", "rule", "policy_outputs", "head"),
    *("hidden_states", "options"),
)
KNOW_NOTHING_OF_TRL = ("credit", "sandbox", "data", "report")
FOR_ANY_TRAINER = ("trimmed_padding", "checkpoints", "dynamic_sampling", "finite_updates")
SCRIPTS = ("gpu", "build", "endurance", "studies", "benchmarks")
# Lines of Python that each room may have, and `raise` statements of the package. CONTRIBUTING.md says what raising one
# takes; whoever deletes lowers it.
BUDGET = {
    "arguments": 185,
    "audit": 649,
    "cli": 65,
    "commands": 621,
    "credit": 2243,
    "data": 479,
    "evaluation": 761,
    "files": 74,
    "policy": 676,
    "report": 1010,
    "rewards": 2184,
    "sandbox": 2651,
    "trainer": 1704,
    "version": 1,
}
RAISES = 200


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


def test_every_room_keeps_to_its_budget():
    lines = dict.fromkeys(BUDGET, 0)
    for path in files("delta_trl"):
        if module_of(path)[1] not in ("__init__", "__main__"):
            lines[module_of(path)[1]] += len(path.read_text().splitlines())
    over = {room: f"{lines[room]} of {allowed}" for room, allowed in BUDGET.items() if lines[room] > allowed}
    assert not over, "something else must go first: CONTRIBUTING.md, What this package does not do"


def test_errors_keep_to_their_budget():
    trees = [ast.parse(path.read_text()) for path in files("delta_trl")]
    assert sum(isinstance(node, ast.Raise) for tree in trees for node in ast.walk(tree)) <= RAISES


def test_imports_point_one_way():
    assert not upwards("delta_trl", LAYERS, free=("__init__", "__main__"))


def test_imports_within_credit_point_one_way():
    assert not upwards("delta_trl/credit", LAYERS_OF_CREDIT)


@pytest.mark.parametrize("room", KNOW_NOTHING_OF_TRL)
def test_knows_nothing_of_trl(room):
    paths = files(f"delta_trl/{room}")
    assert paths
    assert not [path for path in paths if {"trl"} & {module[0] for module in imported(path)}]


def test_the_package_stands_alone():
    paths = files("delta_trl")
    assert not [path for path in paths if {"scripts", "tests"} & {module[0] for module in imported(path)}]


def test_scripts_point_one_way_and_import_no_test():
    assert not upwards("scripts", SCRIPTS, free=("__init__", "train", "quickstart"))
    tests = {module for path in files("scripts") for module in imported(path) if module[0] == "tests"}
    assert {module[:2] for module in tests} <= {("tests", "corpus")}


def test_only_tests_of_scripts_import_scripts():
    paths = [path for path in files("tests") if module_of(path)[1] != "scripts"]
    assert len(paths) > 100
    assert not [path for path in paths if "scripts" in {module[0] for module in imported(path)}]


def test_the_corpus_imports_no_test():
    paths = files("tests/corpus")
    tests = {module for path in paths for module in imported(path) if module[0] == "tests"}
    assert {module[:2] for module in tests} <= {("tests", "corpus")}


def test_classes_for_any_trainer_know_no_other():
    """Each is tested on a plain `GRPOTrainer`, and `trainer.py` overrides no more of TRL than what stands here."""
    for name in FOR_ANY_TRAINER:
        path = ROOT / "delta_trl" / "trainer" / f"{name}.py"
        known = {module[2] for module in imported(path) if module[:2] == ("delta_trl", "trainer")}
        assert not known & {*FOR_ANY_TRAINER, "trainer", "config", "credit_rule"}, name
        assert ("delta_trl", "credit") not in {module[:2] for module in imported(path)}, name
    rollouts = [path.stem for path in files("delta_trl") if "def _generate_and_score_completions(" in path.read_text()]
    assert sorted(rollouts) == ["dynamic_sampling", "trainer", "trimmed_padding"], "one flow, three overrides"
    [trainer] = (
        node
        for node in ast.parse((ROOT / "delta_trl" / "trainer" / "trainer.py").read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    overrides = {
        method.name
        for method in trainer.body
        if isinstance(method, ast.FunctionDef) and f"super().{method.name}" in ast.unparse(method)
    }
    of_trl = {"_generate_and_score_completions", "_get_per_token_logps_and_entropies", "_calculate_rewards"}
    of_trl |= {"_compute_loss"}
    assert overrides == {*of_trl, "create_accelerator_and_postprocess", "create_model_card", "__init__", "settings"}
