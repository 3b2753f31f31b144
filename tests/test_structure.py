"""The shape of the package, which may only improve: few files, few reasons to look into another.

A figure that became smaller is written down here, so that it stays so.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "mcp_django"
ROOT = Path(__file__).resolve().parents[1]

FIGURES = {
    # Python files, without migrations.
    "files": 285,
    # Modules of the package that a function imports when it runs.
    "imports inside functions": 30,
    # Names that two modules have; so does an __init__ with more than an export.
    "module names used twice": 24,
    # Names that two classes have, nested ones such as Meta too; a Call is a request and its row.
    "class names used twice": 12,
    # Modules that one module of the same folder imports, and nothing else.
    "modules with one importer in their folder": 20,
    # Modules that import each other at import time, through others or not.
    "modules in import cycles": 0,
}
LONG_INIT = 60


@cache
def modules() -> dict[str, ast.Module]:
    """The modules of the package, by their dotted names."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "migrations" not in parts:
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text())
    return found


def is_package(name: str) -> bool:
    return (ROOT.joinpath(*name.split(".")) / "__init__.py").exists()


def imported(node: ast.AST) -> set[str]:
    """The modules of the package that an import statement names."""
    if not isinstance(node, ast.ImportFrom) or not node.module:
        return set()
    inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules().keys()
    # What is imported of a package itself, and not of a module in it.
    own = {node.module} if len(inner) < len(node.names) else set()
    return inner | (own & modules().keys())


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, without those for type checkers."""
    for one in body:
        if isinstance(one, ast.If):
            is_checking = ast.unparse(one.test) == "TYPE_CHECKING"
            yield from at_import(one.orelse if is_checking else [*one.body, *one.orelse])
        elif isinstance(one, ast.Try | ast.With):
            yield from at_import(one.body)
        else:
            yield one


def inside_functions() -> int:
    count = 0
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for tree in modules().values():
        for function in ast.walk(tree):
            if not isinstance(function, functions):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    count += (node.module or "").startswith(PACKAGE)
                elif isinstance(node, ast.Call):
                    # The same by another name.
                    count += "import_module" in ast.dump(node.func)
    return count


def names_used_twice() -> int:
    names: Counter[str] = Counter()
    for name, tree in modules().items():
        is_long = sum(1 for _ in ast.walk(tree) if isinstance(_, ast.stmt)) > LONG_INIT
        if not is_package(name) or is_long:
            names[name.rpartition(".")[2]] += 1
    return sum(count > 1 for count in names.values())


def classes_used_twice() -> int:
    nodes = (node for tree in modules().values() for node in ast.walk(tree))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    return sum(count > 1 for count in names.values())


def with_one_importer() -> int:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            for one in imported(node):
                importers[one].add(name)
    folders = [
        (name.rpartition(".")[0], next(iter(importers[name])).rpartition(".")[0])
        for name in modules()
        if len(importers[name]) == 1 and not is_package(name)
    ]
    return sum(own == other for own, other in folders)


def in_cycles() -> int:
    graph = {
        name: {one for node in at_import(tree.body) for one in imported(node)} - {name}
        for name, tree in modules().items()
    }
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen, todo = set(), [name]
        while todo:
            for one in graph[todo.pop()] - seen:
                seen.add(one)
                todo.append(one)
        reached[name] = seen
    return sum(name in found for name, found in reached.items())


COUNTED = {
    "files": lambda: len(modules()),
    "imports inside functions": inside_functions,
    "module names used twice": names_used_twice,
    "class names used twice": classes_used_twice,
    "modules with one importer in their folder": with_one_importer,
    "modules in import cycles": in_cycles,
}


@pytest.mark.parametrize("figure", FIGURES)
def test_the_shape_only_improves(figure: str) -> None:
    found, written = COUNTED[figure](), FIGURES[figure]
    assert found <= written, f"{figure}: {found}, which were {written}; see ARCHITECTURE.md."
    assert found == written, f"{figure}: {found} now; write that down here, so that it stays so."
