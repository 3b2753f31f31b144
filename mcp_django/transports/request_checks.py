"""Checks before a body is parsed: host, origin, method, content types and size; CORS headers.

It also has helpers for ASGI connections: detecting a disconnect, and sending without delay.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from mcp_django.components.context import Cancellation
from mcp_django.conf import get_host_settings, get_settings, is_loopback
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.execution.invoke import run_stepped
from mcp_django.protocol.headers import (
    EVENT_STREAM,
    FORM,
    JSON,
    MCP_PARAM_PREFIX,
    Headers,
    protocol_version,
)
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.transports import drain, site_pages
from mcp_django.transports.bodies import TWO_LENGTHS
from mcp_django.transports.exchange import Exchange, access_reply, jsonrpc_error_reply
from mcp_django.transports.outcome import HeaderList, Reply, Send

ORIGIN_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]@:,/\\\s]+)(:\d{1,5})?")
TOKEN_FIELD = re.compile(rb"(?:^|&)access_token=")
# No body has a length of 20 digits.
MAX_DIGITS = 20
LOCAL_HOSTS = [".localhost", "127.0.0.1", "[::1]"]

ALLOWED_HEADERS = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Last-Event-ID, "
    "Mcp-Method, Mcp-Name"
)
EXPOSED_HEADERS = "Mcp-Session-Id, WWW-Authenticate"


def check_head(exchange: Exchange, versions: Sequence[str]) -> Reply | None:
    """Return the reply to a request that is rejected whatever its body; else ``None``."""
    headers = exchange.headers
    is_judged = exchange.verb == "POST" and not is_form(headers)
    return (
        check_host(headers)
        or _check_origin(exchange)
        or _check_verb(exchange, versions)
        or (_check_types(headers) if is_judged else None)
        or (_check_coding(headers) if exchange.verb == "POST" else None)
        or (jsonrpc_error_reply(400, TWO_LENGTHS) if has_two_lengths(headers) else None)
        or _check_size(declared_length(headers))
    )


def has_usual_head(headers: Headers, max_bytes: int) -> bool:
    """Return whether a POST has a host and types that were accepted before, and is small.

    Nothing else of its head can then be rejected: it has no Origin, and its body, of at most
    ``max_bytes`` by its Content-Length, is neither a form nor compressed.
    """
    origin, compression, coding, length, *lines = map(headers.lines.get, _HEAD)
    is_plain = origin is compression is None
    if not is_plain or not _is_accepted(tuple(lines), get_host_settings()):
        return False
    if isinstance(length, bytes):
        # Python refuses to convert very long digit strings.
        is_small = length.isdigit() and len(length) < MAX_DIGITS and int(length) <= max_bytes
        return is_small and coding is None
    return length is None


_USUAL = (b"host", b"x-forwarded-host", b"content-type", b"accept")
_HEAD = (b"origin", b"content-encoding", b"transfer-encoding", b"content-length", *_USUAL)


@lru_cache(maxsize=256)
def _is_accepted(lines: tuple[bytes | tuple[bytes, ...] | None, ...], _hosts: object) -> bool:
    """Return whether host and types are allowed; cached, since a client repeats them."""
    named_lines = [
        (name, line) for name, line in zip(_USUAL, lines, strict=True) if line is not None
    ]
    headers = Headers((name, line) for name, line in named_lines if isinstance(line, bytes))
    if any(isinstance(line, tuple) for _, line in named_lines):
        # A repeated header is never usual.
        return False
    return not is_form(headers) and check_host(headers) is None and _check_types(headers) is None


def check_body(exchange: Exchange) -> Reply | None:
    """Return the reply to a body that is rejected before it is parsed; else ``None``."""
    refused = None
    if is_form(exchange.headers):
        refused = _check_form(exchange) or _check_types(exchange.headers)
    return refused or _check_size(len(exchange.body))


def is_form(headers: Headers) -> bool:
    """Return whether the body may be a form; its content determines the error."""
    return headers.lines.get(b"content-type") != b"application/json" and (
        FORM in ",".join(headers.getlist("content-type")).lower()
    )


def has_two_lengths(headers: Headers) -> bool:
    """Return whether proxy and server may disagree where the body ends (RFC 9112, section 6.1)."""
    return "transfer-encoding" in headers and "content-length" in headers


def declared_length(headers: Headers) -> int:
    """Return the body's length by Content-Length, 0 without one, as for a chunked body."""
    length = headers.get("content-length") or ""
    # Python refuses to convert very long digit strings.
    return int(length[:MAX_DIGITS]) if length.isdecimal() else 0


def check_host(headers: Headers) -> Reply | None:
    """Reject a Host that is not allowed, as in DNS rebinding; Django checks it only on access."""
    if _is_allowed_host(_host_of(headers), tuple(_allowed_hosts())):
        return None
    return jsonrpc_error_reply(
        400, "The Host header does not name a host of this site; see ALLOWED_HOSTS."
    )


@lru_cache(maxsize=64)
def _is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


def _host_of(headers: Headers) -> str:
    """Return the host as Django does, from X-Forwarded-Host if ``USE_X_FORWARDED_HOST`` is set."""
    forwarded = _joined(headers, "x-forwarded-host")
    trusted = forwarded if django_settings.USE_X_FORWARDED_HOST else ""
    return trusted or _joined(headers, "host")


def _joined(headers: Headers, name: str) -> str:
    """Join all values of a header; a repeated one then equals no allowed value."""
    return ", ".join(headers.getlist(name))


def _allowed_hosts() -> list[str]:
    if django_settings.DEBUG and not django_settings.ALLOWED_HOSTS:
        return LOCAL_HOSTS
    return list(django_settings.ALLOWED_HOSTS)


def _check_origin(exchange: Exchange) -> Reply | None:
    """Reject an Origin that is not allowed; without an Origin the client is not a browser."""
    if "origin" not in exchange.headers or _is_origin_allowed(exchange):
        return None
    origin = _joined(exchange.headers, "origin")
    shown_origin = f" {origin[:80]!r}" if django_settings.DEBUG else ""
    return jsonrpc_error_reply(
        403, f"The origin{shown_origin} is not allowed; see MCP_DJANGO['ALLOWED_ORIGINS']."
    )


def _is_origin_allowed(exchange: Exchange) -> bool:
    headers = exchange.headers
    return is_allowed_origin(_joined(headers, "origin"), exchange.scheme, _host_of(headers))


def is_allowed_origin(origin: str, scheme: str, host: str) -> bool:
    """Return whether a browser page of this origin may send requests to this scheme and host.

    Listed origins may. Pages of the site itself may too, if its host is listed explicitly: with a
    wildcard in ``ALLOWED_HOSTS`` any rebound host name would be the site's own origin. An http
    page is not same-origin with an https site, since an attacker on the network may have written
    it.
    """
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    # An origin consists only of scheme, host and port (RFC 6454, section 6.1).
    if parts.scheme not in {"http", "https"} or port == 0:
        return False
    if not ORIGIN_HOST.fullmatch(parts.netloc):
        return False
    if origin.lower() != f"{parts.scheme}://{parts.netloc}".lower():
        return False
    settings = get_settings()
    listed = {*settings.allowed_origins, *django_settings.CSRF_TRUSTED_ORIGINS}
    if settings.base_url:
        base = urlsplit(settings.base_url)
        listed.add(f"{base.scheme}://{base.netloc}")
    if origin in listed or any(
        parts.scheme == pattern.scheme and is_same_domain(parts.netloc, pattern.netloc.lstrip("*"))
        for pattern in [urlsplit(url) for url in listed if "://*." in url]
    ):
        return True
    if django_settings.DEBUG and is_loopback(parts.hostname):
        return True
    explicit = [name for name in _allowed_hosts() if name != "*"]
    same = (parts.scheme, parts.netloc.lower()) == (scheme, host.lower())
    return same and validate_host(split_domain_port(host)[0], explicit)


def _check_verb(exchange: Exchange, versions: Sequence[str]) -> Reply | None:
    allowed = ["POST", "OPTIONS"] if exchange.endpoint != "sse" else ["GET", "OPTIONS"]
    if exchange.endpoint == "mcp" and has_sessions(exchange.headers, versions):
        # GET opens a stream, so it is allowed only where streams are.
        allowed += ["GET", "DELETE"] if exchange.can_stream else ["DELETE"]
    allow = (("Allow", ", ".join(allowed)),)
    if exchange.verb == "OPTIONS":
        # A CORS preflight request. Mcp-Param-* headers have no fixed names, so the requested ones
        # are allowed.
        requested = exchange.headers.get("access-control-request-headers") or ""
        names = (name.strip() for name in requested.split(","))
        params = [name for name in names if name.lower().startswith(MCP_PARAM_PREFIX)]
        preflight = (
            ("Access-Control-Allow-Methods", "POST, GET, DELETE, OPTIONS"),
            ("Access-Control-Allow-Headers", ", ".join([ALLOWED_HEADERS, *params])),
            ("Access-Control-Max-Age", "86400"),
        )
        return Reply(status=204, headers=(*preflight, *allow))
    is_for_page = exchange.verb == "GET" and site_pages.is_browser_request(exchange.headers)
    if exchange.verb in allowed and not is_for_page:
        return None
    return jsonrpc_error_reply(405, "Send JSON-RPC messages with POST.", headers=allow)


def has_sessions(headers: Headers, versions: Sequence[str]) -> bool:
    """Return whether the request may belong to a session, which stateless revisions do not have."""
    claimed = REVISIONS.get(protocol_version(headers) or "")
    if claimed is not None and claimed.stateless:
        return False
    return any(not REVISIONS[version].stateless for version in versions)


def _check_form(exchange: Exchange) -> Reply | None:
    """Reject a token in a form, although RFC 6750 allows it: it could end up in logs of bodies."""
    if not TOKEN_FIELD.search(exchange.body):
        return None
    message = "Send the token in the Authorization header, not in the body."
    return access_reply(AuthenticationRequired(message, error="invalid_request", status=400))


def _check_types(headers: Headers) -> Reply | None:
    types = headers.getlist("content-type")
    if [content_type.partition(";")[0].strip().lower() for content_type in types] != [JSON]:
        header = ", ".join(types)[:80] or "nothing"
        return jsonrpc_error_reply(415, f"Send the body as {JSON}; Content-Type says {header!r}.")
    if not (accepts(headers, JSON) or accepts(headers, EVENT_STREAM)):
        header = ", ".join(headers.getlist("accept"))[:80]
        return jsonrpc_error_reply(406, f"Accept {JSON} or {EVENT_STREAM}; Accept says {header!r}.")
    return None


def _check_coding(headers: Headers) -> Reply | None:
    """Reject a compressed body, which could be a thousand times as large as it looks."""
    coding = _joined(headers, "content-encoding")
    if coding.lower() in ("", "identity"):
        return None
    return jsonrpc_error_reply(
        415,
        f"Send the body uncompressed; Content-Encoding says {coding[:80]!r}.",
        # RFC 9110, section 12.5.3.
        headers=(("Accept-Encoding", "identity"),),
    )


def _check_size(size: int) -> Reply | None:
    limit = get_settings().max_body_bytes
    return jsonrpc_error_reply(413, f"The body is over {limit} bytes.") if size > limit else None


def accepts(headers: Headers, media_type: str) -> bool:
    """Return whether the client accepts this media type; without Accept it accepts all."""
    values = headers.lines.get(b"accept")
    return True if values is None else _accepts(values, media_type)


@lru_cache(maxsize=256)
def _accepts(values: bytes | tuple[bytes, ...], media_type: str) -> bool:
    """Return whether an Accept header contains a media type; cached, since a client repeats it."""
    lines = (values,) if isinstance(values, bytes) else values
    text = b",".join(lines).decode("latin-1").lower()
    taken: dict[str, bool] = {}
    for part in text.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        # Only ``q=0`` matters, not the weight.
        taken[name] = not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    # The most specific range takes precedence (RFC 9110, section 12.5.1).
    return next((taken[name] for name in ranges if name in taken), False)


def cors_headers(exchange: Exchange) -> HeaderList:
    """Return the CORS headers that let a page of an allowed origin read the reply."""
    origin = _joined(exchange.headers, "origin")
    if not origin or not _is_origin_allowed(exchange):
        return ()
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", EXPOSED_HEADERS),
        ("Vary", "Origin"),
    )


# The connection of an ASGI request ----------------------------------------------------------------

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
T = TypeVar("T")

# Extra time for work that is ended at the drain deadline to send its last message.
GRACE_SECONDS = 1
# Larger bodies are decoded in a thread, so that they do not block the event loop.
MAX_INLINE_BYTES = 64 * 1024


class ClientDisconnected(Exception):
    """The client closed the connection before it was answered."""


CLOSE = (b"connection", b"close")


def end_connection(scope: Scope, message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the start of a reply after which the server closes the connection.

    RFC 9112, section 9.6. HTTP/2 and later have no Connection header and can close one stream.
    """
    headers = [*message.get("headers", ())]
    if scope.get("http_version", "1.1").startswith("1") and CLOSE not in headers:
        headers.append(CLOSE)
    return {**message, "headers": headers}


def set_no_delay(send: Send) -> None:
    """Set TCP_NODELAY on the connection, if the server did not.

    uvicorn with several workers does not: asyncio sets TCP_NODELAY only for sockets whose protocol
    is TCP, and uvicorn's have none (https://github.com/Kludex/uvicorn/issues/3149). The second part
    of a response would wait 40 ms for the client to acknowledge the first. Servers that expose no
    socket are left unchanged.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if not isinstance(transport, asyncio.BaseTransport):
        return
    connection = transport.get_extra_info("socket")
    if (
        connection is None
        or connection.proto
        or connection.family not in (socket.AF_INET, socket.AF_INET6)
    ):
        return
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def wait_for_first(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first of the tasks.

    daphne cancels every request when it is told to stop. Draining requests end soon without that,
    so the first cancellation is delayed until the drain deadline.
    """
    drain.install_signal_handlers()
    try:
        await wait_for_first_done(*tasks)
    except asyncio.CancelledError:
        if not drain.is_draining():
            raise
        await wait_for_first_done(*tasks, timeout=get_settings().drain_seconds + GRACE_SECONDS)


async def wait_for_first_done(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait until one of the futures is done or the timeout has passed; none is cancelled.

    It replaces ``asyncio.wait``, which costs several times as much, on every request.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if timeout is None else loop.call_later(timeout, wake)
    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        for future in futures:
            future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


async def run_until_disconnect(
    receive: Receive, work: Coroutine[Any, Any, T], cancellation: Cancellation
) -> T:
    """Return the result of ``work``; cancel it if the client disconnects first.

    Raises:
        ClientDisconnected: the client disconnected.
    """
    if not isinstance(getattr(receive, "__self__", None), asyncio.Queue):
        return await run_stepped(work, partial(_WhileConnected, receive, cancellation))
    # daphne cancels the task of a request when it is told to stop, which the work must outlive.
    working = asyncio.ensure_future(work)
    try:
        watching = asyncio.ensure_future(_disconnect(receive))
        try:
            await wait_for_first(working, watching)
        finally:
            watching.cancel()
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        if not working.done():
            cancellation.cancel()
            working.cancel()
            await wait_for_first(asyncio.gather(working, return_exceptions=True))


# A block that ends sooner needs no task that watches the connection, which costs as much as a call.
WATCH_AFTER_SECONDS = 0.02


class _WhileConnected:
    """Cancels the current task inside the block if the client disconnects.

    The connection is watched after ``WATCH_AFTER_SECONDS``.

    Raises:
        ClientDisconnected: at the end of the block, if the client disconnected.
    """

    def __init__(self, receive: Receive, cancellation: Cancellation) -> None:
        self._receive = receive
        self._cancellation = cancellation
        self._is_gone = self._is_over = False

    async def __aenter__(self) -> None:
        drain.install_signal_handlers()
        self._task = asyncio.current_task()
        self._watcher: asyncio.Future[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_SECONDS, self._watch)

    def _watch(self) -> None:
        self._watcher = asyncio.ensure_future(_disconnect(self._receive))
        self._watcher.add_done_callback(self._end)

    def _end(self, watcher: asyncio.Future[None]) -> None:
        if watcher.cancelled() or self._is_over:
            return
        # An error of the server while it waits for a disconnect means the same.
        watcher.exception()
        self._is_gone = True
        self._cancellation.cancel()
        assert self._task is not None
        self._task.cancel()

    async def __aexit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        self._is_over = True
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_gone:
            assert self._task is not None
            self._task.uncancel()
            raise ClientDisconnected from None
        if isinstance(exc, asyncio.CancelledError):
            self._cancellation.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
