"""Answers that are sent before the request body is read, and whether the client receives them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.kit.processes import HOST, serving

pytestmark = pytest.mark.outside

PATIENCE = 60
# More than the buffers between two processes hold, and less than is refused for its length.
SIZE = 4_000_000


# daphne reads the whole body before it calls the application.
@pytest.fixture(scope="module", params=["uvicorn", "hypercorn", "granian"])
def server(request, tmp_path_factory):
    directory: Path = tmp_path_factory.mktemp("server")
    settings = "tests.transports.impatient_settings"
    app = "tests.transports.asgi:application"
    with serving(request.param, app, directory, settings=settings) as running:
        yield running


@pytest.fixture
def client(server):
    with socket.create_connection((HOST, server.port), timeout=PATIENCE) as connected:
        yield connected


def head(*lines: str, path: str = "/open/mcp") -> bytes:
    named = (
        f"Host: {HOST}",
        "Content-Type: application/json",
        f"Content-Length: {SIZE}",
        *lines,
    )
    return "\r\n".join((f"POST {path} HTTP/1.1", *named, "", "")).encode()


def answer(client: socket.socket) -> bytes:
    """Return one answer with its body, and read no more."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += client.recv(65536) or pytest.fail(f"The connection was closed after {got!r}.")
    top, _, body = got.partition(b"\r\n\r\n")
    (length,) = (
        int(line.partition(b":")[2])
        for line in top.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += client.recv(65536)
    return got


# granian closes a connection as soon as an answer has its length.
@pytest.mark.parametrize("server", ["uvicorn", "hypercorn"], indirect=True)
@pytest.mark.parametrize("sent", [0, 1000])
def test_a_refusal_comes_before_the_body_which_may_be_sent_all_the_same(client, sent):
    client.sendall(head("Origin: https://evil.example") + b"x" * sent)
    assert b" 403 " in answer(client)
    client.sendall(b"x" * (SIZE - sent))


def test_a_client_that_sends_all_before_it_reads_gets_to_see_the_refusal(client):
    client.sendall(head(path="/mcp") + b"x" * SIZE)
    assert b" 401 " in answer(client)


@pytest.mark.parametrize("sent", [0, 1000])
def test_a_body_that_stops_is_answered_and_its_connection_closed(client, sent):
    client.sendall(head() + b"x" * sent)
    assert b" 408 " in answer(client)
    assert client.recv(1) == b""
