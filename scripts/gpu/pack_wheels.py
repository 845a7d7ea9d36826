"""
Packs the wheels that a machine with little more than torch lacks, to run scripts/gpu/check.py there without network.

    python -m scripts.gpu.pack_wheels --output outputs/wheels                 # for a box with torch alone: 118 MB
    python -m scripts.gpu.pack_wheels --output outputs/wheels --have box.txt  # less; of `pip list --format freeze`
    python -m scripts.gpu.check --wheels outputs/wheels                   # on the box

Versions are the pins of constraints.txt. Dependencies are read from the environment that this runs in, which must have
these versions (`make install`). Wheels are for CPython on Linux, x86-64. On the box, pip itself chooses which of them
are missing there, and they go into a folder of their own: nothing else on the box changes.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip"]
# beside the project's own dependencies: LoRA, the language model's file, and the stage `tests`
MORE = ("peft>=0.18", "gguf>=0.19", "pytest>=8", "pytest-timeout>=2.3")
PLATFORMS = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_26_x86_64",
    "manylinux_2_24_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux_2_12_x86_64",
    "manylinux_2_5_x86_64",
    "manylinux2014_x86_64",
]


def requirements() -> list[str]:
    """What check.py needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *MORE]


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(roots: list[str], have: dict[str, str | None], python: str) -> set[str]:
    """The packages that are missing."""
    from packaging.requirements import Requirement

    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
    }
    found = set()
    seen = set()

    def walk(text: str, extras: set[str]) -> None:
        """A requirement of a package, or of its extras."""
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)):
            return
        name = canonical_name(requirement.name)
        there = have.get(name, "")
        if there is None or (there and requirement.specifier.contains(there, prereleases=True)):
            return
        found.add(name)
        if text not in seen:
            seen.add(text)
            brings = metadata.requires(name) or ()
            for wanted in brings:
                walk(wanted, requirement.extras)

    for root in roots:
        walk(root, set())
    return found


def read_have(path: Path | None, python: str) -> dict[str, str | None]:
    """What the box has, with versions where they are known; by default torch and what that needs."""
    have = {"torch": None}
    if path is None:
        return have | dict.fromkeys(needed(["torch"], {}, python))
    for line in path.read_text().replace(",", "\n").splitlines():
        entry = line.split("@")[0].strip()
        name, _, version = entry.partition("==")
        if name:
            have[canonical_name(name)] = version or None
    return have


def download(packages: set[str], folder: Path, python: str) -> None:
    pins = {}
    for pin in (ROOT / "constraints.txt").read_text().split():
        name, version = pin.split("==")
        pins[canonical_name(name)] = version
    unpinned = sorted(packages - pins.keys())
    if unpinned:
        sys.exit(f"no pin in constraints.txt for {', '.join(unpinned)}")
    command = [*PIP, "download", "-qq", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", python, "--dest", str(folder)]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    command += [f"{name}=={pins[name]}" for name in packages]
    subprocess.run(command, check=True)


def unpack(folder: Path, target: Path) -> Path:
    """Install those wheels of `folder` that are missing here into `target`, without network. Returns `target`."""
    offline = ["--no-index", "--find-links", str(folder.resolve()), "--disable-pip-version-check", "-q"]
    target.mkdir(parents=True, exist_ok=True)
    report = target / "pip-report.json"
    command = [*PIP, "install", "--dry-run", *offline, "--report", str(report), *requirements()]
    if subprocess.run(command).returncode == 0:
        chosen = json.loads(report.read_text())["install"]
        missing = [wheel["download_info"]["url"] for wheel in chosen]
    else:
        print("pip finds no set of versions that fits; taking what is not there at all", flush=True)
        wheels = sorted(folder.resolve().glob("*.whl"))
        missing = [str(path) for path in wheels if not is_here(path)]
    names = [url.rpartition("/")[2] for url in missing]
    print(f"from {folder}: {', '.join(names) or 'nothing'}", flush=True)
    if missing:
        options = [*offline, "--no-deps", "--no-compile", "--upgrade", "--target", str(target)]
        subprocess.run([*PIP, "install", *options, *missing], check=True)
    return target


def is_here(wheel: Path) -> bool:
    try:
        metadata.version(wheel.name.split("-")[0])
    except metadata.PackageNotFoundError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the wheels")
    parser.add_argument("--python", default="3.12", help="the box's")
    parser.add_argument("--have", type=Path, help="names that the box has, one a line, with ==VERSION where known")
    args = parser.parse_args()
    have = read_have(args.have, args.python)
    packages = needed(requirements(), have, args.python)
    args.output.mkdir(parents=True, exist_ok=True)
    download(packages, args.output, args.python)
    sizes = [(wheel.stat().st_size, wheel.name) for wheel in args.output.glob("*.whl")]
    for size, name in sorted(sizes, reverse=True):
        print(f"{size / 1e6:8.2f} MB  {name}")


if __name__ == "__main__":
    main()
