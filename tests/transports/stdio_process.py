"""`manage.py mcp stdio` in a process of its own, whose pipes a test reads and writes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from tests.kit.drivers import message
from tests.kit.processes import REPOSITORY
from tests.published.listening import Lines

# A limit for an overloaded machine; nothing is asserted about how long an answer takes.
PATIENCE = 60
SETTINGS = "tests.transports.stdio_settings"
# The server must not inherit these variables from the environment of the test run.
CLEAN = {"MCP_DJANGO_USER": "", "MCP_DJANGO_TOKEN": "", "PYTHONUNBUFFERED": ""}


class StdioProcess:
    """A running server; a thread reads and validates the lines that it writes."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.lines: list[bytes] = []
        self._ear = Lines()
        self._log = log
        self._ids = count(1)
        self._written: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reading = threading.Thread(target=self._read)
        self._begun = False

    @property
    def stderr(self) -> str:
        """Everything that went to standard error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    # What goes in -----------------------------------------------------------------------------

    def send(self, *messages: Mapping[str, Any]) -> None:
        """Write messages, all in one piece."""
        self.write(b"".join(map(self.encode, messages)))

    @staticmethod
    def encode(message: Mapping[str, Any]) -> bytes:
        return json.dumps(message).encode() + b"\n"

    def write(self, raw: bytes) -> None:
        """Write raw bytes."""
        assert self.process.stdin is not None
        self._ear.ask(raw)
        self.process.stdin.write(raw)
        self.process.stdin.flush()

    def begin(self, method: str, params: Mapping[str, Any] | None = None, **extra: Any) -> int:
        """Send a request, and return its id; `extra` goes into the envelope."""
        id = next(self._ids)
        self.send(message(method, params, id=id, **extra))
        return id

    def begin_call(self, name: str, /, **arguments: Any) -> int:
        return self.begin("tools/call", {"name": name, "arguments": arguments})

    def cancel(self, request_id: Any, **extra: Any) -> None:
        """Send a cancellation."""
        params = {"requestId": request_id, **extra}
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    # What comes out ---------------------------------------------------------------------------

    def next(self) -> dict[str, Any]:
        """Return the next message; raise `EOFError` if there are no more."""
        line: dict[str, Any] = self.line()
        assert line["jsonrpc"] == "2.0", line
        return line

    def line(self) -> Any:
        """Return the next line, decoded from JSON."""
        self.start_reading()
        try:
            line = self._written.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"Nothing was written.\n{self.stderr}") from None
        if line is None:
            raise EOFError(self.stderr)
        assert line.endswith(b"\n"), line
        self._ear.complain()
        return json.loads(line)

    def batch(self, members: Sequence[Any]) -> list[dict[str, Any]]:
        """Send a batch in one line and return its answer; nothing else may come before it."""
        self.write(json.dumps(members).encode() + b"\n")
        answers = self.line()
        assert isinstance(answers, list), answers
        return answers

    def response(self) -> dict[str, Any]:
        """Return the next message, which has to be a response."""
        response = self.next()
        assert "method" not in response, response
        return response

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, **extra: Any
    ) -> dict[str, Any]:
        """Send a request and return its response; nothing else may come before it."""
        id = self.begin(method, params, **extra)
        response = self.response()
        assert response["id"] == id
        return response

    def call(self, name: str, /, **arguments: Any) -> str:
        """Call a tool and return its text."""
        response = self.request("tools/call", {"name": name, "arguments": arguments})
        text: str = response["result"]["content"][0]["text"]
        return text

    def rest(self) -> list[dict[str, Any]]:
        """Return every message that is written from now on, to the end of the process."""
        messages = []
        with suppress(EOFError):
            while True:
                messages.append(self.next())
        return messages

    def start_reading(self) -> None:
        if not self._begun:
            self._begun = True
            self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._ear.hear(line)
            self._written.put(line)
        self._written.put(None)

    # The end ----------------------------------------------------------------------------------

    def wait(self) -> int:
        """Return the exit status; fail if the process does not end."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The process did not end.\n{self.stderr}") from None

    def wait_for_print(self, text: str) -> None:
        """Wait until a text was printed to standard error, which shows how far a tool is."""
        for _ in range(PATIENCE * 100):
            if text in self.stderr:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"{text!r} was not printed.\n{self.stderr}")

    def close(self) -> None:
        """Kill the process, whatever its state."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        if self._begun:
            self._reading.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            # Bytes that could not be written are discarded with the pipe.
            with suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def stdio(directory: Path, *arguments: str, **environ: str) -> Iterator[StdioProcess]:
    """Run `manage.py mcp stdio` with arguments; `directory` gets a file of its standard error."""
    log = directory / "stderr.txt"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "mcp", "stdio", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **CLEAN, "DJANGO_SETTINGS_MODULE": SETTINGS, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # A process group of its own, so that its child processes end with it.
            start_new_session=True,
        )
    running = StdioProcess(process, log)
    try:
        yield running
    finally:
        running.close()
