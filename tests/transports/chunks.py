"""Requests whose body comes in chunks, as bytes and as WSGI servers pass them on."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from django.core.handlers.wsgi import LimitedStream
from django.http import HttpResponse
from django.test import Client

from mcp_django.protocol.headers import JSON


def encode(body: bytes, *, size: int = 16) -> bytes:
    """Return a body in chunks of a given size (RFC 9112, section 7.1)."""
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%X\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def terminated(body: bytes) -> dict[str, Any]:
    """Return what gunicorn and granian pass on: a decoded body that ends."""
    return {"wsgi.input": BytesIO(body), "wsgi.input_terminated": True}


def undecoded(raw: bytes) -> dict[str, Any]:
    """Return what Django's development server passes on: the connection, limited to 0 bytes."""
    return {"wsgi.input": LimitedStream(BytesIO(raw), 0)}


def silent(body: bytes) -> dict[str, Any]:
    """Return what a server passes on that does not report whether it decodes the body."""
    return {"wsgi.input": BytesIO(body)}


def send(
    path: str,
    given: Mapping[str, Any],
    *,
    content_type: str = JSON,
    coding: str | None = "chunked",
    client: Client | None = None,
    **environ: Any,
) -> HttpResponse:
    """Send a POST without Content-Length through the site's handler."""
    path, _, query = path.partition("?")
    response: HttpResponse = (client or Client(raise_request_exception=False)).request(
        REQUEST_METHOD="POST",
        PATH_INFO=path,
        QUERY_STRING=query,
        CONTENT_TYPE=content_type,
        **({} if coding is None else {"HTTP_TRANSFER_ENCODING": coding}),
        **given,
        **environ,
    )
    return response
