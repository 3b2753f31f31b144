"""One round of a trial: what a client of this revision sends, and what comes back.

A client of 2026-07-28 sends the answers with its request. One of a handshake revision is asked
while its request runs, so what it said in earlier rounds is said again, and the function runs from
its beginning as it does in every round.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_django import __version__
from mcp_django.admin.trying.requests import Request
from mcp_django.admin.trying.trials import Trial
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.call import Incoming
from mcp_django.management.questions import CAPABILITIES
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
)
from mcp_django.protocol.errors import TASKS, error_object, required_extension
from mcp_django.transports.memory import MemoryConnection
from mcp_django.transports.outgoing import StreamPort

Wire = dict[str, Any]

CLIENT = {"name": "mcp_django.admin", "title": "Try it", "version": __version__}
# A page is no place for more.
MAX_NOTES = 200


@dataclass(slots=True)
class Notes:
    """Progress and log messages of a running call, the first ones of many."""

    kept: list[Wire] = field(default_factory=list)
    dropped: int = 0

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Keep a notification."""
        if len(self.kept) < MAX_NOTES:
            self.kept.append(message)
        else:
            self.dropped += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What came of a request; ``refusal`` says why it was not even looked at."""

    exchanges: Sequence[tuple[Wire, Wire]]
    notes: Notes
    refusal: str = ""

    @property
    def response(self) -> Wire:
        """The last response, empty if there was none."""
        return self.exchanges[-1][1] if self.exchanges else {}

    @property
    def result(self) -> Wire:
        """The result in it, empty if it is an error."""
        found: Wire = self.response.get("result", {})
        return found

    @property
    def questions(self) -> Wire:
        """What is asked, by key."""
        asks = self.result.get("resultType") == "input_required"
        return dict(self.result.get("inputRequests", {})) if asks else {}


class Runner:
    """Sends requests of a trial; ``answers`` are those of the user, round by round."""

    def __init__(
        self, trial: Trial, *, answers: Sequence[Mapping[str, Any]] = (), state: str = ""
    ) -> None:
        self._trial, self._state = trial, state
        self._answers = list(answers)
        self._left = list(answers)
        self._notes = Notes()
        self._exchanges: list[tuple[Wire, Wire]] = []
        self._connection = MemoryConnection(
            trial.visit.server,
            trial.caller.principal,
            make_port=self._port,
            answer=self._answer,
            origin="admin",
            acting=trial.caller.acting,
        )

    def run(self, request: Request) -> Round:
        """Send a request and wait for what comes of it."""
        refusal = ""
        try:
            if not self._trial.revision.stateless:
                self._shake_hands()
            self._send(*request)
        except AccessRefused as exc:
            refusal = exc.message
        return Round(exchanges=self._exchanges, notes=self._notes, refusal=refusal)

    def _shake_hands(self) -> None:
        version = self._trial.revision.version
        params = {
            "protocolVersion": version,
            "capabilities": CAPABILITIES,
            "clientInfo": CLIENT,
        }
        self._exchange("initialize", params)
        self._exchange("logging/setLevel", {"level": "debug"})

    def _send(self, method: str, params: Mapping[str, Any]) -> None:
        if not self._trial.revision.stateless:
            wish: Wire = (
                {"task": {}} if self._is_task(method) and self._trial.revision.tasks else {}
            )
            self._exchange(method, {**params, **wish, "_meta": {PROGRESS_TOKEN: "try"}})
            return
        more: Wire = {}
        if self._answers:
            more["inputResponses"] = self._answers[-1]
        if self._state:
            more["requestState"] = self._state
        envelope = {
            PROTOCOL_VERSION: self._trial.revision.version,
            CLIENT_CAPABILITIES: self._capabilities(method),
            CLIENT_INFO: CLIENT,
            PROGRESS_TOKEN: "try",
            LOG_LEVEL: "debug",
        }
        self._exchange(method, {**params, **more, "_meta": envelope})

    def _is_task(self, method: str) -> bool:
        return method == "tools/call" and self._trial.is_task

    def _capabilities(self, method: str) -> Mapping[str, Any]:
        if self._is_task(method) or method.startswith("tasks/"):
            return {**CAPABILITIES, **required_extension(TASKS)}
        return CAPABILITIES

    def _exchange(self, method: str, params: Mapping[str, Any]) -> None:
        message = jsonrpc.request(len(self._exchanges) + 1, method, dict(params))
        try:
            response = self._connection.request(message)
        except MCPError as exc:
            error = error_object(exc, self._trial.revision)
            response = jsonrpc.error_message(message["id"], error)
        self._exchanges.append((message, response))

    def _answer(self, questions: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What was said in this round of an earlier run, if it was asked the same."""
        if not self._left or set(self._left[0]) != set(questions):
            self._left = []
            return None
        return self._left.pop(0)

    def _port(self, incoming: Incoming) -> StreamPort:
        return StreamPort(incoming, self._notes)
