"""The programs of docs/howto/clients.md that sign in, and the user's browser that they open."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tests.interop import clients, node
from tests.interop.programs import SECONDS, Program, edited, environment_of
from tests.oauth.live.person import person_at
from tests.oauth.live.site import Site
from tests.processes import free_port

SECTION = "Sign in with OAuth"
SIGN_IN = (
    Program(client="Python SDK 2", section=SECTION, package="mcp"),
    Program(
        client="TypeScript SDK 2",
        section=SECTION,
        number=1,
        package="@modelcontextprotocol/client",
        project=node.PROJECT,
    ),
)
PORT = "3030"
# What a program prints in place of opening the browser.
OPEN = "Open "
# Where a client names the scopes that it would like.
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
        """What the program prints, without what it prints for the browser."""
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
        """The authorization requests of the last run."""
        urls = self.opened.read_text(encoding="utf-8").split()
        return [dict(parse_qsl(urlsplit(url).query)) for url in urls]

    def stored(self) -> list[Path]:
        """The files that the program has written."""
        return [*self.home.glob("mcp-*.json")]

    def modes(self) -> set[int]:
        """Who may read them."""
        return {path.stat().st_mode & 0o777 for path in self.stored()}

    def forget(self) -> None:
        """Delete them."""
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
    """The program in a new directory, with a user who signs in and consents."""
    home.mkdir()
    if program.project is not None:
        node.install(program.project)
        (home / "node_modules").symlink_to(program.project / "node_modules")
    browser, opened = home / "browser", home / "opened.txt"
    with person_at(site) as person:
        command = [sys.executable, str(clients.HERE / "browser.py"), person, str(opened)]
        # A browser returns at once; what it prints is not the program's.
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
