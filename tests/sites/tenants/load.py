"""Clients of tenants, which know their tenant by the host name, and a load of both tenants."""

from __future__ import annotations

import http.client
import json
import queue
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urljoin

from mcp_django.protocol import sse
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from mcp_django.protocol.errors import TASKS
from tests.kit.drivers import headers_for, message
from tests.kit.processes import HOST, Server
from tests.sites.tenants.fill import TENANTS
from tests.transports.http_session.handshakes import INITIALIZED, A, D, initialize, request

MODERN, HANDSHAKE = "2026-07-28", D
AT_ONCE = 16
PATIENCE = 60

PATH, GUARDED = "/mcp", "/guarded"
COMPLETED = {
    "ref": {"type": "ref/prompt", "name": "summary"},
    "argument": {"name": "name", "value": ""},
}
# The requests of clients, for the rows of their tenant: functions that read them, and tools that
# are offered to callers who have a row.
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
    "task": (PATH, "tools/call", {"name": "required_task", "arguments": {}}),
}
STREAMS = frozenset({"sync stream", "async stream"})
WITH_TASKS = {CLIENT_CAPABILITIES: {"extensions": {TASKS: {}}}}


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
    def messages(self) -> list[dict[str, Any]]:
        """All messages; without a stream, the answer to a batch is a list of them."""
        events = sse.EventDecoder().feed(self.text.encode()) if self.is_stream else []
        texts = [event.data for event in events if event.data] or [self.text]
        parts = [json.loads(text) for text in texts]
        return [answer for part in parts for answer in (part if isinstance(part, list) else [part])]

    @property
    def response(self) -> dict[str, Any]:
        """The response, which is the last message."""
        return self.messages[-1]


class Client:
    """A client of one tenant, which keeps its connection; `headers` go with every request."""

    def __init__(self, server: Server, tenant: str, **headers: str) -> None:
        self.tenant = tenant
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._port = server.port
        self._http = http.client.HTTPConnection(HOST, server.port, timeout=PATIENCE)
        self.sessions: dict[tuple[str, str], dict[str, str]] = {}

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
        """Begin a session, and return the response."""
        body = initialize(version)
        reply = self.send(body, path=path, mcp_protocol_version=None, mcp_method=None)
        if "mcp-session-id" in reply.headers:
            session = {"mcp_session_id": reply.headers["mcp-session-id"]}
            self.sessions[path, version] = session
            self.ask_in_session(INITIALIZED, path=path, version=version)
        return reply

    def ask_in_session(
        self, body: Any, *, path: str = PATH, version: str = HANDSHAKE, **options: Any
    ) -> Reply:
        """Send a message of a session, which is opened before the first message."""
        if (path, version) not in self.sessions:
            reply = self.open(path, version)
            if (path, version) not in self.sessions:
                return reply
        headers = {"mcp_protocol_version": version, "mcp_method": None, "mcp_name": None}
        session = self.sessions[path, version]
        return self.send(body, path=path, **headers, **session, **options)

    def ask(
        self, method: str, params: Mapping[str, Any], *, version: str = MODERN, **options: Any
    ) -> Reply:
        """Send a request with a progress token."""
        if version == MODERN:
            return self.send(message(method, params, progressToken=1), **options)
        params = {**params, "_meta": {"progressToken": 1}}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask_in_session(body, version=version, **options)

    def call(self, tool: str, **options: Any) -> Reply:
        """Call a tool without arguments."""
        return self.ask("tools/call", {"name": tool, "arguments": {}}, **options)

    def run_task(
        self, params: Mapping[str, Any], *, version: str = MODERN, **options: Any
    ) -> Reply:
        """Call a tool as a task, and wait for its result."""
        if version == HANDSHAKE:
            params = {**params, "task": {"ttl": 60_000}}
            begun = self.ask_in_session(request("tools/call", params), **options)
            task_id = begun.response["result"]["task"]["taskId"]
        else:
            begun = self.send(message("tools/call", params, **WITH_TASKS), **options)
            task_id = begun.response["result"]["taskId"]
        self.task_id = task_id
        deadline = time.monotonic() + PATIENCE
        while True:
            reply = self.ask_for_task(task_id, version=version, **options)
            if reply.response.get("result", {}).get("status") != "working":
                break
            assert time.monotonic() < deadline, reply.text
        if version == HANDSHAKE and "result" in reply.response:
            body = request("tasks/result", {"taskId": task_id})
            return self.ask_in_session(body, **options)
        return reply

    def ask_for_task(self, task_id: str, *, version: str = MODERN, **options: Any) -> Reply:
        """Ask for the status of a task."""
        params = {"taskId": task_id}
        if version == HANDSHAKE:
            return self.ask_in_session(request("tasks/get", params), **options)
        body = message("tasks/get", params, **WITH_TASKS)
        return self.send(body, mcp_name=task_id, **options)

    def listen(self, body: Any, *, verb: str = "POST", path: str = PATH, **headers: Any) -> Stream:
        """Open a stream that has no end, on a connection of its own."""
        named = body if isinstance(body, Mapping) else {}
        host = f"{self.tenant}.tenants.test"
        values = {**headers_for(named, host=host, **headers), **self._headers}
        return Stream(self._port, verb, path, json.dumps(body) if body else None, values)

    def open_get_stream(self, path: str = PATH, **changes: str) -> Stream:
        """Open the GET stream of the session."""
        if (path, HANDSHAKE) not in self.sessions:
            self.open(path)
        headers = {"mcp_protocol_version": HANDSHAKE, "mcp_method": None, "mcp_name": None}
        session = self.sessions[path, HANDSHAKE]
        return self.listen(None, verb="GET", path=path, **headers, **session, **changes)

    def close(self) -> None:
        self._http.close()


class Stream:
    """An open stream; its messages are read in a thread, as they arrive."""

    def __init__(
        self, port: int, verb: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> None:
        self._http = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
        self._http.request(verb, path, body, {**headers, "Accept": "text/event-stream"})
        self._response = self._http.getresponse()
        self.status = self._response.status
        self.events: queue.Queue[sse.ServerSentEvent] = queue.Queue()
        self.text = "" if self.status == 200 else self._response.read().decode()
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        decoder = sse.EventDecoder()
        with suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while chunk := self._response.read1(65536):
                for event in decoder.feed(chunk):
                    if event.data:
                        self.events.put(event)

    def next(self) -> Any:
        """Return the next message, which has to arrive.

        Raises:
            queue.Empty: no message arrives.
        """
        return json.loads(self.events.get(timeout=PATIENCE).data)

    def close(self) -> None:
        with suppress(OSError):
            if self._http.sock is not None:
                self._http.sock.shutdown(socket.SHUT_RDWR)
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

    def __init__(self, server: Server, *, can_stream: bool = True) -> None:
        self._can_stream = can_stream
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
                if kind == "task":
                    reply = clients[tenant].run_task(params, version=version)
                else:
                    reply = clients[tenant].ask(method, params, version=version, path=path)
                replies.append((tenant, version, reply))
            return replies

        with ThreadPoolExecutor(AT_ONCE) as pool:
            replies = [reply for part in pool.map(run_one, self._clients) for reply in part]
        foreign, wrong, example = 0, 0, ""
        for tenant, version, reply in replies:
            own = {f"{tenant}-{number}" for number in (1, 2, 3)}
            is_right = reply.is_stream or not self._can_stream or kind not in STREAMS
            if reply.status == 200 and reply.rows == own and is_right:
                continue
            foreign += bool(reply.rows - own)
            wrong += not reply.rows - own
            example = example or f"{tenant}, {version}: {reply.status} {reply.text}"
        return Outcome(calls=len(replies), foreign=foreign, wrong=wrong, example=example)

    def close(self) -> None:
        for clients in self._clients:
            for client in clients.values():
                client.close()


URI = "items://pages/1"
# Longer than another process would need to notice a change.
QUIET_SECONDS = 1


def open_get_stream(client: Client) -> Stream:
    """Open the GET stream of a session that has subscribed to a resource."""
    client.open()
    subscribed = client.ask_in_session(request("resources/subscribe", {"uri": URI}))
    assert subscribed.response["result"] == {}, subscribed
    return client.open_get_stream()


def open_listener(client: Client) -> Stream:
    """Open the stream of a client that listens for changes of a resource."""
    wanted = {"notifications": {"resourceSubscriptions": [URI]}}
    stream = client.listen(message("subscriptions/listen", wanted))
    assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
    return stream


OPENERS: Mapping[str, Callable[[Client], Stream]] = {
    "session with GET stream": open_get_stream,
    "listen": open_listener,
}


def hear(server: Server, kind: str, calls: int) -> Outcome:
    """Change a resource so many times, for a random tenant: only its own stream may be notified."""
    foreign, wrong, example = 0, 0, ""
    with ExitStack() as stack:
        clients, streams = {}, {}
        for tenant in TENANTS:
            clients[tenant] = stack.enter_context(closing(Client(server, tenant)))
            streams[tenant] = stack.enter_context(closing(OPENERS[kind](clients[tenant])))
        for _ in range(calls):
            tenant = random.choice(TENANTS)
            reply = clients[tenant].call("touch")
            try:
                heard = streams[tenant].next()
            except queue.Empty:
                wrong, example = wrong + 1, f"{tenant} did not hear of its change"
                continue
            is_right = heard.get("params", {}).get("uri") == URI
            if reply.rows != {f"{tenant}-{number}" for number in (1, 2, 3)} or not is_right:
                wrong, example = wrong + 1, f"{tenant}: {reply.text} {heard}"
        for tenant, stream in streams.items():
            with suppress(queue.Empty):
                while True:
                    event = stream.events.get(timeout=QUIET_SECONDS)
                    foreign, example = foreign + 1, f"{tenant} heard of more: {event}"
    return Outcome(calls=calls, foreign=foreign, wrong=wrong, example=example)


class OlderClient:
    """A client of HTTP+SSE."""

    def __init__(self, client: Client) -> None:
        self._client = client
        headers = {"mcp_protocol_version": None, "mcp_method": None}
        self.stream = client.listen(None, verb="GET", path=f"{PATH}/sse", **headers)
        self._path = urljoin(f"{PATH}/sse", self.stream.events.get(timeout=PATIENCE).data)

    def __enter__(self) -> Self:
        assert self.ask(initialize(A, id="first"))["result"]["protocolVersion"] == A
        self.post(INITIALIZED)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stream.close()

    def post(self, body: Any, *, host: Client | None = None) -> int:
        """Post a message, perhaps at the host of another tenant, and return the status."""
        headers = {"mcp_protocol_version": None, "mcp_method": None, "mcp_name": None}
        return (host or self._client).send(body, path=self._path, **headers).status

    def ask(self, body: Any) -> Any:
        """Post a request, and return its response."""
        assert self.post(body) == 202
        while (answer := self.stream.next()).get("id") != body["id"]:
            pass
        return answer


def ask_older(server: Server, calls: int) -> Outcome:
    """Ask so many times over HTTP+SSE, for a random tenant and of a random kind."""
    kinds = [
        (method, params)
        for kind, (path, method, params) in KINDS.items()
        if path == PATH and kind != "task"
    ]
    foreign, wrong, example = 0, 0, ""
    with ExitStack() as stack:
        clients = {
            tenant: stack.enter_context(
                OlderClient(stack.enter_context(closing(Client(server, tenant))))
            )
            for tenant in TENANTS
        }
        for number in range(calls):
            tenant = random.choice(TENANTS)
            method, params = random.choice(kinds)
            answer = str(clients[tenant].ask(request(method, params, id=number)))
            rows = set(re.findall(rf"\b(?:{'|'.join(TENANTS)})-\d+", answer))
            own = {f"{tenant}-{n}" for n in (1, 2, 3)}
            if rows != own:
                foreign += bool(rows - own)
                wrong += not rows - own
                example = f"{tenant}: {answer}"
    return Outcome(calls=calls, foreign=foreign, wrong=wrong, example=example)
