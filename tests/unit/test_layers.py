"""Hold the layers: which area may import which, where third-party libraries may stand, and what no file may mention.

Within ``actors/`` and ``benchmarks/`` the same for their folders. Only import statements and ``os.<name>`` are read; a
module named in a string at run time is not seen.
"""

from __future__ import annotations

import ast
import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

AREAS = {"actors", "benchmarks", "runtime", "storage"}
MAY_IMPORT = {
    "storage/*": set[str](),
    "runtime/cli/*": {"turnkeeper", "actors", "benchmarks", "storage"},
    "runtime/*": set[str](),
    "actors/*": {"turnkeeper", "runtime", "storage"},
    "benchmarks/*": {"turnkeeper", "actors", "runtime", "storage"},
}
FACE = {"runtime", "runtime_actors", "runtime_opening", "blocking"}
KEPT_FROM = {
    "actors/client/*": {"node", "reading", "session", "writer", *FACE},
    "actors/node/*": {"session", *FACE},
    "actors/reading/*": {"node", "session", "writer", *FACE},
    "actors/session/*": {"node", "writer", *FACE},
    "actors/tasks/*": {"node", "writer", *FACE},
    "actors/writer/*": {"client", "node", "reading", "session", *FACE},
}
# Folders of benchmarks/, and modules that stand beside them: each may import those before it.
BENCHMARKS = [
    "measuring",
    "report",
    "stores",
    "workplace",
    "driving",
    "peers",
    "demonstration",
    "chaos",
    "actors",
    "disk",
    "flushing",
    "following",
    "imports",
    "memory",
    "reading",
    "recovery",
    "tasks",
    "suites",
]
OWN_PROCESSES = [
    "actors/node/*",
    "actors/peers.py",
    "actors/writer/*",
    "benchmarks/*",
    "runtime/cpu/keeper.py",
    "runtime/workers/worker_main.py",
]
ONLY_IN = {
    "agents": ["benchmarks/peers/agents_session.py"],
    "asyncio": [],
    "dbos": ["benchmarks/peers/dbos_workflows.py"],
    "hdrh": ["benchmarks/driving/loads.py"],
    "jinja2": ["benchmarks/report/paper.py", "benchmarks/chaos/page.py", "benchmarks/report/page.py"],
    "langgraph": ["benchmarks/peers/langgraph_saver.py"],
    "lmdb": ["storage/index.py"],
    "matplotlib": ["benchmarks/report/plots.py"],
    "msgpack": ["runtime/frames.py", "benchmarks/driving/exchanges.py"],
    "os.fdatasync": ["storage/filesystem.py", "runtime/tasks/directory.py", "benchmarks/*"],
    "os.fsync": ["storage/filesystem.py", "benchmarks/*"],
    "psutil": ["runtime/identity.py"],
    "pykka": ["benchmarks/peers/pykka_actors.py"],
    "ray": ["benchmarks/peers/ray_actors.py"],
    "trio": OWN_PROCESSES,
    "trio_parallel": OWN_PROCESSES,
    "xoscar": ["benchmarks/peers/xoscar_actors.py"],
}
# Put together here, so that this file does not mention them either.
FORBIDDEN_WORDS = ["/" + "work/", "../" + "shared", "." + "library/", "/" + "tmp/tk"]
GENERATED = {".git", *(line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines())}


def imported_names(module: str, source: str) -> Iterator[str]:
    """Yield the full name of all that the module imports, relative imports resolved, and each ``os.<name>`` it uses."""
    package = ["turnkeeper", *Path(module).parent.parts]
    for node in ast.walk(ast.parse(source, module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*start, *filter(None, [node.module])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield f"os.{node.attr}"


def violations(module: str, source: str) -> Iterator[str]:
    """Say which of the module's imports its layer does not allow; the module is a path such as ``storage/index.py``."""
    allowed = next(areas for pattern, areas in MAY_IMPORT.items() if fnmatch.fnmatch(module, pattern))
    kept_from = next((folders for pattern, folders in KEPT_FROM.items() if fnmatch.fnmatch(module, pattern)), set())
    is_root = fnmatch.fnmatch(module, "runtime/cli/*")
    for name in imported_names(module, source):
        first, *rest = name.split(".")
        if first in AREAS | {"tests"}:
            yield f"{module} imports {name}, which exists in a checkout only"
        if first == "turnkeeper":
            area = rest[0] if rest and rest[0] in AREAS else "turnkeeper"
            command_line = rest[:2] == ["runtime", "cli"] and not is_root
            if area not in allowed | {module.split("/")[0]} or command_line:
                yield f"{module} imports {name} from a layer it must not know"
            if area == "actors" and not kept_from.isdisjoint(rest[1:2]):
                yield f"{module} imports {name} from a folder it must not know"
            if area == "benchmarks" and module.startswith("benchmarks/") and not is_before("".join(rest[1:2]), module):
                yield f"{module} imports {name}, which does not stand before it"
        for confined, homes in ONLY_IN.items():
            if f"{name}.".startswith(f"{confined}.") and not any(fnmatch.fnmatch(module, home) for home in homes):
                yield f"{module} uses {confined}, which belongs to {', '.join(homes) or 'tests only'}"


def is_before(part: str, module: str) -> bool:
    """Say whether a part of the benchmarks is the module's own, or stands before that one."""
    own = module.removesuffix(".py").split("/")[1]
    return part == own or (own in BENCHMARKS and part in BENCHMARKS[: BENCHMARKS.index(own)])


def all_violations(root: Path) -> list[str]:
    """Read every module of the areas below the root."""
    modules = [path for area in sorted(AREAS) for path in sorted((root / area).rglob("*.py"))]
    return [each for path in modules for each in violations(path.relative_to(root).as_posix(), path.read_text())]


def mentions(root: Path) -> list[str]:
    """Find the forbidden words in every file below the root that is not generated, following no links to folders."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - GENERATED)
        for path in (Path(folder, name) for name in sorted(set(files) - GENERATED)):
            text = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
            found += [f"{path.relative_to(root)} mentions {word}" for word in FORBIDDEN_WORDS if word in text]
    return found


def test_every_module_keeps_to_its_layer() -> None:
    """No area imports one above or beside it, and each third-party library stands where it belongs."""
    assert all_violations(ROOT) == []


def test_no_file_mentions_a_machine() -> None:
    """No file names a path of the machine that it was written on."""
    assert mentions(ROOT) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("storage/index.py", "from turnkeeper.runtime import frames"),
        ("storage/index.py", "from ..runtime.frames import Frame"),
        ("storage/index.py", "from .. import actors"),
        ("storage/index.py", "from turnkeeper import Event"),
        ("storage/index.py", "import turnkeeper"),
        ("runtime/frames.py", "from turnkeeper.storage.index import Index"),
        ("runtime/frames.py", "from .cli import main"),
        ("runtime/frames.py", "from . import cli"),
        ("runtime/clients.py", "from turnkeeper.actors.client import client"),
        ("actors/client/client.py", "import turnkeeper.runtime.cli.main"),
        ("actors/client/client.py", "from turnkeeper.benchmarks import flushing"),
        ("benchmarks/flushing/flush.py", "from turnkeeper.runtime import cli"),
        ("benchmarks/measuring/runs.py", "from ..report.results import Result"),
        ("benchmarks/peers/flushes.py", "from .. import flushing"),
        ("benchmarks/workplace.py", "from .tasks.hosts import Place"),
        ("actors/client/client.py", "from storage import index"),
        ("actors/client/client.py", "import runtime.frames"),
        ("actors/client/client.py", "import trio"),
        ("actors/client/client.py", "def later():\n    from trio import lowlevel"),
        ("actors/client/link.py", "from ..session.session import Session"),
        ("actors/reading/logs.py", "from ..runtime import Runtime"),
        ("actors/session/session.py", "from ..writer import requests"),
        ("actors/tasks/task.py", "from .. import blocking"),
        ("actors/writer/writer.py", "from turnkeeper.actors.client.link import Link"),
        ("runtime/workers/worker_main.py", "import asyncio.events"),
        ("storage/segment.py", "import lmdb as database"),
        ("actors/writer/writer.py", "from msgpack import packb"),
        ("benchmarks/actors/actors.py", "import ray"),
        ("benchmarks/chaos/report.py", "from jinja2 import Environment"),
        ("runtime/processes.py", "import psutil"),
        ("storage/segment.py", "import os\nos.fdatasync(1)"),
        ("runtime/frames.py", "from os import fsync"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, module: str, line: str) -> None:
    """Each rule can fail: one line that breaks it is reported with its module."""
    planted = tmp_path / module
    planted.parent.mkdir(parents=True)
    planted.write_text(line + "\n")
    assert [each.split()[0] for each in all_violations(tmp_path)] == [module]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("storage/index.py", "import lmdb\nfrom .segment import Segment\nfrom . import segment"),
        ("storage/filesystem.py", "import os\nos.fdatasync(1)"),
        (
            "runtime/cli/session.py",
            "from turnkeeper.actors.client import client\nfrom ..frames import Frame\nfrom . import main",
        ),
        ("runtime/frames.py", "import trionyx\nimport msgpack"),
        (
            "actors/node/node.py",
            "import trio\nfrom turnkeeper.storage import store\nfrom turnkeeper import __version__",
        ),
        ("actors/writer/writer_main.py", "import trio"),
        (
            "benchmarks/flushing/flush.py",
            "import os, trio\nimport turnkeeper\nos.fsync(1)\nfrom .. import workplace\nfrom . import subjects",
        ),
    ],
)
def test_what_the_layers_allow_is_not_reported(tmp_path: Path, module: str, line: str) -> None:
    """Imports inside an area, from an area below, and of a library in its own module pass."""
    allowed = tmp_path / module
    allowed.parent.mkdir(parents=True)
    allowed.write_text(line + "\n")
    assert all_violations(tmp_path) == []


@pytest.mark.parametrize("word", FORBIDDEN_WORDS)
def test_a_planted_mention_is_found(tmp_path: Path, word: str) -> None:
    """A forbidden word in any file is reported, and one in a generated folder is not."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "notes.txt").write_text(f"see {word} for more")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "notes.txt").write_text(f"see {word} for more")
    assert mentions(tmp_path) == [f"docs/notes.txt mentions {word}"]
