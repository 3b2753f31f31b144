"""An invalid message of the server is detected wherever the server sends it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mcp_django.protocol import envelope, projection
from mcp_django.test import MCPClient
from mcp_django.transports import client_requests
from tests.kit.drivers import Connection, headers_for, message, send
from tests.kit.servers import open_to_all, post, through_view
from tests.published.listening import Violation, verdicts
from tests.transports.asgi import MOUNTS
from tests.transports.http_session import legacy
from tests.transports.http_session.asking import PARLOR, ready
from tests.transports.http_session.handshakes import (
    OPEN,
    A,
    Peer,
    call,
    initialize,
    opened,
    request,
)
from tests.transports.mounts import ask
from tests.transports.stdio_process import StdioProcess

pytest.importorskip("jsonschema_rs")

LIST = message("tools/list")
WRONG = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "add"}]}}
REASON = '"inputSchema" is a required property'


@pytest.fixture(autouse=True, name="heard")
def _wrong(monkeypatch, settings):
    """The violations that are kept apart; the server lists tools without their input schema."""
    settings.ROOT_URLCONF = "tests.transports.urls"
    project = projection.project_result

    def project_result(method: str, *args: Any, **options: Any) -> dict[str, Any]:
        result = project(method, *args, **options)
        return {**result, "tools": [{"name": "add"}]} if method == "tools/list" else result

    monkeypatch.setattr(projection, "project_result", project_result)
    with verdicts.apart() as heard:
        yield heard


@pytest.fixture
def server():
    made = open_to_all()
    made.tool("add", atomic=False)(lambda: "added")
    return made


# Our own drivers --------------------------------------------------------------------------------


@pytest.mark.every_mount
@pytest.mark.parametrize("name", MOUNTS)
async def test_a_document_is_heard_at_every_mount(name):
    with pytest.raises(Violation, match=REASON):
        await send(MOUNTS[name], OPEN, LIST)


async def test_what_a_test_does_not_read_is_heard_when_it_leaves():
    raw = json.dumps(LIST).encode()
    connection = Connection(MOUNTS["raw"], OPEN, raw, headers_for(LIST), "POST")
    await connection.task
    with pytest.raises(Violation, match=REASON):
        await connection.close()


async def test_a_document_over_wsgi_is_heard(heard):
    await ask("wsgi", OPEN, LIST)
    assert REASON in heard.pop()


def test_a_document_for_the_client_of_django_is_heard(heard):
    post(OPEN, LIST)
    assert REASON in heard.pop()


def test_a_document_of_a_view_is_heard(server):
    with pytest.raises(Violation, match=REASON):
        through_view(server, json.dumps(LIST), headers_for(LIST))


@pytest.mark.every_mount
@pytest.mark.parametrize("name", MOUNTS)
async def test_an_event_is_heard_at_every_mount(name, monkeypatch):
    monkeypatch.setattr(projection, "project_notification", lambda *args: {"progress": "far"})
    params = {"name": "stagger", "arguments": {}}
    body = message("tools/call", params, **{envelope.PROGRESS_TOKEN: "t"})
    with pytest.raises(Violation, match="ProgressNotification"):
        await send(MOUNTS[name], "/stage/mcp", body)


@pytest.mark.django_db(transaction=True)
async def test_a_session_is_heard_in_its_revision():
    peer = await opened("raw", version=A)
    with pytest.raises(Violation, match=f"is no message of {A}"):
        await peer.result("tools/list")


@pytest.mark.django_db(transaction=True)
async def test_a_question_is_heard(monkeypatch):
    monkeypatch.setattr(
        client_requests, "project_client_request", lambda *args, **options: {"message": "?"}
    )
    peer: Peer = await ready("raw")
    assert peer.path == PARLOR
    async with peer.stream(call("name")) as connection:
        with pytest.raises(Violation, match="ElicitRequest"):
            await connection.event()
        connection.exchange.wrong.clear()


@pytest.mark.django_db(transaction=True)
async def test_the_stream_of_the_old_transport_is_heard(heard):
    async with legacy.opened(MOUNTS["raw"]) as stream:
        await stream.ask(initialize(A, id=0))
        with pytest.raises(Violation, match=f"of {A}, as an answer to tools/list"):
            await stream.ask(request("tools/list"))
        stream.connection.exchange.wrong.clear()


@pytest.mark.outside
def test_lines_of_another_process_are_heard(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", f"input(); print('''{json.dumps(WRONG)}''')"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    running = StdioProcess(process, tmp_path / "nothing.txt")
    with closing(running):
        running.send(LIST)
        with pytest.raises(Violation, match=REASON):
            running.next()


# The test client of this package ----------------------------------------------------------------


@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
@pytest.mark.django_db(transaction=True)
def test_the_test_client_is_heard(transport, version, server, heard):
    with MCPClient(server=server, transport=transport, protocol_version=version) as client:
        client.list_tools()
    assert f"is no message of {version}, as an answer to tools/list" in heard.pop()


@pytest.mark.django_db(transaction=True)
def test_the_test_client_is_heard_over_the_old_transport(server, heard):
    with MCPClient(server=server, transport="sse", protocol_version=A) as client:
        client.list_tools()
    assert f"is no message of {A}, as an answer to tools/list" in heard.pop()


async def test_an_asynchronous_test_client_is_heard(server, heard):
    await MCPClient(server=server).arequest("tools/list")
    assert REASON in heard.pop()


async def test_a_subscription_of_the_test_client_is_heard(server, monkeypatch, heard):
    monkeypatch.setattr(projection, "project_notification", lambda *args: {})
    async with MCPClient(server=server).listen(lists=["tools"]) as messages:
        await anext(messages)
    assert "SubscriptionsAcknowledgedNotification" in heard.pop()


# Other processes --------------------------------------------------------------------------------


class Mistaken(BaseHTTPRequestHandler):
    """Sends an invalid message, as a document or as an event of a stream."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(WRONG).encode()
        kind = "application/json"
        if self.path == "/stream":
            kind, body = "text/event-stream", b"data: " + body + b"\n\n"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


@pytest.fixture
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), Mistaken) as serving:
        # The seconds between its checks whether to stop.
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["/document", "/stream"])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_what_comes_over_a_socket_is_heard(library, path, url, heard):
    http = pytest.importorskip(library)
    with http.Client(trust_env=False) as client:
        assert client.post(f"{url}{path}", json=LIST).status_code == 200
    assert REASON in heard.pop()
    async with http.AsyncClient(trust_env=False) as client:
        assert (await client.post(f"{url}{path}", json=LIST)).status_code == 200
    assert REASON in heard.pop()
