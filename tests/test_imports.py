"""Packages import one way: from the mathematics up to the command line, without a cycle.

The import graph is read from the source with ``ast``, so that imports inside functions and under ``TYPE_CHECKING``
count as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1] / "fedstein"

# From the lowest layer to the highest. A package may import the packages of lower layers. Packages of one layer do not
# import each other, except for the helper modules of the lowest layer.
HELPERS = ("errors", "seeds", "files", "machine", "settings", "plugin_errors", "registry", "console", "progress")
LAYERS: tuple[tuple[str, ...], ...] = (
    HELPERS,
    ("stein",),
    ("models", "data"),
    ("privacy",),
    ("evaluation", "inference"),
    ("selection",),
    ("federation",),
    ("runs",),
    ("posterior_checks",),
    ("posterior_tools",),
    ("posterior",),
    ("flower", "api", "loggers"),
    ("sklearn",),
    ("fedstein",),  # the package's own __init__.py, with the names that users import
    ("report",),
    ("studies",),
    ("cli",),
    ("__main__",),
)
RANK = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}

# Imports against the order that are known and still to be removed: (importing module, imported module). Keep it empty.
ALLOWED: frozenset[tuple[str, str]] = frozenset()

# Third-party packages that only one of our packages may import.
ONLY_IN = {"matplotlib": "report", "starlette": "report", "uvicorn": "report", "flwr": "flower", "typer": "cli"}


class Import(NamedTuple):
    """One import statement: ``source`` imports ``target`` on this line."""

    source: str
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The part of the package that a module belongs to: ``fedstein.runs.build`` -> ``runs``."""
    return module.split(".")[1] if "." in module else module


def imported_names(node: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Pairs (module, name) of one import statement; the name is empty for ``import module``."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, ""
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = module.split(".")
            parts = parts[: len(parts) - node.level + is_package]
            base = ".".join([*parts, *([base] if base else [])])
        for alias in node.names:
            yield base, alias.name
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            yield node.args[0].value, ""


@cache
def read_imports(root: Path = ROOT) -> list[Import]:
    """Every import statement of the package, of its own modules and of others."""
    paths = {module_name(path, root): path for path in sorted(root.rglob("*.py"))}
    found = []
    for module, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for base, name in imported_names(node, module, path.name == "__init__.py"):
                if (base, name) == (root.name, "__version__"):
                    continue  # the version is a constant, and reading it imports nothing else
                target = f"{base}.{name}" if f"{base}.{name}" in paths else base
                found.append(Import(module, target, getattr(node, "lineno", 0)))
    return found


def own(imports: Iterable[Import], root: str = "fedstein") -> list[Import]:
    """The imports between the package's own modules."""
    return [entry for entry in imports if entry.target.split(".")[0] == root]


def package_graph(imports: Iterable[Import]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for entry in own(imports):
        source, target = package_of(entry.source), package_of(entry.target)
        graph.setdefault(source, set()).add(target)
        graph.setdefault(target, set())
    return {package: targets - {package} for package, targets in graph.items()}


def shown(graph: dict[str, set[str]]) -> str:
    """The graph as text, from the lowest package to the highest."""

    def rank(name: str) -> tuple[int, str]:
        return RANK.get(name, len(LAYERS)), name

    lines = [
        f"  {name} -> {', '.join(sorted(graph[name], key=rank)) or '(nothing)'}" for name in sorted(graph, key=rank)
    ]
    return "The import graph:\n" + "\n".join(lines)


def against_the_order(imports: Iterable[Import]) -> list[Import]:
    found = []
    for entry in own(imports):
        source, target = package_of(entry.source), package_of(entry.target)
        if source == target or (entry.source, entry.target) in ALLOWED:
            continue
        both_helpers = source in HELPERS and target in HELPERS
        if RANK[target] >= RANK[source] and not both_helpers:
            found.append(entry)
    return found


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of one cycle, in order; nothing if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {package_of(module_name(path, ROOT)) for path in ROOT.rglob("*.py")}
    assert packages <= RANK.keys(), "give each new package or module at the top its place in LAYERS"


def test_imports_follow_the_order() -> None:
    imports = read_imports()
    found = against_the_order(imports)
    listed = "\n".join(f"  {entry}" for entry in found)
    assert not found, f"imports against the order:\n{listed}\n{shown(package_graph(imports))}"


def test_packages_have_no_cycle() -> None:
    kept = [entry for entry in read_imports() if (entry.source, entry.target) not in ALLOWED]
    graph = package_graph(kept)
    cycle = cycle_in(graph)
    assert not cycle, f"a cycle of packages: {' -> '.join(cycle)}\n{shown(graph)}"


def test_modules_have_no_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for entry in own(read_imports()):
        if entry.source != entry.target:
            graph.setdefault(entry.source, set()).add(entry.target)
    cycle = cycle_in(graph)
    assert not cycle, f"a cycle of modules: {' -> '.join(cycle)}"


def test_allowed_imports_still_exist() -> None:
    existing = {(entry.source, entry.target) for entry in read_imports()}
    assert existing >= ALLOWED, "remove from ALLOWED what nobody imports any more"


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_heavy_library_is_imported_in_one_package_only(library: str) -> None:
    found = [
        e for e in read_imports() if e.target.split(".")[0] == library and package_of(e.source) != ONLY_IN[library]
    ]
    assert not found, "\n".join(map(str, found))


def test_the_checks_find_what_they_look_for(tmp_path: Path) -> None:
    """A small package with every kind of import that must be found."""
    files = {
        "__init__.py": "",
        "errors.py": "",
        "stein/__init__.py": "from fedstein import errors\n",
        "models/__init__.py": "def f():\n    from ..data import shard\n",
        "data/__init__.py": "",
        "data/shard.py": "import importlib\nimportlib.import_module('fedstein.models')\n",
        "runs/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fedstein.cli\n",
        "cli/__init__.py": "from fedstein import __version__\nfrom fedstein.runs import nothing\n",
    }
    for name, text in files.items():
        path = tmp_path / "fedstein" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    imports = read_imports(tmp_path / "fedstein")
    found = {(entry.source, entry.target) for entry in against_the_order(imports)}
    assert found == {
        ("fedstein.models", "fedstein.data.shard"),
        ("fedstein.data.shard", "fedstein.models"),
        ("fedstein.runs", "fedstein.cli"),
    }
    graph = package_graph(imports)
    assert set(cycle_in(graph)) in ({"models", "data"}, {"runs", "cli"})
    assert "cli -> runs" in shown(graph)
