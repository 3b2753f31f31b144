"""POSTs in chunks, sent as bytes to WSGI and ASGI servers: read, or refused with a reason."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.headers import FORM, JSON
from mcp_django.protocol.revisions import LATEST
from mcp_django.transports import bodies
from tests.kit.processes import HOST, REPOSITORY, START_SECONDS, WSGI, Server, serving
from tests.management.console import attempt
from tests.transports.chunks import encode

pytest.importorskip("oauth2_provider")
pytestmark = pytest.mark.outside

SETTINGS = "tests.transports.chunked_settings"
SITE = "tests.transports.chunked_site"
PATIENCE = 60
UNREAD = "uWSGI, router without its option"
READING = [kind for kind in WSGI if kind != UNREAD]
# Servers that keep a connection for the next request.
KEEPING = {"runserver", "gunicorn, gthread", "granian, WSGI"}
ASGI = ["uvicorn", "daphne", "granian", "hypercorn"]
# Servers that do not distinguish a body that is cut off from a body that has ended.
CREDULOUS = {"granian, WSGI", "uWSGI", "uWSGI, router"}
CLIENT = {"name": "Example", "version": "1.0.0.0"}
PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
FIRST = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("database") / "site.sqlite3"
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0"],
        cwd=REPOSITORY,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": SETTINGS, "MCP_TEST_DATABASE": str(path)},
        check=True,
        timeout=START_SECONDS,
    )
    return path


@pytest.fixture(scope="module")
def kind(request):
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def server(kind, database, tmp_path_factory):
    app = f"{SITE}:{'wsgi' if kind in WSGI else 'asgi'}"
    directory = tmp_path_factory.mktemp("server")
    environ = {"MCP_TEST_DATABASE": str(database)}
    with serving(kind, app, directory, settings=SETTINGS, **environ) as running:
        yield running


def on(*kinds: str) -> Any:
    return pytest.mark.parametrize("kind", kinds, indirect=True, scope="module")


# Requests and answers as bytes --------------------------------------------------------------------


class Connection:
    """A connection of a client, whose answers are read one after the other."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((HOST, server.port), timeout=PATIENCE)
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end(self) -> None:
        """Send nothing more."""
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return the next answer: status, headers and body."""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        top, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = top.decode().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        status = int(first.split()[1])
        if "content-length" in headers:
            length = int(headers["content-length"])
            while len(self._rest) < length:
                self._more()
            body, self._rest = self._rest[:length], self._rest[length:]
        elif status in (202, 204) and headers.get("transfer-encoding") is None:
            body = b""
        else:
            body, self._rest = self._rest + self.remaining(), b""
        return status, headers, body

    def remaining(self) -> bytes:
        """Return the bytes that arrive until the server closes the connection."""
        parts = []
        with suppress(ConnectionResetError):
            while part := self._socket.recv(65536):
                parts.append(part)
        return b"".join(parts)

    def _more(self) -> None:
        self._rest += self._socket.recv(65536) or pytest.fail(f"closed after {self._rest!r}")


def head(path: str, *lines: str, content_type: str = JSON, address: str = "203.0.113.1") -> bytes:
    named = (
        f"POST {path} HTTP/1.1",
        f"Host: {HOST}",
        f"Accept: {JSON}, text/event-stream",
        f"X-Forwarded-For: {address}",
        f"Content-Type: {content_type}",
        *(lines or ("Transfer-Encoding: chunked",)),
    )
    return "\r\n".join((*named, "", "")).encode()


def ask(server: Server, request: bytes) -> tuple[int, Any]:
    with Connection(server) as connection:
        connection.send(request)
        status, _, body = connection.answer()
    return status, json.loads(body)


REGISTRATION = json.dumps({"redirect_uris": ["http://127.0.0.1/callback"], "client_name": "C"})
# The answer that each endpoint gives only if it has read the body.
ENDPOINTS = [
    ("/mcp", JSON, json.dumps(FIRST), 200, {"jsonrpc": "2.0", "id": 1}),
    ("/oauth/register", JSON, REGISTRATION, 201, {"client_name": "C"}),
    ("/oauth/token", FORM, "grant_type=none", 400, {"error": "unsupported_grant_type"}),
    ("/oauth/revoke", FORM, "token=a&client_id=b", 401, {"error": "invalid_client"}),
]


@on(*READING, *ASGI)
@pytest.mark.parametrize(("path", "content_type", "text", "status", "part"), ENDPOINTS)
def test_each_endpoint_reads_chunks(server, path, content_type, text, status, part):
    for size in (5, 1000):
        request = head(path, content_type=content_type) + encode(text.encode(), size=size)
        answered, body = ask(server, request)
        assert answered == status, body
        assert {name: body[name] for name in part} == part


@on(UNREAD)
@pytest.mark.parametrize(("path", "content_type", "text"), [endpoint[:3] for endpoint in ENDPOINTS])
def test_a_body_that_the_server_withholds_is_answered_with_the_way_out(
    server, path, content_type, text
):
    status, body = ask(server, head(path, content_type=content_type) + encode(text.encode()))
    assert status == 411
    reason = body["error"]["message"] if path == "/mcp" else body["error_description"]
    assert reason == f"{bodies.NOT_DECODED} uWSGI does with --http-chunked-input."


@on("granian, WSGI")
def test_a_body_over_http_2_needs_no_length(server):
    from h2.connection import H2Connection
    from h2.events import DataReceived, StreamEnded

    client = H2Connection()
    client.initiate_connection()
    pairs = {":method": "POST", ":path": "/mcp", ":scheme": "http", ":authority": HOST}
    client.send_headers(1, [*pairs.items(), ("content-type", JSON)])
    client.send_data(1, json.dumps(FIRST).encode(), end_stream=True)
    events: list[Any] = []
    with socket.create_connection((HOST, server.port), timeout=PATIENCE) as connected:
        while not any(isinstance(event, StreamEnded) for event in events):
            connected.sendall(client.data_to_send())
            events += client.receive_data(connected.recv(65536))
    answer = b"".join(event.data for event in events if isinstance(event, DataReceived))
    assert json.loads(answer)["result"]["serverInfo"]["name"] == "open"


@on("runserver", "uWSGI", UNREAD, "uvicorn")
def test_the_doctor_tries_a_body_in_chunks(server, kind):
    outcome = attempt("doctor", f"{server.url}/mcp", "--host", "vscode", "--json")
    steps = json.loads(outcome.out)["hosts"][0]["steps"]
    (chunked_step,) = [step for step in steps if step["step"] == "chunked"]
    assert chunked_step["verdict"] == ("warned" if kind == UNREAD else "ok")
    if kind == UNREAD:
        assert chunked_step["found"].startswith("411 instead of 400")


# The client of the C# SDK -------------------------------------------------------------------------


class CSharpClient(ExitStack):
    """Messages as version 2.2 of the C# SDK and .NET's SocketsHttpHandler write them.

    JsonContent has no length, so each message is chunked.
    """

    def __init__(self, server: Server, *, keeps: bool) -> None:
        super().__init__()
        self._server = server
        self._keeps = keeps
        self._connection: Connection | None = None
        self.headers: dict[str, str] = {}

    def say(self, message: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        """Send a message and return its answer; use a new connection if the server keeps none."""
        if self._connection is None or not self._keeps:
            self._connection = self.enter_context(Connection(self._server))
        named = {**self.headers, "Mcp-Method": message["method"]}
        if message["method"] == "tools/call":
            named["Mcp-Name"] = message["params"]["name"]
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: {HOST}:{self._server.port}",
            "Accept: application/json, text/event-stream",
            *(f"{name}: {value}" for name, value in named.items()),
            "Transfer-Encoding: chunked",
            "Content-Type: application/json",
        ]
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        head = "\r\n".join((*lines, "", "")).encode()
        self._connection.send(head + encode(body, size=16 * 1024))
        status, headers, answer = self._connection.answer()
        return status, headers, json.loads(answer) if answer else None


LONG = "ä" * 40_000


@on(*READING)
def test_a_conversation_of_the_csharp_sdk_in_a_session(server, kind):
    with CSharpClient(server, keeps=kind in KEEPING) as client:
        status, headers, answer = client.say({"id": 1, "method": "initialize", "params": PARAMS})
        assert (status, answer["result"]["protocolVersion"]) == (200, "2025-11-25")
        client.headers["Mcp-Session-Id"] = headers["mcp-session-id"]
        client.headers["MCP-Protocol-Version"] = "2025-11-25"
        assert client.say({"method": "notifications/initialized"})[0] == 202
        status, _, answer = client.say({"id": 2, "method": "tools/list", "params": {}})
        assert (status, answer["result"]["tools"][0]["name"]) == (200, "echo")
        params = {"name": "echo", "arguments": {"text": LONG}}
        status, _, answer = client.say({"id": 3, "method": "tools/call", "params": params})
        assert (status, answer["result"]["content"][0]["text"]) == (200, LONG)


@on(*READING)
def test_a_conversation_of_the_csharp_sdk_without_a_session(server, kind):
    with CSharpClient(server, keeps=kind in KEEPING) as client:
        client.headers["MCP-Protocol-Version"] = LATEST.version
        envelope = {PROTOCOL_VERSION: LATEST.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
        params: dict[str, Any] = {"_meta": envelope}
        status, _, answer = client.say({"id": 1, "method": "server/discover", "params": params})
        assert status == 200
        assert LATEST.version in answer["result"]["supportedVersions"]
        status, _, answer = client.say({"id": 2, "method": "tools/list", "params": params})
        assert (status, answer["result"]["tools"][0]["name"]) == (200, "echo")
        params |= {"name": "echo", "arguments": {"text": LONG}}
        status, _, answer = client.say({"id": 3, "method": "tools/call", "params": params})
        assert (status, answer["result"]["content"][0]["text"]) == (200, LONG)


# Bad input ----------------------------------------------------------------------------------------

NEXT = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@on(*READING)
@pytest.mark.parametrize(
    "chunks",
    [b"zz\r\nhello\r\n0\r\n\r\n", b"3\r\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n"],
    ids=["no size", "too short", "no end"],
)
def test_a_malformed_chunk_ends_the_connection(server, kind, chunks):
    with Connection(server) as connection:
        connection.send(head("/mcp") + chunks + NEXT)
        status, _, body = connection.answer()
        assert status == 400
        if kind not in CREDULOUS:
            assert json.loads(body)["error"]["message"] == bodies.MALFORMED
        # The bytes that follow are not taken for a request.
        assert b"HTTP/1.1" not in connection.remaining()


@on(*READING)
def test_a_body_that_breaks_off_is_refused(server, kind):
    with Connection(server) as connection:
        connection.send(head("/mcp") + b"ff\r\n" + json.dumps(FIRST).encode()[:-1])
        connection.end()
        if kind == "uWSGI, router":
            # The router drops the request.
            assert connection.remaining() == b""
            return
        assert connection.answer()[0] == 400


@on(*READING, *ASGI)
def test_two_lengths_are_not_two_opinions(server, kind):
    body = encode(json.dumps(FIRST).encode())
    both = ("Transfer-Encoding: chunked", f"Content-Length: {len(body)}")
    for path in ("/mcp", "/oauth/register"):
        with Connection(server) as connection:
            connection.send(head(path, *both) + body)
            status, _, answer = connection.answer()
            if kind in ("granian", "granian, WSGI"):
                # granian drops Content-Length, as RFC 9112 (section 6.1) allows as well.
                assert status == (200 if path == "/mcp" else 400)
                assert connection.remaining() == b""
                continue
            assert status == 400
        # gunicorn and daphne refuse it themselves.
        if not kind.startswith(("gunicorn", "daphne")):
            assert bodies.TWO_LENGTHS in answer.decode()


@on(*READING)
def test_an_endless_body_is_refused_and_not_kept(server, kind):
    ask(server, head("/mcp") + encode(json.dumps(FIRST).encode()))
    before = memory(server)
    most = before
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with Connection(server) as connection:
        connection.send(head("/mcp"))
        answered = b""
        # More than fits into the buffers after the server stopped reading.
        for sent in range(1024):
            try:
                connection.send(chunk)
            except OSError:
                break
            if sent % 64 == 0:
                most = max(most, memory(server))
            if is_readable(connection):
                break
        with suppress(ConnectionResetError, pytest.fail.Exception):
            status, _, answered = connection.answer()
            assert status == 413
    most = max(most, memory(server))
    assert most - before < 32 * MIB, f"{before / MIB:.0f} MiB grew to {most / MIB:.0f}"
    assert sent < 1000
    assert ask(server, head("/mcp") + encode(json.dumps(FIRST).encode()))[0] == 200
    # A client that still sends may see a reset instead of the answer.
    assert not answered or b"over 4194304 bytes" in answered


def is_readable(connection: Connection) -> bool:
    return bool(select.select([connection._socket], [], [], 0)[0])


def memory(server: Server) -> int:
    """Return the resident memory of the server's processes in bytes."""
    group = os.getpgid(server.process.pid)
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ProcessLookupError):
            if os.getpgid(int(process.name)) == group:
                total += int((process / "statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")
