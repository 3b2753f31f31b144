"""The shape of the package, which may only improve: few files, few reasons to look into another.

A figure that became smaller is written down here, so that it stays so.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = "mcp_django"
ROOT = Path(__file__).resolve().parents[2]

FIGURES = {
    # Python files, without migrations.
    "files": 304,
    # Modules of the package that a function imports when it runs.
    "imports inside functions": 28,
    # Names that two modules have; so does an __init__ with more than an export.
    "module names used twice": 24,
    # Names that two classes have, nested ones such as Meta too; a Call is a request and its row.
    "class names used twice": 13,
    # Modules that one module of the same folder imports, and nothing else.
    "modules with one importer in their folder": 25,
    # Modules that import each other at import time, through others or not.
    "modules in import cycles": 0,
    # Modules of one folder that import each other, for types too and through others of it or not.
    "modules in cycles inside a folder": 0,
    # What a call needs in order to run: the most modules of execution/ that import each other in a
    # row, for types too.
    "longest chain of imports in execution": 9,
    # Private functions that the package names once, per thousand functions.
    "helpers with one use, per thousand": 84,
    # Lines of dashes between the subjects of a file.
    "section banners": 162,
    # Variables and parameters whose name says nothing of what they hold, of fields of records too.
    "pronouns": 2,
}
LONG_INIT = 60
PRONOUNS = {"one", "found", "said", "told", "asked"}
BANNER = re.compile(r"^ *# .*-{20,}\s*$", re.MULTILINE)


class Package:
    """The modules of the package, each of which is parsed and searched once for all figures."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.trees: dict[str, ast.Module] = {}
        # The nodes of each module by their types.
        self.nodes: dict[str, dict[type[ast.AST], list[Any]]] = {}
        for path in sorted((ROOT / PACKAGE).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            self.texts.append(text := path.read_text())
            if "migrations" not in parts:
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self.trees[name] = tree = ast.parse(text)
                self.nodes[name] = by_type = defaultdict(list)
                for node in ast.walk(tree):
                    by_type[type(node)].append(node)

    def every(self, *kinds: type[ast.AST]) -> Iterator[Any]:
        """The nodes of some types in all modules."""
        for by_type in self.nodes.values():
            for kind in kinds:
                yield from by_type[kind]

    def imported(self, node: ast.AST) -> set[str]:
        """The modules of the package that an import statement names."""
        if not isinstance(node, ast.ImportFrom) or not node.module:
            return set()
        inner = {f"{node.module}.{alias.name}" for alias in node.names} & self.trees.keys()
        # What is imported of a package itself, and not of a module in it.
        own = {node.module} if len(inner) < len(node.names) else set()
        return inner | (own & self.trees.keys())

    def imported_anywhere(self, name: str) -> set[str]:
        """The modules of the package that a module imports, at any time and for types."""
        return {inner for node in self.nodes[name][ast.ImportFrom] for inner in self.imported(node)}


def is_package(name: str) -> bool:
    return (ROOT.joinpath(*name.split(".")) / "__init__.py").exists()


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, without those for type checkers."""
    for statement in body:
        if isinstance(statement, ast.If):
            is_checking = ast.unparse(statement.test) == "TYPE_CHECKING"
            yield from at_import(
                statement.orelse if is_checking else [*statement.body, *statement.orelse]
            )
        elif isinstance(statement, ast.Try | ast.With):
            yield from at_import(statement.body)
        else:
            yield statement


def inside_functions(package: Package) -> int:
    count = 0
    for by_type in package.nodes.values():
        imports = [
            *(node for node in by_type[ast.ImportFrom] if (node.module or "").startswith(PACKAGE)),
            # The same by another name.
            *(node for node in by_type[ast.Call] if "import_module" in called_name(node)),
        ]
        functions = [*by_type[ast.FunctionDef], *by_type[ast.AsyncFunctionDef]]
        count += sum(
            function.lineno <= node.lineno <= function.end_lineno
            for node in imports
            for function in functions
        )
    return count


def called_name(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def names_used_twice(package: Package) -> int:
    names: Counter[str] = Counter()
    for name, by_type in package.nodes.items():
        statements = sum(
            len(nodes) for kind, nodes in by_type.items() if issubclass(kind, ast.stmt)
        )
        if not is_package(name) or statements > LONG_INIT:
            names[name.rpartition(".")[2]] += 1
    return sum(count > 1 for count in names.values())


def classes_used_twice(package: Package) -> int:
    names = Counter(node.name for node in package.every(ast.ClassDef))
    return sum(count > 1 for count in names.values())


def with_one_importer(package: Package) -> int:
    importers: dict[str, set[str]] = defaultdict(set)
    for name in package.trees:
        for inner in package.imported_anywhere(name):
            importers[inner].add(name)
    folders = [
        (name.rpartition(".")[0], next(iter(importers[name])).rpartition(".")[0])
        for name in package.trees
        if len(importers[name]) == 1 and not is_package(name)
    ]
    return sum(own == other for own, other in folders)


def in_cycles(package: Package) -> int:
    return count_in_cycles(
        {
            name: {inner for node in at_import(tree.body) for inner in package.imported(node)}
            - {name}
            for name, tree in package.trees.items()
        }
    )


def in_cycles_inside_a_folder(package: Package) -> int:
    graph = {}
    for name in package.trees:
        wanted = package.imported_anywhere(name) - {name}
        folder = name.rpartition(".")[0]
        graph[name] = {inner for inner in wanted if inner.rpartition(".")[0] == folder != PACKAGE}
    return count_in_cycles(graph)


def longest_chain(package: Package) -> int:
    inside = f"{PACKAGE}.execution."
    lengths: dict[str, int] = {}

    def length(name: str) -> int:
        if name not in lengths:
            inner = package.imported_anywhere(name) - {name}
            lengths[name] = 1 + max(
                (length(imported) for imported in inner if imported in within), default=0
            )
        return lengths[name]

    # None of them imports itself through others: see the figure before.
    within = {name for name in package.trees if name.startswith(inside)}
    return max(map(length, within))


def count_in_cycles(graph: dict[str, set[str]]) -> int:
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen, todo = set(), [name]
        while todo:
            for module in graph[todo.pop()] - seen:
                seen.add(module)
                todo.append(module)
        reached[name] = seen
    return sum(name in modules for name, modules in reached.items())


def helpers_with_one_use(package: Package) -> int:
    functions = [node.name for node in package.every(ast.FunctionDef, ast.AsyncFunctionDef)]
    private = Counter(name for name in functions if name.startswith("_") and name[1:2] != "_")
    uses = Counter(node.id for node in package.every(ast.Name))
    uses.update(node.attr for node in package.every(ast.Attribute))
    once = sum(count == 1 and uses[name] == 1 for name, count in private.items())
    return round(1000 * once / len(functions))


def banners(package: Package) -> int:
    return sum(len(BANNER.findall(text)) for text in package.texts)


def pronouns(package: Package) -> int:
    names = [node.id for node in package.every(ast.Name)]
    names += [node.arg for node in package.every(ast.arg)]
    return sum(name in PRONOUNS for name in names)


COUNTED = {
    "files": lambda package: len(package.trees),
    "imports inside functions": inside_functions,
    "module names used twice": names_used_twice,
    "class names used twice": classes_used_twice,
    "modules with one importer in their folder": with_one_importer,
    "modules in import cycles": in_cycles,
    "modules in cycles inside a folder": in_cycles_inside_a_folder,
    "longest chain of imports in execution": longest_chain,
    "helpers with one use, per thousand": helpers_with_one_use,
    "section banners": banners,
    "pronouns": pronouns,
}


def test_the_shape_only_improves():
    package = Package()
    counted = {figure: COUNTED[figure](package) for figure in FIGURES}
    for figure, written in FIGURES.items():
        count = counted[figure]
        assert count <= written, f"{figure}: {count}, which were {written}; see ARCHITECTURE.md."
        assert count >= written, (
            f"{figure}: {count} now; write that down here, so that it stays so."
        )
