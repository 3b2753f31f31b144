"""Read the ledger, and the requirements that the tests name.

The tests are read as source, not collected: the result is the same when only a few of them run.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
LEDGER = TESTS / "spec" / "requirements.toml"
PROTOCOL_PAGE = TESTS.parent / "docs" / "ref" / "protocol.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One entry of the ledger."""

    id: str
    revisions: tuple[str, ...]
    level: str
    text: str
    status: str
    explained: str = ""
    """The topic of docs/ref/protocol.md that states the choice; empty where there is none."""

    @property
    def prefix(self) -> str:
        """The part of the specification, such as `SES`."""
        return self.id.rpartition("-")[0]

    @property
    def number(self) -> int:
        """The place within that part."""
        return int(self.id.rpartition("-")[2])

    @property
    def is_served(self) -> bool:
        """Whether a test has to name it."""
        return self.status == "served"

    @property
    def is_declined(self) -> bool:
        """Whether docs/ref/protocol.md has to explain why it is not served."""
        return self.status.startswith("declined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """One id that a test names, and where."""

    id: str
    place: str


@cache
def requirements() -> dict[str, Requirement]:
    """Return every requirement by id, in the order of the file."""
    tables = tomllib.loads(LEDGER.read_text(encoding="utf-8"))
    return {
        name: Requirement(
            id=name,
            revisions=tuple(table["revisions"]),
            level=table["level"],
            text=table["text"],
            status=table["status"],
            explained=table.get("explained", ""),
        )
        for name, table in tables.items()
    }


@cache
def explained_topics() -> list[str]:
    """Return the topics in bold that begin the entries of docs/ref/protocol.md, in order."""
    page = PROTOCOL_PAGE.read_text(encoding="utf-8")
    return re.findall(r"^- \*\*(.+?)\.\*\* ", page, re.MULTILINE)


@cache
def mentions(root: Path = TESTS) -> list[Mention]:
    """Return every id that a `spec(...)` or `pytest.mark.spec(...)` marker under `root` names."""
    return [
        mention
        for path in sorted(root.rglob("*.py"))
        if "node_modules" not in path.parts
        if re.search(r"\bspec\(", source := path.read_text("utf-8"))
        for mention in mentions_in(source, str(path.relative_to(root)))
    ]


def mentions_in(source: str, name: str) -> Iterator[Mention]:
    """Yield the ids that are named in one file.

    Raises:
        ValueError: an id is not written as a literal, so it cannot be searched for.
    """
    for node in ast.walk(ast.parse(source, name)):
        if not (isinstance(node, ast.Call) and _is_marker(node.func)):
            continue
        place = f"{name}:{node.lineno}"
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise ValueError(f"{place}: write the ids of a spec marker as literals.")
            yield Mention(id=argument.value, place=place)


def _is_marker(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "spec"
    is_attribute = isinstance(function, ast.Attribute) and function.attr == "spec"
    return is_attribute and ast.unparse(function) == "pytest.mark.spec"
