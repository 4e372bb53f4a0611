"""Hold the packaging: what the wheel and the source archive contain, and that both come to the same package.

Everything is built by the installed hatchling, without a network.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import turnkeeper

ROOT = Path(__file__).resolve().parents[2]
AREAS = ("actors", "benchmarks", "runtime", "storage")
SECONDS_MAX = 60


def build(tree: Path, target: str, folder: Path) -> Path:
    """Build the tree as a ``wheel`` or ``sdist`` into the empty folder and return the archive."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=SECONDS_MAX)
    (archive,) = folder.iterdir()
    return archive


def run_python(folder: Path, code: str) -> str:
    """Run the code in a fresh interpreter that finds the folder's turnkeeper first, and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS_MAX)
    return done.stdout.strip()


def content(wheel: Path) -> dict[str, bytes]:
    """Return the wheel's files by name, without those that hatchling writes about it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive of this checkout and unpack it: a tree without links and without version control."""
    archive = build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            stream = tar.extractfile(member)
            assert stream is not None, f"{member.name} is not a plain file"
            (folder / member.name).parent.mkdir(parents=True, exist_ok=True)
            (folder / member.name).write_bytes(stream.read())
    (tree,) = folder.iterdir()
    return tree


def test_the_wheel_holds_the_areas_and_nothing_else(wheel: Path) -> None:
    """Every file of the four areas, package data too, is below turnkeeper/; tests and development files are not."""
    files = [path for area in AREAS for path in (ROOT / area).rglob("*") if path.is_file()]
    areas = {f"turnkeeper/{path.relative_to(ROOT)}" for path in files if "__pycache__" not in path.parts}
    assert set(content(wheel)) == areas | {"turnkeeper/__init__.py", "turnkeeper/__main__.py", "turnkeeper/py.typed"}


def test_the_wheel_imports_by_itself(wheel: Path, tmp_path: Path) -> None:
    """What the wheel installs is importable with all its areas, from its own folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    names = ", ".join(f"turnkeeper.{area}" for area in AREAS)
    assert run_python(tmp_path, f"import {names}; print(turnkeeper.storage.__file__)") == str(
        tmp_path / "turnkeeper" / "storage" / "__init__.py"
    )


def test_the_source_archive_builds_the_same_wheel(wheel: Path, source_tree: Path, tmp_path: Path) -> None:
    """Installing from the source archive gives byte for byte what the checkout gives."""
    assert content(build(source_tree, "wheel", tmp_path)) == content(wheel)


def test_the_checkout_links_every_area() -> None:
    """The links through which a checkout is imported are relative, lead to the areas, and are complete."""
    links = {path.name: path.readlink() for path in (ROOT / ".import" / "turnkeeper").iterdir() if path.is_symlink()}
    assert links == {area: Path("..", "..", area) for area in AREAS}


def test_the_installed_version_is_the_packages_own() -> None:
    """The version has one place, and the installed metadata was made from it."""
    assert version("turnkeeper") == turnkeeper.__version__


def test_importing_turnkeeper_loads_no_event_loop() -> None:
    """The public names are lazy: the bare import brings in no event loop and no index."""
    code = "import sys; import turnkeeper; print(*sorted({'anyio', 'asyncio', 'trio', 'lmdb'} & set(sys.modules)))"
    assert run_python(ROOT / ".import", code) == ""


@pytest.mark.parametrize("name", turnkeeper.__all__)
def test_every_public_name_exists(name: str) -> None:
    """What ``__all__`` promises can be had, and ``dir`` lists it."""
    assert getattr(turnkeeper, name) is not None
    assert name in dir(turnkeeper)


def test_a_type_checker_sees_the_public_names_where_they_are() -> None:
    """The imports meant for type checkers name the modules that the names are imported from at run time."""
    tree = ast.parse((ROOT / ".import" / "turnkeeper" / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names if alias.name in turnkeeper.__all__}
    assert seen == vars(turnkeeper)["_MODULE_OF_NAME"]
    assert {*seen, "__version__"} == set(turnkeeper.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt public name says which module lacks it."""
    with pytest.raises(AttributeError, match="module 'turnkeeper' has no attribute 'open_runtme'"):
        getattr(turnkeeper, "open_runtme")  # noqa: B009 - as an attribute it would not pass the type checker


def test_every_dependency_is_pinned_and_no_registry_is_named() -> None:
    """constraints.txt pins each package that pyproject.toml asks for, one exact version a line and nothing else."""
    pins = [line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()]
    assert all(len(pin) == 2 for pin in pins)
    extras = project()["project"]["optional-dependencies"]
    assert "turnkeeper[bench]" in extras["dev"]
    asked = {*project()["project"]["dependencies"], *extras["bench"], *extras["dev"]} - {"turnkeeper[bench]"}
    assert {requirement.split(">=")[0] for requirement in asked} <= {name for name, _ in pins}
