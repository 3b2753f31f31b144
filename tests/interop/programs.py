"""The programs of docs/howto/clients.md: found on the page, and run as their readers run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.docs.fences import fences, pages
from tests.interop import clients, node
from tests.kit.processes import HOST, free_port
from tests.oauth.live.person import person_at
from tests.oauth.live.site import Site

PAGE = pages()["clients"]
FRAMEWORKS = Path(__file__).parent / "frameworks"
LANGUAGES = ("python", "js", "json")
SECONDS = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of the page: the `number`th of its section, and what it runs with.

    `client` is its name in the tables, `package` the package whose version the table names. It runs
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
        """Run the program after replacing texts of its code, and return its output."""
        code = edited(self.code, edits or {})
        if self.project is None:
            return run_python(code, self.environment or None, directory, **environ)
        node.install(self.project)
        # Modules are found from the working directory.
        return _run(["node", "--input-type=module"], code, self.project, directory, environ)


def of_both_sdks(section: str) -> tuple[Program, Program]:
    """Return the programs of a section that has one for each SDK."""
    return (
        Program(client="Python SDK 2", section=section, package="mcp"),
        Program(
            client="TypeScript SDK 2",
            section=section,
            number=1,
            package="@modelcontextprotocol/client",
            project=node.PROJECT,
        ),
    )


def edited(code: str, edits: Mapping[str, str]) -> str:
    """Return the code with texts replaced; it must contain at least one of them."""
    text = code
    for old, new in edits.items():
        text = text.replace(old, new)
    assert not edits or text != code, f"none of {[*edits]} is in the program"
    return text


def run_python(code: str, environment: str | None, directory: Path, **environ: str) -> str:
    """Run a Python program, and return its output."""
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
    """Return the environment of a program: it stores files in `home` and sends no telemetry."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"HOME": str(home), "NO_PROXY": HOST, "MCP_USE_ANONYMIZED_TELEMETRY": "false"}


def code_of_sections() -> dict[str, list[str]]:
    """Return the fences of the page that are code or configuration, by the heading above them."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    code_by_section: dict[str, list[str]] = {}
    for fence in fences(PAGE):
        if fence.language in LANGUAGES:
            above = (line for line in reversed(lines[: fence.line]) if line.startswith("## "))
            code_by_section.setdefault(next(above).removeprefix("## "), []).append(fence.text)
    return code_by_section


def output() -> str:
    """Return the output that the page shows for the program of each client."""
    return _outputs()[0]


def output_of_elicitation() -> str:
    """Return the output that the page shows for the programs that answer elicitation."""
    return _outputs()[1]


def _outputs() -> tuple[str, str]:
    of_clients, of_elicitation = (fence.text for fence in fences(PAGE) if fence.language == "text")
    return of_clients, of_elicitation


def table(column: str) -> dict[str, dict[str, str]]:
    """Return the rows of the table with a column of this name, by client."""
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
    """Return the text of a cell without its link."""
    return re.sub(r"\[(.+)\]\(.+\)", r"\1", cell)


def requests_in(path: Path) -> list[dict[str, Any]]:
    """Return the requests that the site has recorded."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# Signing in, with the user's browser ----------------------------------------------------------

SIGN_IN = of_both_sdks("Sign in with OAuth")
PORT = "3030"
# What a program prints in place of opening the browser.
OPEN = "Open "
# Where the code of a program can name the scopes that it requests.
NAMES = {
    'client_name="Report",': 'client_name="Report", scope="{scope}",',
    'client_name: "Report",': 'client_name: "Report", scope: "{scope}",',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A program in its directory, and the browser of its user.

    The file `opened` has the URLs that the browser was sent to during the last run.
    """

    program: Program
    home: Path
    port: str
    url: str
    browser: Path
    opened: Path

    def run(self, *, scope: str = "") -> str:
        """Run the program, and return its output without the lines for the browser."""
        edits = {PORT: self.port}
        if scope:
            edits |= {old: new.replace("{scope}", scope) for old, new in NAMES.items()}
        is_python = self.program.project is None
        path = self.home / ("program.py" if is_python else "program.mjs")
        path.write_text(edited(self.program.code, edits), encoding="utf-8")
        self.opened.write_text("", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable if is_python else "node", str(path)],
            cwd=self.home,
            env=environment_of(self.home) | {"MCP_URL": self.url, "BROWSER": str(self.browser)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                printed = "".join(self._lines(process))
                _, errors = process.communicate(timeout=SECONDS)
            finally:
                process.kill()
        assert process.returncode == 0, printed + errors
        assert errors == ""
        return printed

    def requests(self) -> list[dict[str, str]]:
        """Return the authorization requests of the last run."""
        urls = self.opened.read_text(encoding="utf-8").split()
        return [dict(parse_qsl(urlsplit(url).query)) for url in urls]

    def stored(self) -> list[Path]:
        """Return the files that the program has written."""
        return [*self.home.glob("mcp-*.json")]

    def modes(self) -> set[int]:
        """Return the permissions of the stored files."""
        return {path.stat().st_mode & 0o777 for path in self.stored()}

    def forget(self) -> None:
        """Delete the stored files."""
        for path in self.stored():
            path.unlink()

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(OPEN):
                url = line.removeprefix(OPEN).strip()
                subprocess.run([self.browser, url], check=True, timeout=SECONDS)
            else:
                yield line


@contextmanager
def signing_in(program: Program, site: Site, home: Path) -> Iterator[Visitor]:
    """Yield the program in a new directory, with a user who signs in and consents."""
    home.mkdir()
    if program.project is not None:
        node.install(program.project)
        (home / "node_modules").symlink_to(program.project / "node_modules")
    browser, opened = home / "browser", home / "opened.txt"
    with person_at(site) as person:
        command = [sys.executable, str(clients.HERE / "browser.py"), person, str(opened)]
        # A browser returns immediately, and its output is not the program's.
        log = shlex.quote(str(home / "browser.txt"))
        browser.write_text(f'#!/bin/sh\n{shlex.join(command)} "$1" >{log} 2>&1 &\n')
        browser.chmod(0o700)
        yield Visitor(
            program=program,
            home=home,
            port=str(free_port()),
            url=site.mcp,
            browser=browser,
            opened=opened,
        )
