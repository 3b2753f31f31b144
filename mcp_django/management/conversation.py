"""One call as one user, through to its end: questions are answered and messages passed on.

It goes through the same policy and runtime as a call from a network (transports.memory).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import count
from typing import Any, Protocol

from django.core.management.base import CommandError

from mcp_django import __version__
from mcp_django.auth.principal import Principal
from mcp_django.execution.call import Incoming
from mcp_django.management.answers import Refused
from mcp_django.management.questions import Answer, Answerer, Question, description
from mcp_django.protocol.envelope import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
)
from mcp_django.protocol.revisions import LATEST, MODERN, Revision
from mcp_django.server import MCPServer
from mcp_django.transports.memory import MemoryConnection, Response
from mcp_django.transports.outgoing import StreamPort

CLIENT = {"name": "manage.py mcp call", "version": __version__}


class Listener(Protocol):
    """Who hears of the progress and log messages of a running call, in their order."""

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Take a notification."""


class Conversation:
    """A client of one server, in this process.

    ``capabilities`` are what it declares; whatever the server then asks goes to ``answerer``.

    Raises:
        AccessRefused: the caller may not enter, has to authenticate or lacks a scope.
    """

    def __init__(
        self,
        server: MCPServer,
        principal: Principal,
        *,
        answerer: Answerer,
        capabilities: Mapping[str, Any],
        listener: Listener,
    ) -> None:
        self._title = str(server.identity().get("title") or server.name)
        self._answerer = answerer
        self._capabilities = dict(capabilities)
        self._listener = listener
        self._version = _revision(server).version
        self._ids = count(1)
        self._connection = MemoryConnection(
            server, principal, make_port=self._port, origin="command"
        )

    def request(self, method: str, params: Mapping[str, Any]) -> Response:
        """The response to a request, once everything asked in between is answered.

        Raises:
            CommandError: a question cannot be answered.
        """
        more: dict[str, Any] = {}
        # The runtime itself ends a call that asks in circles.
        while True:
            response = self._connection.request(self._message(method, {**params, **more}))
            result = response.get("result", {})
            if result.get("resultType") != "input_required":
                return response
            more = self._answered(result)

    def _answered(self, result: Mapping[str, Any]) -> dict[str, Any]:
        questions = {
            key: Question(
                asker=f"Server {self._title!r}",
                method=asked["method"],
                params=asked.get("params") or {},
            )
            for key, asked in result.get("inputRequests", {}).items()
        }
        answers: dict[str, Answer] = {}
        for key, question in questions.items():
            try:
                answers[key] = self._answerer.answer(question)
            except Refused:
                raise
            except CommandError as exc:
                later = [one for other, one in questions.items() if other not in {*answers, key}]
                others = [f"  {line}" for one in later for line in description(one)]
                told = [str(exc), *(["Asked at the same time:"] if others else []), *others]
                raise CommandError("\n".join(told)) from exc
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": answers, **state}

    def _message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        envelope = {
            PROTOCOL_VERSION: self._version,
            CLIENT_INFO: CLIENT,
            CLIENT_CAPABILITIES: self._capabilities,
            PROGRESS_TOKEN: "call",
            LOG_LEVEL: "debug",
        }
        return {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**params, "_meta": envelope},
        }

    def _port(self, incoming: Incoming) -> StreamPort:
        return StreamPort(incoming, self._listener)


def _revision(server: MCPServer) -> Revision:
    """The newest revision without a handshake that the server speaks."""
    served = (one for one in MODERN if one.version in server.protocol_versions)
    return next(served, LATEST)
