"""Moves and merges modules by a table, and everything that names them.

    tools/move.py check               each module of the tree once in moves.txt
    tools/move.py plan STEP           what stands in the way of a step, and what will be renamed
    tools/move.py run STEP            do it; then ruff sorts and formats

A row of ``moves.txt`` is ``new < old old …``: the new module's parts, of which the first is what it
is about. Their order in the file is that of the row, as far as what runs at import allows it.
What a merged file says of itself, and over each of its parts, is in ``words/``; the layers after a
step are in ``layers/``.
``rename OLD.name new`` gives a name of an old module another, everywhere; private names that clash
are prefixed with their module's name unasked. Everything else that would change its meaning is
refused: a public clash, a name that a local variable hides, a module that is used as a value by
one that it becomes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from scopes import Scope, Use, resolve

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "mcp_django"
TABLE = ROOT / "tools" / "moves.txt"
WORDS = ROOT / "tools" / "words"
CODE = (PACKAGE, "tests", "demo_project", "benchmarks", "docs", "manage.py")
TEXTS = ("*.md", "*.toml", "*.sh", "*.html", "*.cfg", "*.ini", "*.txt", "*.rst", "*.yml", "*.json")
SAME_IF_EQUAL = re.compile(
    r"getLogger\(|TypeVar\(|ParamSpec\("
    r"|^\w+ = ([-\"'\d(]|(Mapping|dict|list|tuple)\[|Call\.Outcome$)"
)
WIDTH = 98
TRANSLATION = "django.utils.translation"


class Refused(Exception):
    """What the table does not say how to do."""


# The table.


@dataclass
class Table:
    rows: dict[str, dict[str, list[str]]]  # step: new: [old]
    renames: dict[str, dict[str, str]]  # old: name: new name

    @classmethod
    def read(cls) -> Table:
        rows: dict[str, dict[str, list[str]]] = {}
        renames: dict[str, dict[str, str]] = defaultdict(dict)
        step = ""
        for number, line in enumerate(TABLE.read_text().splitlines(), 1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            if text.startswith("["):
                step = text.strip("[]")
                rows[step] = {}
            elif text.startswith("rename "):
                _, what, name = text.split()
                module, _, old = what.rpartition(".")
                renames[dotted(module)][old] = name
            elif "<" in text:
                new, _, old = text.partition("<")
                rows[step][dotted(new.strip())] = [dotted(one) for one in old.split()]
            else:
                raise Refused(f"{TABLE.name}:{number}: {line!r} is not a row")
        return cls(rows, renames)


def dotted(path: str) -> str:
    parts = [PACKAGE, *path.split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        relative = path.relative_to(ROOT).with_suffix("")
        if "migrations" in relative.parts:
            continue
        parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
        found[".".join(parts)] = path
    return found


# One file.


@dataclass
class File:
    path: Path
    name: str = ""  # its dotted name, if it is of the package

    @cached_property
    def source(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def found(self):
        return resolve(self.tree, self.source)

    @cached_property
    def starts(self) -> list[int]:
        starts, at = [0], 0
        for line in self.source.splitlines(keepends=True):
            at += len(line)
            starts.append(at)
        return starts

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    @cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        return [one for one in ast.walk(self.tree) if isinstance(one, ast.Import | ast.ImportFrom)]

    @cached_property
    def exported(self) -> dict[str, ast.Constant]:
        for one in self.tree.body:
            if isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == "__all__":
                return {name.value: name for name in one.value.elts}
        return {}

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """What the module itself binds, beside imports."""
        found: dict[str, ast.stmt] = {}
        for statement in self._statements(self.tree.body):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[statement.name] = statement
                continue
            for one in ast.walk(statement):
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                    scope = next((u.home for u in self.found.uses if u.node is one), None)
                    if scope is self.found.module:
                        found.setdefault(one.id, statement)
        return found

    @classmethod
    def _statements(cls, body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
        for one in body:
            if isinstance(one, ast.If | ast.Try | ast.With):
                for part in ("body", "orelse", "finalbody"):
                    yield from cls._statements(getattr(one, part, []))
                for handler in getattr(one, "handlers", []):
                    yield from cls._statements(handler.body)
            else:
                yield one

    @cached_property
    def imported_at_runtime(self) -> dict[str, tuple[str, str]]:
        checking = {
            alias.asname or alias.name
            for one in self.tree.body
            if is_type_checking(one)
            for inner in one.body
            if isinstance(inner, ast.ImportFrom)
            for alias in inner.names
        }
        return {name: what for name, what in self.imported.items() if name not in checking}

    @cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """Names that module-level imports bind: (module, name), or (module, "") for modules."""
        found: dict[str, tuple[str, str]] = {}
        for one in self._statements(self.tree.body):
            if isinstance(one, ast.ImportFrom) and one.module != "__future__":
                for alias in one.names:
                    found[alias.asname or alias.name] = (one.module or "", alias.name)
            elif isinstance(one, ast.Import):
                for alias in one.names:
                    found[alias.asname or alias.name.partition(".")[0]] = (alias.name, "")
        return found


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


# The plan of one step.


@dataclass
class Plan:
    rows: dict[str, list[str]]
    renames: dict[str, dict[str, str]]
    files: dict[str, File]
    target: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dropped: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for new, parts in self.rows.items():
            for old in parts:
                self.target[old] = new
        known = {old: dict(names) for old, names in self.renames.items() if old in self.target}
        self.renames = defaultdict(dict, known)
        for new, parts in self.rows.items():
            self._clashes(new, parts)

    def _clashes(self, new: str, parts: list[str]) -> None:
        """Give names that two parts bind one meaning, or note that they have two."""
        if len(parts) < 2:
            return
        owners: dict[str, list[tuple[str, object]]] = defaultdict(list)
        for old in parts:
            file = self.files[old]
            for name in file.definitions:
                if name == "__all__":
                    continue
                owners[self.renames[old].get(name, name)].append((old, file.definitions[name]))
            for name, (module, original) in file.imported.items():
                if name in file.definitions:
                    continue
                if module in self.target and self.target[module] == new:
                    continue
                inner = f"{module}.{original}"
                if original and self.target.get(inner) == new:
                    continue
                home = self.new_home(module, original)
                # What is renamed at home is renamed where it is imported, too.
                shown = (
                    home[1] if original == name and f"{module}.{name}" not in self.target else name
                )
                shown = self.renames[old].get(name, shown)
                owners[shown].append((old, ("import", *home)))
        for name, several in owners.items():
            self._settle(new, name, several)
        for old in parts:
            builtin = {use.name for use in self.files[old].found.uses if use.home is None}
            for name in builtin & owners.keys():
                self.problems.append(f"{new}: {old} reads {name}, which is {owners[name][0][0]}'s")

    def _settle(self, new: str, name: str, several: list[tuple[str, object]]) -> None:
        kinds = [what for _, what in several]
        if len(several) < 2 or all(what == kinds[0] for what in kinds[1:]):
            return
        if all(isinstance(what, ast.stmt) for what in kinds):
            texts = {ast.unparse(what) for what in kinds}
            if len(texts) == 1 and SAME_IF_EQUAL.search(next(iter(texts))):
                for old, _ in several[1:]:
                    self.dropped[old].add(name)
                return
            if name.startswith("_"):
                for old, _ in several[1:]:
                    part = old.rpartition(".")[2]
                    prefixed = f"_{part.upper() if name.isupper() else part}{name}"
                    self.renames[old][name] = prefixed
                    self.notes.append(f"{new}: {old}.{name} becomes {prefixed}")
                return
        if all(isinstance(what, tuple) and what[1] == TRANSLATION for what in kinds):
            # `_` is what most of them mean; the others say their function's name.
            for old, what in several:
                if what[2] == "gettext":
                    self.renames[old]["_"] = "gettext"
            return
        told = ", ".join(
            f"{old} ({'defines' if isinstance(what, ast.stmt) else ' '.join(map(str, what))})"
            for old, what in several
        )
        self.problems.append(f"{new}: {name} is {told}")

    def new_home(self, module: str, name: str) -> tuple[str, str]:
        """Where a name is imported from afterwards, and what it is called there."""
        inner = f"{module}.{name}" if name else module
        if inner in self.target:
            package, _, last = self.target[inner].rpartition(".")
            return (package, last) if name else (self.target[inner], "")
        module, name = self.origin(module, name)
        return self.target.get(module, module), self.renames[module].get(name, name)

    def origin(self, module: str, name: str) -> tuple[str, str]:
        """The module that defines a name, where one of a merged group merely passes it on."""
        while True:
            new = self.target.get(module)
            if new is None or len(self.rows[new]) == 1:
                return module, name
            file = self.files[module]
            if name in file.definitions or name not in file.imported:
                return module, name
            source, original = file.imported[name]
            if not source.startswith(PACKAGE) or f"{source}.{original}" in self.files:
                return module, name
            module, name = source, original

    def seen_renames(self, module: str) -> dict[str, str]:
        """The names in a module that are other ones afterwards, those it imports among them."""
        found = dict(self.renames.get(module, {}))
        for bound, (source, original) in self.files[module].imported.items():
            if source not in self.target or f"{source}.{original}" in self.target:
                continue
            home, name = self.new_home(source, original)
            if name != bound and (bound == original or home == self.target[module]):
                found.setdefault(bound, name)
        return found

    def module_within(self, module: str, name: str) -> str:
        """What a module that another one imports is called there afterwards."""
        file = self.files[module]
        if name in file.definitions or name not in file.imported:
            return ""
        source, original = file.imported[name]
        inner = f"{source}.{original}"
        return self.target[inner].rpartition(".")[2] if inner in self.target else ""


@dataclass
class Edits:
    file: File
    found: list[tuple[int, int, bytes]] = field(default_factory=list)

    def add(self, start: int, end: int, text: str) -> None:
        self.found.append((start, end, text.encode()))

    def covers(self, start: int, end: int) -> bool:
        return any(a < end and start < b for a, b, _ in self.found)

    def apply(self, source: bytes, *, start: int = 0, end: int | None = None) -> bytes:
        out, at = [], start
        stop = len(source) if end is None else end
        for a, b, text in sorted(set(self.found)):
            if a < start or b > stop:
                continue
            if a < at:
                raise Refused(f"{self.file.path}: two edits of one place, {source[a:b]!r}")
            out += [source[at:a], text]
            at = b
        return b"".join([*out, source[at:stop]])


@dataclass(frozen=True)
class Line:
    """One imported name."""

    module: str
    name: str  # "" for "import module"
    alias: str
    comment: str = ""

    def __str__(self) -> str:
        alias = f" as {self.alias}" if self.alias else ""
        if not self.name:
            return f"import {self.module}{alias}{self.comment}"
        return f"from {self.module} import {self.name}{alias}{self.comment}"


class Rewriter:
    """What becomes of one file."""

    def __init__(self, plan: Plan, file: File) -> None:
        self.plan, self.file = plan, file
        self.group = plan.target.get(file.name, "")
        self.merged = len(plan.rows.get(self.group, ())) > 1
        self.edits = Edits(file)
        self.runtime: list[Line] = []
        self.checking: list[Line] = []
        self.checking_other: list[str] = []
        self.by_home: dict[tuple[Scope, str], list[Use]] = defaultdict(list)
        for use in file.found.uses:
            home = use.home
            if home is not None:
                self.by_home[home, use.name].append(use)
        self.exported: set[str] = set()

    def run(self) -> None:
        own = self.plan.renames.get(self.file.name, {})
        module = self.file.found.module
        for name, new in own.items():
            if name in self.file.definitions or name in self.file.imported:
                self._rename(module, name, new)
                if name in self.file.imported and name not in self.file.definitions:
                    self.plan.notes.append(f"{self.file.name}: imported {name} becomes {new}")
        for statement in self.file.imports:
            self._import(statement)
        self._strings()
        self._dotted()

    # Names.

    def _rename(self, home: Scope, name: str, new: str) -> None:
        if name == new:
            return
        for use in self.by_home[home, name]:
            self._replace(use, home, new)
        if home is self.file.found.module and not self.merged:
            self._export(name, new)

    def _export(self, name: str, new: str) -> None:
        """Say the new name in ``__all__``, once."""
        nodes = self.file.exported
        if name not in nodes:
            return
        start, end = self.file.span(nodes.pop(name))
        if new in nodes or new in self.exported:
            rest = self.file.source[end:]
            self.edits.add(start, end + len(rest) - len(rest.lstrip(b", \n")), "")
        else:
            self.exported.add(new)
            self.edits.add(start, end, f'"{new}"')

    def _replace(self, use: Use, home: Scope | None, new: str) -> None:
        for scope in use.scope.path_to(home):
            if new in scope.bound and (scope is use.scope or not scope.is_class):
                self._problem(use.line, f"{use.name} cannot become {new}: a local variable has it")
        start = self.file.offset(use.line, use.column)
        self.edits.add(start, start + len(use.name.encode()), new)

    def _problem(self, line: int, text: str) -> None:
        path = self.file.path.relative_to(ROOT)
        self.plan.problems.append(f"{path}:{line}: {text}")

    # Imports.

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            if self.merged:
                self._remove(statement)
            return
        scope = self._scope_of(statement)
        lines: list[Line] = []
        touched = False
        for alias in statement.names:
            line, changed = self._alias(statement, alias, scope)
            touched |= changed
            if line:
                lines.append(line)
        parent = self.file.found.parents.get(statement)
        if self.merged and isinstance(parent, ast.Module):
            self.runtime += self._commented(statement, lines)
            self._remove(statement)
        elif self.merged and parent is not None and is_type_checking(parent) and not parent.orelse:
            self.checking += lines
        elif touched:
            start, end = self.file.span(statement)
            if not lines:
                self._remove(statement)
                return
            indent = "\n" + " " * statement.col_offset
            self.edits.add(start, end, indent.join(map(str, _joined(lines))))

    def _commented(self, statement: ast.stmt, lines: list[Line]) -> list[Line]:
        end = self.file.span(statement)[1]
        rest = self.file.source[end : self.file.source.index(b"\n", end)].decode().strip()
        if not rest:
            return lines
        return [Line(one.module, one.name, one.alias, f"  {rest}") for one in lines]

    def _remove(self, statement: ast.stmt) -> None:
        start, end = self.file.span(statement)
        start = self.file.source.rfind(b"\n", 0, start) + 1
        end = self.file.source.find(b"\n", end) + 1 or len(self.file.source)
        parent = self.file.found.parents.get(statement)
        for part in ("body", "orelse"):
            if getattr(parent, part, None) == [statement] and not isinstance(parent, ast.Module):
                self._problem(statement.lineno, "nothing is left of the block")
        self.edits.add(start, end, "")

    def _scope_of(self, statement: ast.stmt) -> Scope:
        node: ast.AST | None = statement
        while node is not None:
            node = self.file.found.parents.get(node)
            if node in self.file.found.scopes:
                return self.file.found.scopes[node]
        return self.file.found.module

    def _alias(
        self, statement: ast.Import | ast.ImportFrom, alias: ast.alias, scope: Scope
    ) -> tuple[Line | None, bool]:
        plan = self.plan
        if isinstance(statement, ast.Import):
            new = plan.target.get(alias.name, alias.name)
            # Its uses are whole paths, which are rewritten as such.
            return Line(new, "", alias.asname or ""), new != alias.name
        module, name = statement.module or "", alias.name
        bound = alias.asname or name
        inner = f"{module}.{name}"
        if inner in plan.target:
            return self._module(statement, inner, bound, alias, scope)
        if module not in plan.target and module not in plan.files:
            new = plan.renames.get(self.file.name, {}).get(bound)
            if new and scope is self.file.found.module:
                return Line(module, name, "" if new == name else new), True
            return Line(module, name, alias.asname or ""), False
        new_module, new_name = plan.new_home(module, name)
        if self.group and new_module == self.group:
            # It is at home now.
            if bound != new_name:
                self._rename(scope, bound, new_name)
            else:
                self._check_global(scope, bound)
            return None, True
        renamed_here = plan.renames.get(self.file.name, {}).get(bound)
        if renamed_here and scope is self.file.found.module:
            # The uses are renamed already.
            return Line(
                new_module, new_name, renamed_here if renamed_here != new_name else ""
            ), True
        if alias.asname:
            return Line(new_module, new_name, "" if bound == new_name else bound), (
                (new_module, new_name) != (module, name)
            )
        if new_name != bound:
            if self._is_free(scope, bound, new_name):
                self._rename(scope, bound, new_name)
                return Line(new_module, new_name, ""), True
            return Line(new_module, new_name, bound), True
        return Line(new_module, new_name, ""), new_module != module

    def _check_global(self, scope: Scope, bound: str) -> None:
        """A function's own import of what is in its file now: nothing may stand between."""
        if scope is self.file.found.module:
            return
        for use in self.by_home[scope, bound]:
            for one in use.scope.path_to(scope):
                if bound in one.bound:
                    self._problem(use.line, f"{bound} is hidden by a local variable")

    def _is_free(self, scope: Scope, old: str, new: str) -> bool:
        """Whether uses of a binding can take another name without meaning something else."""
        if new in scope.bound or new in dir(__builtins__):
            return False
        for use in self.by_home[scope, old]:
            if any(new in one.bound for one in use.scope.path_to(scope)):
                return False
        # Nothing that is read below may be caught by the new name.
        return not any(
            use.name == new
            and scope in {use.scope, *use.scope.path_to(None)}
            and use.home is not scope
            and use.home not in set(use.scope.path_to(scope))
            for use in self.file.found.uses
        )

    def _module(
        self,
        statement: ast.ImportFrom,
        old: str,
        bound: str,
        alias: ast.alias,
        scope: Scope,
    ) -> tuple[Line | None, bool]:
        plan = self.plan
        new = plan.target[old]
        package, _, last = new.rpartition(".")
        uses = self.by_home[scope, bound]
        if self.group == new and self.merged:
            for use in uses:
                self._at_home(use, old)
            return None, True
        for use in uses:
            self._attribute(use, old)
        kept = alias.asname or plan.renames.get(self.file.name, {}).get(bound)
        if kept:
            if not alias.asname or kept == bound:
                return Line(package, last, kept if kept != last else ""), True
            return Line(package, last, bound if bound != last else ""), True
        if last == bound:
            return Line(package, last, ""), f"{package}.{last}" != old
        if self._is_the_same(scope, last, new) or (
            self._is_free(scope, bound, last) and self._fits_group(scope, last, new)
        ):
            self._rename(scope, bound, last)
            return Line(package, last, ""), True
        plan.notes.append(f"{self.file.path.relative_to(ROOT)}: {new} stays {bound}")
        return Line(package, last, bound), True

    def _is_the_same(self, scope: Scope, name: str, module: str) -> bool:
        """Whether a file imports another part of the same new module under the new name."""
        if scope is not self.file.found.module or name not in self.file.imported:
            return False
        source, original = self.file.imported[name]
        inner = f"{source}.{original}"
        return self.plan.target.get(inner, inner) == module

    def _fits_group(self, scope: Scope, name: str, module: str) -> bool:
        """Whether a module's new name is not one of the merged file's own."""
        if not self.merged:
            return True
        for part in self.plan.rows[self.group]:
            file = self.plan.files[part]
            if self.plan.renames[part].get(name, name) == name and name in file.definitions:
                return False
            if name in file.imported and part != self.file.name:
                source, original = file.imported[name]
                package, _, last = module.rpartition(".")
                if self.plan.new_home(source, original) != (package, last):
                    return False
        return True

    def _attribute(self, use: Use, old: str) -> None:
        """Rename what is read of a module."""
        parent = self.file.found.parents.get(use.node)
        renames = self.plan.seen_renames(old)
        if isinstance(parent, ast.Attribute) and parent.value is use.node:
            home, name = self.plan.origin(old, parent.attr)
            passed_on = self.plan.module_within(old, parent.attr)
            if passed_on or parent.attr in renames:
                home, name = old, passed_on or renames[parent.attr]
            if self.plan.target.get(home) != self.plan.target[old]:
                if home != old and self.file.name:
                    self._problem(use.line, f"{old}.{parent.attr} is at home in {home}")
                elif home != old:
                    self.plan.notes.append(
                        f"{self.file.path.relative_to(ROOT)}:{use.line}: {old}.{parent.attr} is at"
                        f" home in {home}"
                    )
                return
            name = self.plan.renames[home].get(name, name)
            if name != parent.attr:
                end = self.file.span(parent)[1]
                self.edits.add(end - len(parent.attr.encode()), end, name)
        elif isinstance(parent, ast.Call) and renames:
            for one in parent.args:
                if isinstance(one, ast.Constant) and one.value in renames:
                    start, end = self.file.span(one)
                    self.edits.add(start, end, f'"{renames[one.value]}"')

    def _at_home(self, use: Use, old: str) -> None:
        """``module.name`` in what becomes that module: the name alone."""
        parent = self.file.found.parents.get(use.node)
        if not (isinstance(parent, ast.Attribute) and parent.value is use.node):
            self._problem(use.line, f"{use.name} is used as a value, and becomes this very module")
            return
        home, name = self.plan.origin(old, parent.attr)
        if self.plan.target.get(home) != self.group:
            # Passed on from elsewhere: take it from there.
            self._problem(use.line, f"{use.name}.{parent.attr} is not of this module")
            return
        name = self.plan.renames[home].get(name, name)
        for scope in use.scope.path_to(self.file.found.module):
            if name in scope.bound and (scope is use.scope or not scope.is_class):
                self._problem(use.line, f"{use.name}.{name} is hidden by a local variable")
        if isinstance(parent.ctx, ast.Store):
            self._problem(use.line, f"{use.name}.{name} is set from outside")
        start, end = self.file.span(parent)
        self.edits.add(start, end, name)

    # Text.

    def _strings(self) -> None:
        """Quoted annotations name what the code names."""
        renames = dict(self.plan.renames.get(self.file.name, {}))
        if not renames:
            return
        for node in ast.walk(self.file.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = set(re.findall(r"\w+", node.value)) & set(renames)
                if words and re.fullmatch(r"[\w.\[\], |]+", node.value):
                    self.plan.notes.append(
                        f"{self.file.path.relative_to(ROOT)}:{node.lineno}: look at {node.value!r}"
                    )

    def _dotted(self) -> None:
        """Whole paths in strings, comments and after ``import``."""
        for start, end, text in dotted_edits(self.plan, self.file.source.decode()):
            if not self.edits.covers(start, end):
                self.edits.add(start, end, text)


PATH = re.compile(rf"(?<![\w./-]){PACKAGE}((?:\.\w+)+)")
SLASHED = re.compile(rf"(?<![\w./-]){PACKAGE}((?:/\w+)+)(?:(\.py)\b|(?!\w|[/.]\w))")


def dotted_edits(plan: Plan, text: str) -> Iterator[tuple[int, int, str]]:
    """Byte offsets of whole paths in a text, and what they become."""
    for pattern, separator in ((PATH, "."), (SLASHED, "/")):
        for match in pattern.finditer(text):
            parts = match.group(1).strip(separator).split(separator)
            new = _moved(plan, parts, separator)
            if new is None:
                continue
            whole = match.group(0)
            suffix = (match.group(2) or "") if separator == "/" else ""
            result = separator.join([PACKAGE, *new]) + suffix
            if separator == "/" and not suffix and result != whole:
                plan.notes.append(f"path {whole} becomes {result}")
            if result != whole:
                start = len(text[: match.start()].encode())
                yield start, start + len(whole.encode()), result


NAMED = re.compile(r"`((?:\w+/)*\w+)\.py`")


def named_edits(plan: Plan, text: str) -> Iterator[tuple[int, int, str]]:
    """Files that a page of ours names from the package, or by their names alone."""
    by_name = defaultdict(set)
    for old in plan.files:
        by_name[old.rpartition(".")[2]].add(old)
    for match in NAMED.finditer(text):
        path = match.group(1)
        old = ".".join([PACKAGE, *path.split("/")])
        olds = {old} if old in plan.files else by_name.get(path, set())
        if not olds & plan.target.keys():
            continue
        if len(olds) != 1:
            plan.notes.append(f"a page says {match.group(0)}, which is one of {len(olds)}")
            continue
        result = f"`{'/'.join(plan.target[olds.pop()].split('.')[1:])}.py`"
        if result != match.group(0):
            start = len(text[: match.start()].encode())
            yield start, start + len(match.group(0).encode()), result


def _moved(plan: Plan, parts: list[str], separator: str) -> list[str] | None:
    for length in range(len(parts), 0, -1):
        old = ".".join([PACKAGE, *parts[:length]])
        if old in plan.target:
            rest = parts[length:]
            home = old
            if rest and separator == ".":
                passed_on = plan.module_within(old, rest[0])
                if passed_on:
                    rest[0] = passed_on
                elif rest[0] not in plan.files[old].imported:
                    home, rest[0] = plan.origin(old, rest[0])
                    rest[0] = plan.renames[home].get(rest[0], rest[0])
            new = plan.target.get(home, home)
            return [*new.split(".")[1:], *rest]
    return None


def _joined(lines: list[Line]) -> list[str]:
    together: dict[str, list[str]] = {}
    out: list[str] = []
    for one in lines:
        if not one.name or one.comment:
            out.append(str(one))
            continue
        shown = f"{one.name} as {one.alias}" if one.alias else one.name
        together.setdefault(one.module, []).append(shown)
    out += [
        f"from {module} import {names[0]}"
        if len(names) == 1
        else f"from {module} import ({', '.join(names)})"
        for module, names in together.items()
    ]
    return out


# Putting a new module together.


def assemble(plan: Plan, new: str, parts: dict[str, Rewriter]) -> str:
    order = in_order(plan, new, list(parts))
    written = Words.read().get(new)
    first = plan.rows[new][0]
    runtime, checking, other, bodies = [], [], [], []
    doc = ast.get_docstring(plan.files[first].tree, clean=False) or ""
    if written:
        doc = written.doc + ("\n" if "\n" in written.doc else "")
    for old in order:
        writer = parts[old]
        runtime += writer.runtime
        checking += writer.checking
        body = body_of(plan, writer, other)
        told = ast.get_docstring(writer.file.tree, clean=False) or ""
        if not body and old != first:
            continue
        heading = written.parts.get(old, "") if written else told
        if old == first and bodies and written:
            # What it needs comes before it, under a heading that is over here.
            heading = new.rpartition(".")[2].replace("_", " ").capitalize()
        if heading and (old != first or bodies):
            body = f"{as_heading(heading) if written else as_comment(heading)}\n\n{body}"
        bodies.append(body)
    names = {(one.module, one.name, one.alias) for one in runtime}
    checking = [one for one in checking if (one.module, one.name, one.alias) not in names]
    lines = [f'"""{doc}"""', "", "from __future__ import annotations", ""]
    lines += dict.fromkeys(map(str, runtime))
    if checking or other:
        if not any(one.name == "TYPE_CHECKING" for one in runtime):
            lines.append("from typing import TYPE_CHECKING")
        lines += ["", "if TYPE_CHECKING:"]
        lines += [f"    {one}" for one in dict.fromkeys(map(str, checking))]
        lines += other
    return "\n".join(lines) + "\n\n\n" + "\n\n\n".join(bodies)


@dataclass
class Words:
    """What a merged module says of itself, and over each of its parts."""

    doc: str
    parts: dict[str, str]

    @classmethod
    @cache
    def read(cls) -> dict[str, Words]:
        found: dict[str, Words] = {}
        text = "\n".join(path.read_text() for path in sorted(WORDS.glob("*.txt")))
        for module in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
            head, *parts = re.split(r"^--- ", module, flags=re.MULTILINE)
            name, _, doc = head.partition("\n")
            said = {}
            for part in parts:
                old, _, text = part.partition("\n")
                said[dotted(old.strip())] = text.strip()
            found[dotted(name.strip())] = cls(doc.strip(), said)
        return found


def as_heading(text: str) -> str:
    """A rule with the name of what follows, and what else is to be said of it."""
    heading, _, rest = text.partition("\n")
    ruled = f"# {heading} ".ljust(100, "-")
    return f"{ruled}\n\n{as_comment(rest)}" if rest.strip() else ruled


def as_comment(text: str) -> str:
    """A docstring as a comment, in lines that are not too long."""
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        if any(len(line) > WIDTH for line in lines) and not any(line[:1] == " " for line in lines):
            lines = textwrap.wrap(" ".join(lines), WIDTH, break_long_words=False)
        paragraphs.append("\n".join(f"# {line}".rstrip() for line in lines))
    return "\n#\n".join(paragraphs)


def body_of(plan: Plan, writer: Rewriter, other: list[str]) -> str:
    """A part without docstring, imports and what another part says in the same words."""
    file, edits = writer.file, writer.edits
    start = 0
    for statement in file.tree.body:
        if (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and (statement is file.tree.body[0])
        ):
            start = file.span(statement)[1]
        elif is_type_checking(statement) and not statement.orelse:
            rest = [
                one for one in statement.body if not isinstance(one, ast.Import | ast.ImportFrom)
            ]
            for one in rest:
                a, b = file.span(one)
                other.append("    " + edits.apply(file.source, start=a, end=b).decode())
            a, b = file.span(statement)
            edits.found = [one for one in edits.found if not (a <= one[0] and one[1] <= b)]
            edits.add(a, b, "")
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            name = getattr(targets[0], "id", "")
            if name == "__all__" or name in plan.dropped[file.name]:
                a, b = file.span(statement)
                edits.found = [one for one in edits.found if not (a <= one[0] and one[1] <= b)]
                edits.add(a, b, "")
    return edits.apply(file.source, start=start).decode().strip("\n")


def in_order(plan: Plan, new: str, parts: list[str]) -> list[str]:
    """The parts in the order of the table, each after what it needs when it is imported."""
    needs = {old: import_time_needs(plan, old, new) for old in parts}
    as_imported = {old: imported_parts(plan, old, new) for old in parts}
    order: list[str] = []
    while len(order) < len(parts):
        for old in parts:
            if old not in order and needs[old] <= {*order, old}:
                order.append(old)
                break
        else:
            if needs is as_imported:
                raise Refused(f"{new}: {set(parts) - set(order)} import each other")
            # What may run at import goes round; what is imported first cannot.
            needs, order = as_imported, []
    return order


def imported_parts(plan: Plan, old: str, new: str) -> set[str]:
    found = set()
    for source, original in plan.files[old].imported_at_runtime.values():
        for one in (f"{source}.{original}", source):
            if plan.target.get(one) == new:
                found.add(one)
                break
    return found


def import_time_needs(plan: Plan, old: str, new: str) -> set[str]:
    """The parts of a new module that another part's import runs, or may run."""
    needed: set[str] = set()
    todo = [(old, name) for name in _run_at_import(plan.files[old].tree)]
    seen = set(todo)
    while todo:
        module, name = todo.pop()
        file = plan.files[module]
        if name in file.definitions:
            statement = file.definitions[name]
            more = [(module, one.id) for one in ast.walk(statement) if isinstance(one, ast.Name)]
        elif name in file.imported:
            source, original = file.imported[name]
            inner = f"{source}.{original}"
            if plan.target.get(inner) == new:
                needed.add(inner)
                more = [(inner, one) for one in plan.files[inner].definitions]
            elif plan.target.get(source) == new:
                needed.add(source)
                more = [(source, original)]
            else:
                more = []
        else:
            more = []
        for one in more:
            if one not in seen:
                seen.add(one)
                todo.append(one)
    return needed


def _run_at_import(tree: ast.Module) -> set[str]:
    found: set[str] = set()

    def look(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
                if one is not None:
                    look(one)
            return
        if isinstance(node, ast.Name):
            found.add(node.id)
        if is_type_checking(node):
            return
        for child in ast.iter_child_nodes(node):
            look(child)

    for statement in tree.body:
        look(statement)
    return found


# Doing it.


def code_files() -> list[File]:
    known = {path: name for name, path in modules().items()}
    found = []
    for top in CODE:
        path = ROOT / top
        paths = [path] if path.is_file() else sorted(path.rglob("*.py"))
        found += [
            File(one, known.get(one, ""))
            for one in paths
            if not {"node_modules", ".venv", "_build", "var"} & set(one.parts)
        ]
    return found


def text_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *TEXTS, ".ci/*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [ROOT / one for one in listed if not one.startswith(("tools/", "tests/published"))]


def make_plan(step: str) -> tuple[Plan, list[File]]:
    table = Table.read()
    files = code_files()
    by_name = {one.name: one for one in files if one.name}
    rows = table.rows[step]
    missing = [old for parts in rows.values() for old in parts if old not in by_name]
    if missing:
        raise Refused(f"not in the tree: {', '.join(missing)}")
    return Plan(rows, table.renames, by_name), files


def carry_out(step: str, *, write: bool) -> int:
    plan, files = make_plan(step)
    writers = {}
    for file in files:
        writer = writers[file.path] = Rewriter(plan, file)
        writer.run()
    new_texts = {}
    for new, parts in plan.rows.items():
        own = {old: writers[plan.files[old].path] for old in parts}
        if len(parts) > 1:
            try:
                new_texts[new] = assemble(plan, new, own)
            except Refused as exc:
                plan.problems.append(str(exc))
        else:
            writer = own[parts[0]]
            new_texts[new] = writer.edits.apply(writer.file.source).decode()
    for cycle in import_cycles(plan, files):
        plan.problems.append(f"import cycle: {' -> '.join(cycle)}")
    for note in dict.fromkeys(plan.notes):
        print("note:", note)
    for problem in dict.fromkeys(plan.problems):
        print("REFUSED:", problem)
    if plan.problems:
        print(len(set(plan.problems)), "refused")
        return 1
    if write:
        set_layers(step)
        put(plan, files, writers, new_texts)
    return 0


def import_cycles(plan: Plan, files: list[File]) -> Iterator[list[str]]:
    """Module-level imports that would go round after the step."""
    graph: dict[str, set[str]] = defaultdict(set)
    known = {plan.target.get(name, name) for name in plan.files}
    for file in files:
        if not file.name:
            continue
        new = plan.target.get(file.name, file.name)
        for node in File._statements([one for one in file.tree.body if not is_type_checking(one)]):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                for alias in node.names:
                    home, name = plan.new_home(node.module, alias.name)
                    inner = f"{home}.{name}"
                    graph[new].add(inner if inner in known else home)
        graph[new].discard(new)
    state: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[list[str]]:
        state[node] = 1
        stack.append(node)
        for other in sorted(graph[node]):
            if state.get(other) == 1 and other in stack:
                yield [*stack[stack.index(other) :], other]
            elif other not in state:
                yield from visit(other)
        stack.pop()
        state[node] = 2

    for node in sorted(graph):
        if node not in state and node in known:
            yield from visit(node)


def git(*command: str | Path) -> None:
    subprocess.run(["git", *map(str, command)], cwd=ROOT, check=True)


def path_of(name: str, like: Path | None = None) -> Path:
    base = ROOT / Path(*name.split("."))
    if like is not None and like.name == "__init__.py":
        return base / "__init__.py"
    return base.with_suffix(".py")


def set_layers(step: str) -> None:
    """Give the linter of imports the layers that hold after a step."""
    path = ROOT / "pyproject.toml"
    text = path.read_text()
    start = text.index("layers = [") + len("layers = [")
    names = (ROOT / "tools" / "layers" / f"{step}.txt").read_text().splitlines()
    shown = "".join(f'\n    "{name}",' for name in names)
    path.write_text(f"{text[:start]}{shown}\n{text[text.index(']', start) :]}")


def put(
    plan: Plan, files: list[File], writers: Mapping[Path, Rewriter], texts: Mapping[str, str]
) -> None:
    moved = {plan.files[old].path for parts in plan.rows.values() for old in parts}
    away: dict[Path, Path] = {}
    # By way of names that nothing has, since a name may be both old and new.
    for new, parts in plan.rows.items():
        first = plan.files[parts[0]].path
        aside = first.with_name(f"__moving_{first.name}")
        git("mv", first, aside)
        stays = first.name == "__init__.py" and (
            len(parts) == 1 or (new == parts[0] and keeps(plan, new))
        )
        away[aside] = path_of(new, first if stays else None)
        for old in parts[1:]:
            git("rm", "-q", "--cached", plan.files[old].path)
            plan.files[old].path.unlink()
    for (aside, path), new in zip(away.items(), plan.rows, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.suffix or path.exists():
            raise Refused(f"{path} is there")
        git("mv", aside, path)
        path.write_text(texts[new])
    for file in files:
        if file.path not in moved:
            text = writers[file.path].edits.apply(file.source)
            if text != file.source:
                file.path.write_bytes(text)
    for path in text_files():
        if not path.exists():
            continue
        source = path.read_text()
        edits = Edits(File(path))
        for start, end, text in dotted_edits(plan, source):
            edits.add(start, end, text)
        if path.name in {"ARCHITECTURE.md", "CONTRIBUTING.md"}:
            for start, end, text in named_edits(plan, source):
                edits.add(start, end, text)
        result = edits.apply(source.encode())
        if result != source.encode():
            path.write_bytes(result)
    packages()
    ruff = Path(sys.executable).parent / "ruff"
    for command in (
        ["check", "-q", "--fix", "."],
        ["format", "-q", "."],
    ):
        subprocess.run([ruff, *command], cwd=ROOT, check=False, capture_output=True)
    git("add", "-A")


def keeps(plan: Plan, new: str) -> bool:
    """Whether a package has modules of its own after the step."""
    return any(one.startswith(f"{new}.") for one in plan.rows) or any(
        name.startswith(f"{new}.") and name not in plan.target for name in plan.files
    )


def packages() -> None:
    """Make what a new folder needs, and take away what an emptied one has left."""
    base = ROOT / PACKAGE
    for folder in sorted((one for one in base.rglob("*") if one.is_dir()), reverse=True):
        if folder.name == "__pycache__":
            continue
        held = [one for one in folder.iterdir() if one.name != "__pycache__"]
        if not held:
            for one in folder.rglob("*"):
                if one.is_file():
                    one.unlink()
            subprocess.run(["rm", "-rf", folder], check=True)


def check() -> int:
    table = Table.read()
    tree = modules()
    named: dict[str, list[str]] = defaultdict(list)
    for rows in table.rows.values():
        is_done = any(old not in tree for parts in rows.values() for old in parts)
        for new, parts in rows.items():
            for old in [new] if is_done else parts:
                named[old].append(new)
    wrong = [f"{old} twice: {news}" for old, news in named.items() if len(news) > 1]
    wrong += [f"{old} is not in the tree" for old in named if old not in tree]
    wrong += [f"{name} is not in the table" for name in tree if name not in named]
    print(*wrong, sep="\n")
    return bool(wrong)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["check"]:
            return check()
        case ["plan", step]:
            return carry_out(step, write=False)
        case ["run", step]:
            return carry_out(step, write=True)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
