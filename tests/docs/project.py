"""Follows a page as its reader does: writes its files, runs its commands, compares its answers.

Commands run unchanged in bash, with three exceptions: port 8000 is replaced, a server runs in the
background, and programs of others (`pip`, `claude`) only record their arguments.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from tests.docs.fences import Fence, fences, matches, pages
from tests.kit.processes import REPOSITORY, STOP_SECONDS, free_port, wait_until_answering

SHIMS = ("pip", "claude")
# A limit for an overloaded machine.
COMMAND_SECONDS = 240
SERVERS = ("manage.py runserver", "uvicorn ", "granian ", "gunicorn ")


class Project:
    """A directory in which a page is followed."""

    def __init__(self, directory: Path, *, settings: str) -> None:
        self.directory = directory / "project"
        self.directory.mkdir()
        self.port = free_port()
        self.output = ""
        self.opening = ""
        self._settings = settings
        self._servers = ExitStack()
        self._bin = directory / "bin"
        self._environ = self._make_environ()

    def _make_environ(self) -> dict[str, str]:
        self._bin.mkdir()
        for name in SHIMS:
            shim = self._bin / name
            shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>"{shim}.txt"\n')
            shim.chmod(0o755)
        path = [self._bin, Path(sys.executable).parent, os.environ["PATH"]]
        return {
            # Without the suite's own configuration.
            **{k: v for k, v in os.environ.items() if not k.startswith(("DJANGO_", "PYTEST_"))},
            "PATH": os.pathsep.join(map(str, path)),
            "PYTHONPATH": f"{self.directory}{os.pathsep}{REPOSITORY}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._servers.close()

    def arguments_of(self, shim: str) -> list[str]:
        """Return the arguments that a program of others was called with."""
        return (self._bin / f"{shim}.txt").read_text().splitlines()

    def follow(self, page: str) -> None:
        """Follow all fences of a page."""
        for fence in fences(pages()[page]):
            try:
                self.do(fence)
            except AssertionError as exc:
                raise AssertionError(f"{page}.md, line {fence.line}: {exc}") from exc

    def do(self, fence: Fence) -> None:
        """Run, compare or write one fence."""
        if fence.language == "sh":
            self._run(fence.text)
        elif fence.language == "json":
            self._compare(json.loads(fence.text))
        elif fence.language == "text":
            assert fence.text.split() == self.output.split(), self.output
        elif fence.is_console:
            self._converse(fence.text)
        elif fence.file is not None:
            self._write(fence)
        else:
            assert fence.language.startswith("{"), f"nobody reads this {fence.language} fence"

    # Files ------------------------------------------------------------------------------------

    def _write(self, fence: Fence) -> None:
        """Append a fence to its file; `...` in a list stands for what the list has already."""
        assert fence.file is not None
        path = self.directory / fence.file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r"^(\w+) = \[\s*\.\.\.,", r"\1 = [*\1,", fence.text, flags=re.MULTILINE)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")

    # Commands ---------------------------------------------------------------------------------

    def _run(self, text: str) -> None:
        text = text.replace(":8000", f":{self.port}").replace("--port 8000", f"--port {self.port}")
        if any(server in text for server in SERVERS):
            self._servers.close()
            self._servers.enter_context(self._serving(text.strip()))
            return
        after = self.directory.parent / "environ"
        script = f'set -aeuo pipefail\n{text}\nenv -0 >"{after}"\n'
        result = self._finish(["bash", "-c", script])
        assert result.returncode == 0, f"{text}\n{result.stdout}{result.stderr}"
        self.output = result.stdout
        pairs = (pair.split("=", 1) for pair in after.read_text().rstrip("\0").split("\0"))
        self._environ |= dict(pairs)

    def _finish(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
            **options,
        )

    @contextmanager
    def _serving(self, command: str) -> Iterator[None]:
        command = command.replace("runserver", f"runserver --noreload {self.port}")
        log = self.directory.parent / "server.txt"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                # The shell becomes the server, so that there is one process to stop.
                ["bash", "-c", f"exec {command}"],
                cwd=self.directory,
                env=self._environ,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                wait_until_answering(process, self.port, log)
                yield
            finally:
                process.terminate()
                process.wait(STOP_SECONDS)
        assert "Traceback" not in log.read_text()

    # Answers ----------------------------------------------------------------------------------

    def _compare(self, shown: Any) -> None:
        real = json.loads(self.output)
        assert matches(shown, real), json.dumps(real, indent=2, ensure_ascii=False)

    def _converse(self, text: str) -> None:
        """Run a console; each one after the first begins with the opening lines of the first."""
        command = [sys.executable, "-m", "tests.docs.session", self._settings]
        if not self.opening:
            self.opening = _without_answers(text)
            typed = text
        else:
            typed = f"{self.opening}\n{text}"
        result = self._finish(command, input=typed)
        assert result.returncode == 0, result.stdout + result.stderr


def _without_answers(console: str) -> str:
    """Return the lines of a console before the first one that has an answer."""
    opening: list[str] = []
    for line in console.splitlines():
        if not line.startswith((">>>", "...")):
            return "\n".join(opening[:-1])
        opening.append(line)
    return "\n".join(opening)
