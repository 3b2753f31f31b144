"""POSTs in chunks under WSGI, as clients of the C# SDK send them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponseBase

from mcp_django.transports import bodies
from mcp_django.transports.exchange import MAX_UNVERIFIED_BYTES
from tests.kit.drivers import headers_for, message
from tests.kit.servers import person, token_for
from tests.transports.chunks import encode, send, silent, terminated, undecoded

pytestmark = pytest.mark.django_db

HERE = __name__
OPEN, CLOSED = "/open/mcp", "/mcp"
PING = message("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
PING_BYTES = json.dumps(PING).encode()


def environ_of(body: dict[str, Any], **changes: str | None) -> dict[str, str]:
    """Return the headers of a message as a WSGI server passes them on."""
    headers = headers_for(body, **changes)
    named = {name.upper().replace("-", "_"): value for name, value in headers.items()}
    left_out = {"CONTENT_TYPE", "CONTENT_LENGTH", "HOST"}
    return {f"HTTP_{name}": str(value) for name, value in named.items() if name not in left_out}


def post(given: Mapping[str, Any], path: str = OPEN, **options: Any) -> Any:
    return send(path, given, **environ_of(PING), **options)


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.content
    text: str = response.json()["result"]["content"][0]["text"]
    return text


def refusal_of(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["message"]


class Uwsgi(SimpleNamespace):
    """The module that uWSGI puts into its processes."""

    def __init__(self, *chunks: bytes, **options: Any) -> None:
        super().__init__(opt=options)
        self._chunks = [*chunks]

    def chunked_read(self) -> bytes:
        if not self._chunks:
            raise OSError("unable to receive chunked part")
        return self._chunks.pop(0)


# What is read -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("kind", [terminated, undecoded])
def test_a_body_in_chunks_is_read(kind, size):
    body = encode(PING_BYTES, size=size) if kind is undecoded else PING_BYTES
    assert text_of(post(kind(body))) == "hi"


def test_a_coding_may_be_written_in_capitals():
    assert text_of(post(terminated(PING_BYTES), coding="Chunked ")) == "hi"


def test_a_body_without_length_and_coding_is_read_where_the_server_ends_it():
    """As over HTTP/2."""
    assert text_of(post(terminated(PING_BYTES), coding=None)) == "hi"


def test_a_body_is_read_as_uwsgi_gives_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "uwsgi", Uwsgi(PING_BYTES[:9], PING_BYTES[9:], b""))
    given = {"wsgi.input": BytesIO(), "uwsgi.version": b"2.0.30"}
    assert text_of(post(given)) == "hi"


def test_extensions_and_trailers_are_skipped():
    raw = b"%x ;a=b\r\n%b\r\n0;c\r\nX-Trailer: a\r\nX-More: b\r\n\r\nGET / HTTP/1.1\r\n"
    connection = BytesIO(raw % (len(PING_BYTES), PING_BYTES))
    assert text_of(post({"wsgi.input": bodies.LimitedStream(connection, 0)})) == "hi"
    # The next request begins where the body ended.
    assert connection.read() == b"GET / HTTP/1.1\r\n"


@pytest.mark.parametrize("kind", [terminated, undecoded])
def test_middleware_that_read_an_empty_body_before_changes_nothing(kind, settings):
    settings.MIDDLEWARE = [f"{HERE}.logs_the_body", *settings.MIDDLEWARE]
    body = encode(PING_BYTES) if kind is undecoded else PING_BYTES
    response = post(kind(body))
    assert text_of(response) == "hi"
    # After the view, the middleware sees the whole body.
    assert response["X-Seen"] == f"0 {len(PING_BYTES)}"


def logs_the_body(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    def middleware(request: HttpRequest) -> HttpResponseBase:
        before = len(request.body)
        assert not request.POST
        response = get_response(request)
        response["X-Seen"] = f"{before} {len(request.body)}"
        return response

    return middleware


def test_a_body_that_middleware_decodes_is_taken_as_it_is(settings):
    settings.MIDDLEWARE = [f"{HERE}.decodes", *settings.MIDDLEWARE]
    assert text_of(post(silent(PING_BYTES))) == "hi"


def decodes(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    def middleware(request: HttpRequest) -> HttpResponseBase:
        request._body = request.META["wsgi.input"].read()
        return get_response(request)

    return middleware


# What is not read ---------------------------------------------------------------------------------


def test_a_server_that_does_not_decode_is_named_as_the_reason():
    assert refusal_of(post(silent(PING_BYTES))) == (411, bodies.NOT_DECODED)
    assert "Content-Length" in bodies.NOT_DECODED


def test_uwsgi_without_its_option_is_told_which(monkeypatch):
    given = {"wsgi.input": BytesIO(), "uwsgi.version": b"2.0.30"}
    monkeypatch.setitem(sys.modules, "uwsgi", Uwsgi(http=b":80"))
    status, text = refusal_of(post(given))
    assert (status, text.endswith("uWSGI does with --http-chunked-input.")) == (411, True)
    monkeypatch.setitem(sys.modules, "uwsgi", Uwsgi(PING_BYTES, **{"http-socket": b":80"}))
    assert refusal_of(post(given)) == (400, bodies.MALFORMED)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n",
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"3\r\nhello\r\n0\r\n\r\n",
        b"ff\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"5\r\nhello\r\n0\r\n",
        b"5\r\nhello\r\n0\r\nX: a",
        b"5\r\nhello\r\n0\r\n" + b"X: a\r\n" * 33 + b"\r\n",
        b"5;" + b"a" * 2000 + b"\r\nhello\r\n0\r\n\r\n",
        b"1" * 17 + b"\r\nhello",
    ],
)
def test_malformed_chunks_are_refused_and_the_connection_is_closed(raw):
    response = post(undecoded(raw))
    assert response.status_code == 400
    # The development server closes a connection after an answer without a length.
    assert response.streaming
    assert "Content-Length" not in response.headers
    error = json.loads(response.getvalue())["error"]
    assert error["message"] == bodies.MALFORMED


def test_what_the_servers_own_reader_raises_is_a_malformed_body():
    class InvalidChunkSize(Exception):
        pass

    class Input(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise InvalidChunkSize

    given = {"wsgi.input": Input(), "wsgi.input_terminated": True}
    assert refusal_of(post(given)) == (400, bodies.MALFORMED)


def test_a_body_that_somebody_has_taken_is_not_called_truncated():
    assert refusal_of(post(terminated(b""))) == (400, bodies.EMPTY)


def test_another_coding_is_refused():
    status, text = refusal_of(post(terminated(PING_BYTES), coding="gzip, chunked"))
    assert (status, "'gzip, chunked'" in text) == (501, True)


@pytest.mark.parametrize("kind", [terminated, silent])
def test_two_lengths_are_refused(kind):
    given = {**kind(PING_BYTES), "CONTENT_LENGTH": str(len(PING_BYTES))}
    assert refusal_of(post(given)) == (400, bodies.TWO_LENGTHS)


class Endless:
    """A body without an end, which counts the bytes that are read."""

    def __init__(self, unit: bytes) -> None:
        self.unit = unit
        self.taken = 0

    def read(self, size: int) -> bytes:
        assert size > 0
        part = self.unit * (size // len(self.unit) or 1)
        self.taken += len(part)
        return part[:size]

    def readline(self, size: int) -> bytes:
        self.taken += 7
        return b"10000\r\n"


def test_an_endless_body_is_read_to_the_limit(settings):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 3 * bodies.PART_BYTES}
    body = Endless(b" ")
    given = {"wsgi.input": body, "wsgi.input_terminated": True}
    status, text = refusal_of(post(given))
    assert (status, text) == (413, f"The body is over {3 * bodies.PART_BYTES} bytes.")
    assert body.taken == 4 * bodies.PART_BYTES


def test_of_an_unknown_caller_only_a_part_is_read():
    body = Endless(b" ")
    given = {"wsgi.input": body, "wsgi.input_terminated": True}
    assert post(given, CLOSED).status_code == 401
    assert body.taken <= MAX_UNVERIFIED_BYTES + bodies.PART_BYTES


def test_of_a_known_caller_all_is_read():
    _, secret = token_for(person())
    added = message("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
    body = b" " * 3 * MAX_UNVERIFIED_BYTES + json.dumps(added).encode()
    headers = environ_of(added, authorization=f"Bearer {secret}")
    assert text_of(send(CLOSED, terminated(body), **headers)) == "5"


def test_a_refused_request_closes_the_connection_of_the_development_server():
    raw = encode(PING_BYTES)
    response = post(undecoded(raw), HTTP_ORIGIN="https://evil.example")
    assert (response.status_code, response.streaming) == (403, True)
    # The connection is kept open if the body was read to its end.
    assert not post(undecoded(raw)).streaming
    # Other servers manage their connections themselves.
    assert not post(terminated(raw), HTTP_ORIGIN="https://evil.example").streaming
