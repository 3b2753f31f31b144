"""A client at one of the HTTP mounts, which sends requests in a session where there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_django.protocol import sse
from mcp_django.protocol.headers import MCP_PROTOCOL_VERSION
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import REVISIONS
from tests.kit.drivers import Connection
from tests.matrix.callers import Caller
from tests.matrix.cases import Case, build_message, capabilities_of, initialization, with_first
from tests.matrix.site import MOUNTS
from tests.transports.mounts import in_thread

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass
class Answer:
    """The answer to a request; a transport without statuses and headers leaves them empty."""

    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: str = ""

    def response(self) -> dict[str, Any]:
        """Return the response, which is the last message of a stream."""
        if not self.body.lstrip().startswith(("{", "[")):
            events = sse.EventDecoder().feed(self.body.encode())
            return dict(json.loads([event.data for event in events if event.data][-1]))
        return dict(json.loads(self.body))


def params_of(case: Case, before: Answer | None) -> Mapping[str, Any]:
    """Return the parameters, which may depend on the answer to the previous request."""
    if not callable(case.params):
        return case.params
    assert before is not None
    return case.params(before.response())


def accept(question: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Return the response of a client whose user gives this answer."""
    result = {"action": "accept", "content": value}
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


def is_question(message: Mapping[str, Any]) -> bool:
    """Return whether the server asks the client for something."""
    return "method" in message and "id" in message


class HttpLink:
    """The client; it opens a session for each set of capabilities when it first needs one."""

    def __init__(self, mount: str, version: str, caller: Caller) -> None:
        self._mount = mount
        self._revision = REVISIONS[version]
        self._caller = caller
        self._sessions: dict[str, str | None] = {}

    async def prepare(self, case: Case) -> bool:
        """Open the missing sessions that a case needs, and return whether there were any.

        A caller that may not open a session sends requests without it.
        """
        needed = {self._key(step): step for step in with_first(case) if self._lacks_session(step)}
        for key, step in needed.items():
            self._sessions[key] = await self._open(step)
        return bool(needed)

    async def ask(self, case: Case, before: Answer | None = None) -> Answer:
        """Send the request of a case and return the whole answer."""
        message = {} if case.raw is not None or case.verb != "POST" else self._message(case, before)
        body = json.dumps(message).encode() if message else case.raw or b""
        headers = {**self._headers(case, message), **case.headers}
        return await self._send(case, body, {k: v for k, v in headers.items() if v is not None})

    async def close(self) -> None:
        """Do nothing: the sessions end when the test's tables are emptied."""

    def _lacks_session(self, case: Case) -> bool:
        return self._needs_session(case) and self._key(case) not in self._sessions

    def _needs_session(self, case: Case) -> bool:
        return not self._revision.stateless and case.has_session

    def _key(self, case: Case) -> str:
        return json.dumps([case.session_server or self._path(case), capabilities_of(case)])

    def _path(self, case: Case) -> str:
        return f"/{case.server or self._caller.server}/mcp"

    def _message(self, case: Case, before: Answer | None) -> dict[str, Any]:
        id = 1 if before is None else 2
        return build_message(case, self._revision, params_of(case, before), id=id)

    async def _open(self, case: Case) -> str | None:
        server = case.session_server or case.server
        opening = Case(method="initialize", has_session=False, server=server)
        params = initialization(case, self._revision)
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        headers = {k: v for k, v in self._headers(opening, body).items() if v is not None}
        headers.pop(MCP_PROTOCOL_VERSION, None)
        answer = await self._send(opening, json.dumps(body).encode(), headers)
        session = dict(answer.headers).get("mcp-session-id")
        if session is not None:
            headers |= {"mcp-session-id": session, MCP_PROTOCOL_VERSION: self._revision.version}
            await self._send(opening, json.dumps(INITIALIZED).encode(), headers)
        return session

    def _headers(self, case: Case, message: Mapping[str, Any]) -> dict[str, str | None]:
        headers: dict[str, str | None] = {
            "host": "testserver",
            "content-type": "application/json" if case.verb == "POST" else None,
            "accept": "application/json, text/event-stream",
            "authorization": self._caller.authorization,
            MCP_PROTOCOL_VERSION: self._revision.version,
        }
        if self._needs_session(case):
            headers["mcp-session-id"] = self._sessions[self._key(case)]
        if self._revision.stateless and message:
            headers |= _routing(message)
        return headers

    async def _send(self, case: Case, body: bytes, headers: Mapping[str, str]) -> Answer:
        path = self._path(case) + case.suffix
        if self._mount == "wsgi":
            return await in_thread(_send_wsgi, case.verb, path, body, headers)
        connection = Connection(MOUNTS[self._mount], path, body, headers, case.verb)
        try:
            return await self._read(case, connection, headers)
        finally:
            await connection.close()

    async def _read(self, case: Case, connection: Connection, headers: Mapping[str, str]) -> Answer:
        start = await connection.start()
        lines = connection.sent[0]["headers"]
        answer = Answer(
            status=start.status,
            headers=[(k.decode().lower(), v.decode("latin-1")) for k, v in lines],
        )
        decoder, left = sse.EventDecoder(), list(case.answers)
        if case.leaves and start.is_stream and case.verb == "GET":
            return answer
        while True:
            part = await connection.part()
            body = part.get("body", b"")
            answer.body += body.decode("utf-8", "replace")
            if not part.get("more_body") or (case.leaves and start.is_stream):
                return answer
            if start.is_stream:
                await self._reply(case, decoder.feed(body), left, headers)

    async def _reply(
        self, case: Case, events: Sequence[Any], answers: list[Any], headers: Mapping[str, str]
    ) -> None:
        """Answer the questions that arrived on the stream, as the user would."""
        for message in (json.loads(event.data) for event in events if event.data):
            if is_question(message):
                body = json.dumps(accept(message, answers.pop(0))).encode()
                await self._send(Case(server=case.server), body, headers)


def _routing(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that repeat parts of a message since 2026-07-28."""
    headers = {"mcp-method": message["method"]}
    method = REQUESTS.get(message["method"])
    name = message.get("params", {}).get(method.name_member) if method else None
    if isinstance(name, str):
        headers["mcp-name"] = name
    return headers


def _send_wsgi(verb: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    response: Any = client.generic(
        verb,
        path,
        body,
        content_type=headers.get("content-type", ""),
        headers={k: v for k, v in headers.items() if k != "content-type"},
    )
    lines = [(name.lower(), value) for name, value in response.items()]
    content = b"".join(response) if response.streaming else response.content
    return Answer(response.status_code, lines, content.decode("utf-8", "replace"))
