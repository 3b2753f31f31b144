"""Which binding each name of a file stands for, by Python's own rules of scope.

A small resolver over ``ast`` for the mover: for each occurrence of a name it says in which scope
the name is bound, so that a rename touches what it means and nothing that merely has its name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension, and the names that are bound in it."""

    node: ast.AST
    outer: Scope | None
    bound: set[str] = field(default_factory=set)
    passed_on: set[str] = field(default_factory=set)  # global and nonlocal

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    def home(self, name: str) -> Scope | None:
        """The scope that a name read here is bound in; none for builtins."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bound and (scope is self or not scope.is_class):
                return scope
            scope = scope.outer
        return None

    def path_to(self, home: Scope | None) -> Iterator[Scope]:
        """The scopes between this one and another outside of it, this one included."""
        scope: Scope | None = self
        while scope is not None and scope is not home:
            yield scope
            scope = scope.outer


@dataclass(frozen=True)
class Use:
    """A name where it stands."""

    name: str
    node: ast.AST
    scope: Scope
    parent: ast.AST | None
    line: int
    column: int  # in bytes, as ast counts

    @property
    def home(self) -> Scope | None:
        return self.scope.home(self.name)


class _Finder(ast.NodeVisitor):
    def __init__(self, tree: ast.Module, lines: list[bytes]) -> None:
        self.lines = lines
        self.module = Scope(tree, None)
        self.scope = self.module
        self.scopes = {tree: self.module}
        self.uses: list[Use] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        self._bind(tree)
        for statement in tree.body:
            self.visit(statement)

    # Binding, before anything is looked up.

    def _bind(self, node: ast.AST) -> None:
        """Fill the names that the scope of a node binds, without what is nested in it."""
        scope = self.scopes[node]
        if isinstance(node, FUNCTIONS):
            args = node.args
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
            every += [one for one in (args.vararg, args.kwarg) if one]
            scope.bound |= {one.arg for one in every}
        if isinstance(node, COMPREHENSIONS):
            for generator in node.generators:
                for one in ast.walk(generator.target):
                    if isinstance(one, ast.Name):
                        scope.bound.add(one.id)
            return
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        for statement in body:
            self._gather(statement, scope)
        scope.bound -= scope.passed_on

    def _gather(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                scope.bound.add(node.name)
                for one in self._outside(node):
                    self._gather(one, scope)
                return
            case ast.Lambda():
                return
            case ast.Import() | ast.ImportFrom():
                scope.bound |= {one.asname or one.name.partition(".")[0] for one in node.names}
            case ast.Name(ctx=ast.Store() | ast.Del()):
                scope.bound.add(node.id)
            case ast.ExceptHandler(name=str(name)):
                scope.bound.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.bound.add(name)
            case ast.MatchMapping(rest=str(name)):
                scope.bound.add(name)
            case ast.Global() | ast.Nonlocal():
                scope.passed_on |= set(node.names)
        if isinstance(node, COMPREHENSIONS):
            # What := binds within belongs to the function around.
            for one in ast.walk(node):
                if isinstance(one, ast.NamedExpr):
                    scope.bound.add(one.target.id)
            return
        for child in ast.iter_child_nodes(node):
            self._gather(child, scope)

    @staticmethod
    def _outside(node: ast.AST) -> list[ast.AST]:
        """What belongs to a function or class, but is evaluated outside of it."""
        found: list[ast.AST] = list(getattr(node, "decorator_list", []))
        if isinstance(node, ast.ClassDef):
            return [*found, *node.bases, *node.keywords]
        args = node.args
        found += [one for one in (*args.defaults, *args.kw_defaults) if one]
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        every += [one for one in (args.vararg, args.kwarg) if one]
        found += [one.annotation for one in every if one.annotation]
        if getattr(node, "returns", None):
            found.append(node.returns)
        return found

    # Looking up.

    def _enter(self, node: ast.AST, inside: list[ast.AST]) -> None:
        outer, self.scope = self.scope, Scope(node, self.scope)
        self.scopes[node] = self.scope
        self._bind(node)
        for one in inside:
            self.visit(one)
        self.scope = outer

    def _definition(self, node: ast.AST) -> None:
        for one in self._outside(node):
            self.visit(one)
        self._note_definition(node)
        self._enter(node, node.body)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for one in self._outside(node):
            self.visit(one)
        self._enter(node, [node.body])

    def _comprehension(self, node: ast.AST) -> None:
        self.visit(node.generators[0].iter)
        inside = [
            one for generator in node.generators for one in (generator.target, *generator.ifs)
        ]
        inside += [one.iter for one in node.generators[1:]]
        inside += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._enter(node, inside)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Name(self, node: ast.Name) -> None:
        self._note(node.id, node, node.lineno, node.col_offset)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        line = self.lines[node.lineno - 1]
        for name in node.names:
            start = node.col_offset
            while True:
                start = line.index(name.encode(), start)
                before, after = line[start - 1 : start], line[start + len(name) :][:1]
                if not (before.isalnum() or before == b"_" or after.isalnum() or after == b"_"):
                    break
                start += 1
            self.uses.append(Use(name, node, self.module, None, node.lineno, start))

    def _note_definition(self, node: ast.AST) -> None:
        word = b"class " if isinstance(node, ast.ClassDef) else b"def "
        line = self.lines[node.lineno - 1]
        column = line.index(word + node.name.encode(), node.col_offset) + len(word)
        self._note(node.name, node, node.lineno, column)

    def _note(self, name: str, node: ast.AST, line: int, column: int) -> None:
        self.uses.append(Use(name, node, self.scope, self.parents.get(node), line, column))


def resolve(tree: ast.Module, source: bytes) -> _Finder:
    """The scopes and uses of a file."""
    return _Finder(tree, source.splitlines(keepends=True))
