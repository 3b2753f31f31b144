"""The programs of docs/howto/clients.md: found on the page, and run as their readers run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.fences import fences, pages
from tests.interop import clients, node
from tests.processes import HOST

PAGE = pages()["clients"]
FRAMEWORKS = Path(__file__).parent / "frameworks"
LANGUAGES = ("python", "js", "json")
SECONDS = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of the page: the `number`th of its section, and what it runs with.

    `client` is its name in the tables, `package` what the version in the table is that of. It runs
    in a Python `environment` or a Node `project`.
    """

    client: str
    section: str
    package: str
    number: int = 0
    environment: str = ""
    project: Path | None = None

    @property
    def code(self) -> str:
        """The code on the page."""
        return code_of_sections()[self.section][self.number]

    @property
    def version(self) -> str:
        """The version that is installed for the tests."""
        if self.project is None:
            return clients.pins(self.environment)[self.package]
        manifest = json.loads((self.project / "package.json").read_text(encoding="utf-8"))
        return str(manifest["dependencies"][self.package])

    def run(
        self, directory: Path, edits: Mapping[str, str] | None = None, /, **environ: str
    ) -> str:
        """What the program prints, after replacing texts of its code."""
        code = edited(self.code, edits or {})
        if self.project is None:
            return run_python(code, self.environment or None, directory, **environ)
        node.install(self.project)
        # Modules are found from the working directory.
        return _run(["node", "--input-type=module"], code, self.project, directory, environ)


def edited(code: str, edits: Mapping[str, str]) -> str:
    """The code with texts replaced; at least one of them has to be there."""
    found = code
    for old, new in edits.items():
        found = found.replace(old, new)
    assert not edits or found != code, f"none of {[*edits]} is in the program"
    return found


def run_python(code: str, environment: str | None, directory: Path, **environ: str) -> str:
    """What a Python program prints."""
    path = directory / "program.py"
    path.write_text(code, encoding="utf-8")
    return _run([str(clients.python(environment)), str(path)], "", directory, directory, environ)


def _run(command: list[str], code: str, cwd: Path, home: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment_of(home) | environ,
        input=code,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment_of(home: Path) -> dict[str, str]:
    """The environment of a program, which stores its files in `home` and reports to its host."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"HOME": str(home), "NO_PROXY": HOST, "MCP_USE_ANONYMIZED_TELEMETRY": "false"}


def code_of_sections() -> dict[str, list[str]]:
    """The fences of the page that are code or configuration, by the heading above them."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found: dict[str, list[str]] = {}
    for fence in fences(PAGE):
        if fence.language in LANGUAGES:
            above = (line for line in reversed(lines[: fence.line]) if line.startswith("## "))
            found.setdefault(next(above).removeprefix("## "), []).append(fence.text)
    return found


def output() -> str:
    """What the page says that the program of each client prints."""
    return _outputs()[0]


def output_of_elicitation() -> str:
    """What the page says that the programs print that answer elicitation."""
    return _outputs()[1]


def _outputs() -> tuple[str, str]:
    of_clients, of_elicitation = (one.text for one in fences(PAGE) if one.language == "text")
    return of_clients, of_elicitation


def table(column: str) -> dict[str, dict[str, str]]:
    """The rows of the table with a column of this name, by client."""
    for rows in _tables():
        header, _, *body = rows
        if column in header:
            return {_plain(row[0]): dict(zip(header, row, strict=True)) for row in body}
    raise AssertionError(f"no table of the page has a column {column!r}")


def _tables() -> Iterator[list[list[str]]]:
    text = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        yield [[cell.strip() for cell in row.strip("|").split("|")] for row in block.splitlines()]


def _plain(cell: str) -> str:
    """The text of a cell without its link."""
    return re.sub(r"\[(.+)\]\(.+\)", r"\1", cell)


def requests_in(path: Path) -> list[dict[str, Any]]:
    """The requests that the site has recorded."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
