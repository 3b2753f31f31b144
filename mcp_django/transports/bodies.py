"""Reading the body of a POST, with or without a Content-Length.

A WSGI application may read no more than Content-Length bytes (PEP 3333), so Django sees an empty
body in a request with ``Transfer-Encoding: chunked`` or one of HTTP/2 without a length. The C# SDK
sends all messages and registrations in chunks, as .NET does with JSON of unknown length. Under ASGI
the server decodes the chunks before Django reads the body.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import Any

from django.core.handlers.wsgi import LimitedStream, WSGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from mcp_django.transports.exchange import MAX_UNVERIFIED_BYTES

PART_BYTES = 64 * 1024
TWO_LENGTHS = (
    "The request has both Content-Length and Transfer-Encoding. Send one of them; a proxy that "
    "decodes a body has to remove Transfer-Encoding."
)
NOT_DECODED = (
    "The web server of this site does not decode bodies with Transfer-Encoding: chunked. Send the "
    "body with Content-Length, or have the site served by a server that decodes them."
)
# Without this option, the HTTP router of uWSGI drops chunked bodies.
UWSGI_OPTION = "http-chunked-input"
UWSGI_DECODES = {"http-socket", "http11-socket", "http-raw-body", UWSGI_OPTION}
MALFORMED = "The body is not valid in Transfer-Encoding: chunked, or ends before its last chunk."
EMPTY = (
    "The body is empty. It is not valid in Transfer-Encoding: chunked, or the site's own code has "
    "read it from wsgi.input."
)
# RFC 9112, section 7.1. Extensions are ignored, as the RFC requires of unknown ones; trailers too.
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
MAX_LINE_BYTES = 1024
MAX_TRAILERS = 32


class BodyRefused(Exception):
    """The body of a request is not read; the message explains why, and what would work."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_body(
    request: HttpRequest, most: int, *, check_caller: Callable[[int], None] | None = None
) -> bytes:
    """Return the body of a POST, which ``request.body`` and ``request.POST`` use from then on.

    Django's own limit, which is for forms, does not apply. If middleware has already read a body
    without Content-Length, it got an empty one; the request has the whole body afterwards. When
    more than ``MAX_UNVERIFIED_BYTES`` of such a body have been read, ``check_caller`` is called
    with their number, and may raise an exception.

    Raises:
        BodyRefused: the body has more than ``most`` bytes (413), it cannot be read (411), it is
            malformed (400), or its transfer coding is unknown (501).
    """
    meta = request.META
    length = meta.get("CONTENT_LENGTH")
    if length and "HTTP_TRANSFER_ENCODING" in meta:
        raise BodyRefused(400, TWO_LENGTHS)
    # Python refuses to convert very long digit strings.
    if length and length.isdecimal() and int(length[:20]) > most:
        raise too_long(most)
    if length or not isinstance(request, WSGIRequest) or getattr(request, "_body", b""):
        if not hasattr(request, "_body"):
            request._body = request.read(most + 1)
        if len(request.body) > most:
            raise too_long(most)
        return request.body
    is_chunked = "HTTP_TRANSFER_ENCODING" in meta
    # Not a list: a chunk may be as short as a byte.
    received = bytearray()
    for part in _decoded_parts(request.environ):
        is_checked = len(received) > MAX_UNVERIFIED_BYTES
        received += part
        if len(received) > most:
            raise too_long(most)
        if check_caller and len(received) > MAX_UNVERIFIED_BYTES and not is_checked:
            check_caller(len(received))
    body = bytes(received)
    if is_chunked and not body:
        raise BodyRefused(400, EMPTY)
    # A decoder replaces these headers (RFC 9112, section 7.1.3). A parsed form is parsed again.
    meta.pop("HTTP_TRANSFER_ENCODING", None)
    meta["CONTENT_LENGTH"] = str(len(body))
    request.__dict__.pop("_post", None)
    request.__dict__.pop("_files", None)
    request._body, request._stream = body, BytesIO(body)
    return body


def too_long(most: int) -> BodyRefused:
    """Return the error of a body that has more than ``most`` bytes."""
    return BodyRefused(413, f"The body is over {most} bytes.")


def _decoded_parts(environ: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the decoded parts of the body of a WSGI request without Content-Length.

    Raises:
        BodyRefused: the body cannot be read.
    """
    coding, stream = environ.get("HTTP_TRANSFER_ENCODING"), environ["wsgi.input"]
    parts: Iterator[bytes] = iter(())
    if coding is not None and coding.strip().lower() != "chunked":
        raise BodyRefused(
            501, f"Transfer-Encoding is {coding[:80]!r}; only 'chunked' is supported."
        )
    if environ.get("wsgi.input_terminated"):
        # gunicorn and granian, for example; a body over HTTP/2 has no coding.
        parts = iter(partial(stream.read, PART_BYTES), b"")
    elif coding is not None and "uwsgi.version" in environ:
        parts = _parts_of_uwsgi(sys.modules["uwsgi"])
    elif coding is not None and _is_runserver(environ):
        parts = _parts_of_runserver(stream)
    elif coding is not None:
        raise BodyRefused(411, NOT_DECODED)
    try:
        yield from parts
    except BodyRefused:
        raise
    except Exception as exc:
        # Each server has its own exceptions for malformed chunks.
        raise BodyRefused(400, MALFORMED) from exc


def _parts_of_uwsgi(uwsgi: Any) -> Iterator[bytes]:
    """Yield the chunks as decoded by uWSGI, which does not set ``wsgi.input_terminated``."""
    try:
        part = uwsgi.chunked_read()
    except OSError as exc:
        if UWSGI_DECODES.isdisjoint(uwsgi.opt):
            raise BodyRefused(411, f"{NOT_DECODED} uWSGI does with --{UWSGI_OPTION}.") from exc
        raise
    while part:
        yield part
        part = uwsgi.chunked_read()


def _is_runserver(environ: Mapping[str, Any]) -> bool:
    """Return whether Django's development server limits the connection to Content-Length bytes.

    Django has no public access to the bytes after these, and so none to a chunked body
    (``ServerHandler`` in ``django.core.servers.basehttp``).
    """
    stream = environ["wsgi.input"]
    return type(stream) is LimitedStream and hasattr(stream, "_readline")


def _parts_of_runserver(stream: Any) -> Iterator[bytes]:
    """Yield the chunks of a body that Django's development server has not read."""
    read, read_line = stream._read, stream._readline
    while True:
        match = CHUNK_LINE.fullmatch(read_line(MAX_LINE_BYTES))
        if match is None:
            raise BodyRefused(400, MALFORMED)
        size = int(match[1], 16)
        if size == 0:
            break
        while size:
            part = read(min(size, PART_BYTES))
            if not part:
                raise BodyRefused(400, MALFORMED)
            size -= len(part)
            yield part
        if read(2) != b"\r\n":
            raise BodyRefused(400, MALFORMED)
    for _ in range(MAX_TRAILERS):
        line = read_line(MAX_LINE_BYTES)
        if line == b"\r\n":
            return
        if not line.endswith(b"\r\n"):
            break
    raise BodyRefused(400, MALFORMED)


def end_connection_if_unread(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return a response after which the development server does not read chunks as a request.

    Other servers skip the rest of a body, or close the connection. Django's development server
    closes it after a response without Content-Length, and does not allow a Connection header.
    """
    if "HTTP_TRANSFER_ENCODING" not in request.META or not isinstance(response, HttpResponse):
        return response
    if not isinstance(request, WSGIRequest) or not _is_runserver(request.environ):
        return response
    closing = StreamingHttpResponse([response.content], status=response.status_code)
    closing.headers = response.headers
    del closing["Content-Length"]
    return closing
