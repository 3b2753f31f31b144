"""Clients of tenants, which know their tenant by the host name, and a load of both tenants."""

from __future__ import annotations

import http.client
import json
import random
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from mcp_django.protocol import sse
from tests.kit.drivers import headers_for, message
from tests.kit.processes import HOST, Server
from tests.sites.tenants.fill import TENANTS
from tests.transports.http_session.handshakes import INITIALIZED, D, initialize

MODERN, HANDSHAKE = "2026-07-28", D
AT_ONCE = 16
PATIENCE = 60

PATH, GUARDED = "/mcp", "/guarded"
COMPLETED = {
    "ref": {"type": "ref/prompt", "name": "summary"},
    "argument": {"name": "name", "value": ""},
}
# What clients ask, for the rows of their tenant: functions that read them, and tools that are
# offered to those who have a row.
KINDS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "sync": (PATH, "tools/call", {"name": "sync_items", "arguments": {}}),
    "async": (PATH, "tools/call", {"name": "async_items", "arguments": {}}),
    "ORM in sync_to_async": (PATH, "tools/call", {"name": "thread_items", "arguments": {}}),
    "sync stream": (PATH, "tools/call", {"name": "sync_stream", "arguments": {}}),
    "async stream": (PATH, "tools/call", {"name": "async_stream", "arguments": {}}),
    "resource": (PATH, "resources/read", {"uri": "items://pages/1"}),
    "prompt": (PATH, "prompts/get", {"name": "summary"}),
    "completion": (PATH, "completion/complete", COMPLETED),
    "list with permissions": (GUARDED, "tools/list", {}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer; a stream that is not read to its end has no text."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def rows(self) -> set[str]:
        """The rows that are named anywhere in the answer."""
        return set(re.findall(rf"\b(?:{'|'.join(TENANTS)})-\d+", self.text))

    @property
    def response(self) -> dict[str, Any]:
        """The response, which is the last message."""
        events = sse.EventDecoder().feed(self.text.encode()) if self.is_stream else []
        texts = [event.data for event in events if event.data] or [self.text]
        response: dict[str, Any] = json.loads(texts[-1])
        return response

    @property
    def refusal(self) -> str:
        """The sentence of an error, which it has to be."""
        assert not self.is_stream, "a stream was opened"
        response = self.response
        if "error" in response:
            sentence: str = response["error"]["message"]
            return sentence
        assert response["result"].get("isError"), self.text
        return str(response["result"]["content"][0]["text"])


class Client:
    """A client of one tenant, which keeps its connection; `headers` go with every request."""

    def __init__(self, server: Server, tenant: str, **headers: str) -> None:
        self.tenant = tenant
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._http = http.client.HTTPConnection(HOST, server.port, timeout=PATIENCE)
        self._sessions: dict[tuple[str, str], dict[str, str]] = {}

    def send(
        self,
        body: Any,
        *,
        verb: str = "POST",
        path: str = PATH,
        is_open_ended: bool = False,
        **headers: str | None,
    ) -> Reply:
        """Send a request; a stream that has no end is not read."""
        named = body if isinstance(body, Mapping) else {}
        host = f"{self.tenant}.tenants.test"
        values = {**headers_for(named, host=host, **headers), **self._headers}
        raw = json.dumps(body) if body is not None else None
        try:
            self._http.request(verb, path, raw, values)
            response = self._http.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            # The server closed a connection that was idle.
            self._http.close()
            self._http.request(verb, path, raw, values)
            response = self._http.getresponse()
        known = {name.lower(): value for name, value in response.getheaders()}
        reply = Reply(status=response.status, headers=known, text="")
        if reply.is_stream and is_open_ended:
            self._http.close()
            return reply
        return Reply(status=reply.status, headers=known, text=response.read().decode())

    def open(self, path: str = PATH, version: str = HANDSHAKE) -> Reply:
        """Begin a session, and the answer to that."""
        body = initialize(version)
        reply = self.send(body, path=path, mcp_protocol_version=None, mcp_method=None)
        if "mcp-session-id" in reply.headers:
            session = {"mcp_session_id": reply.headers["mcp-session-id"]}
            self._sessions[path, version] = session
            self.ask_in_session(INITIALIZED, path=path, version=version)
        return reply

    def ask_in_session(
        self, body: Any, *, path: str = PATH, version: str = HANDSHAKE, **options: Any
    ) -> Reply:
        """Send what belongs to a session, which is opened before the first message."""
        if (path, version) not in self._sessions:
            reply = self.open(path, version)
            if (path, version) not in self._sessions:
                return reply
        headers = {"mcp_protocol_version": version, "mcp_method": None, "mcp_name": None}
        session = self._sessions[path, version]
        return self.send(body, path=path, **headers, **session, **options)

    def ask(
        self, method: str, params: Mapping[str, Any], *, version: str = MODERN, **options: Any
    ) -> Reply:
        """Send a request that wants to be told of progress."""
        if version == MODERN:
            return self.send(message(method, params, progressToken=1), **options)
        params = {**params, "_meta": {"progressToken": 1}}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask_in_session(body, version=version, **options)

    def call(self, tool: str, **options: Any) -> Reply:
        """Call a tool without arguments."""
        return self.ask("tools/call", {"name": tool, "arguments": {}}, **options)

    def close(self) -> None:
        self._http.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many calls had rows of another tenant, and how many others not exactly their own."""

    calls: int
    foreign: int
    wrong: int
    example: str


class Load:
    """Clients of both tenants that call at the same time."""

    def __init__(self, server: Server) -> None:
        self._clients = [
            {tenant: Client(server, tenant) for tenant in TENANTS} for _ in range(AT_ONCE)
        ]

    def run(self, kind: str, calls: int) -> Outcome:
        """Call so many times, for a random tenant and in a random revision each time."""
        path, method, params = KINDS[kind]

        def run_one(clients: Mapping[str, Client]) -> list[tuple[str, str, Reply]]:
            replies = []
            for _ in range(calls // AT_ONCE):
                tenant = random.choice(TENANTS)
                version = random.choice((MODERN, HANDSHAKE))
                reply = clients[tenant].ask(method, params, version=version, path=path)
                replies.append((tenant, version, reply))
            return replies

        with ThreadPoolExecutor(AT_ONCE) as pool:
            replies = [reply for part in pool.map(run_one, self._clients) for reply in part]
        foreign, wrong, example = 0, 0, ""
        for tenant, version, reply in replies:
            own = {f"{tenant}-{number}" for number in (1, 2, 3)}
            if reply.status == 200 and reply.rows == own:
                continue
            foreign += bool(reply.rows - own)
            wrong += not reply.rows - own
            example = example or f"{tenant}, {version}: {reply.status} {reply.text}"
        return Outcome(calls=len(replies), foreign=foreign, wrong=wrong, example=example)

    def close(self) -> None:
        for clients in self._clients:
            for client in clients.values():
                client.close()
