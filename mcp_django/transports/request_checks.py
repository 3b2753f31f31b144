"""Checks before a body is parsed: host, origin, verb, content types and size; and CORS headers.

Beside them the connection of an ASGI request: the disconnect of its client, and an answer without
delay.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from django.conf import settings as django_settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from mcp_django.conf import get_settings
from mcp_django.core.context import Cancellation
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import MCP_PROTOCOL_VERSION, Headers
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.transports import drain, site_pages
from mcp_django.transports.exchange import (
    EVENT_STREAM,
    JSON,
    Exchange,
    HeaderList,
    Reply,
    access_reply,
    refusal,
)

ORIGIN_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]@:,/\\\s]+)(:\d{1,5})?")
FORM = "application/x-www-form-urlencoded"
TOKEN_FIELD = re.compile(rb"(?:^|&)access_token=")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
LOCAL_HOSTS = [".localhost", "127.0.0.1", "[::1]"]

ALLOWED_HEADERS = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Last-Event-ID, "
    "Mcp-Method, Mcp-Name"
)
EXPOSED_HEADERS = "Mcp-Session-Id, WWW-Authenticate"


def check_head(exchange: Exchange, versions: Sequence[str]) -> Reply | None:
    """The refusal of a request that no body could make a better one; else ``None``."""
    headers = exchange.headers
    is_judged = exchange.verb == "POST" and not is_form(headers)
    return (
        check_host(headers)
        or _check_origin(exchange)
        or _check_verb(exchange, versions)
        or (_check_types(headers) if is_judged else None)
        or _check_size(length_of(headers))
    )


def check_body(exchange: Exchange) -> Reply | None:
    """The refusal of a body that is not worth parsing, ``None`` for one that is."""
    refused = None
    if is_form(exchange.headers):
        refused = _check_form(exchange) or _check_types(exchange.headers)
    return refused or _check_size(len(exchange.body))


def is_form(headers: Headers) -> bool:
    """Whether the body may be a form, which is refused in one of two ways, by what is in it."""
    return FORM in ",".join(headers.getlist("content-type")).lower()


def length_of(headers: Headers) -> int:
    """The length that a body is said to have; none is said of one that comes in chunks."""
    said = headers.get("content-length") or ""
    # More digits than that are more than anybody sends, and too many for Python.
    return int(said[:20]) if said.isdecimal() else 0


def check_host(headers: Headers) -> Reply | None:
    """HTTP-32: Django looks at the host only when somebody asks; a rebound name must not pass."""
    if _is_allowed_host(_host_of(headers), tuple(_allowed_hosts())):
        return None
    return refusal(400, "The Host header names no host of this site; see ALLOWED_HOSTS.")


@lru_cache(maxsize=64)
def _is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


def _host_of(headers: Headers) -> str:
    """The host as Django reads it: a proxy's word counts where the site says that it does."""
    forwarded = _joined(headers, "x-forwarded-host")
    trusted = forwarded if django_settings.USE_X_FORWARDED_HOST else ""
    return trusted or _joined(headers, "host")


def _joined(headers: Headers, name: str) -> str:
    """All lines of a header that comes once: repeated, it names nothing that could be allowed."""
    return ", ".join(headers.getlist(name))


def _allowed_hosts() -> list[str]:
    if django_settings.DEBUG and not django_settings.ALLOWED_HOSTS:
        return LOCAL_HOSTS
    return list(django_settings.ALLOWED_HOSTS)


def _check_origin(exchange: Exchange) -> Reply | None:
    """HTTP-2: a page of another site may not talk to this one; no Origin means no browser."""
    if "origin" not in exchange.headers or _is_origin_allowed(exchange):
        return None
    origin = _joined(exchange.headers, "origin")
    named = f" {origin[:80]!r}" if django_settings.DEBUG else ""
    return refusal(403, f"The origin{named} is not allowed; see MCP_DJANGO['ALLOWED_ORIGINS'].")


def _is_origin_allowed(exchange: Exchange) -> bool:
    headers = exchange.headers
    return is_allowed_origin(_joined(headers, "origin"), exchange.scheme, _host_of(headers))


def is_allowed_origin(origin: str, scheme: str, host: str) -> bool:
    """Whether a browser page of this origin may call what was asked for by this scheme and host.

    Listed origins may, and pages of the site itself where its host is named explicitly: under a
    wildcard any rebound name would be its own origin. A page that came over http may be written by
    whoever is on its way, so it is none of a site that is called over https.
    """
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    # Nothing but scheme, host and port is an origin (RFC 6454, section 6.1).
    if parts.scheme not in {"http", "https"} or port == 0:
        return False
    if not ORIGIN_HOST.fullmatch(parts.netloc):
        return False
    if origin.lower() != f"{parts.scheme}://{parts.netloc}".lower():
        return False
    if _is_listed(origin, parts):
        return True
    if django_settings.DEBUG and parts.hostname in LOOPBACK:
        return True
    explicit = [name for name in _allowed_hosts() if name != "*"]
    same = (parts.scheme, parts.netloc.lower()) == (scheme, host.lower())
    return same and validate_host(split_domain_port(host)[0], explicit)


def _is_listed(origin: str, parts: SplitResult) -> bool:
    settings = get_settings()
    listed = {*settings.allowed_origins, *django_settings.CSRF_TRUSTED_ORIGINS}
    if settings.base_url:
        base = urlsplit(settings.base_url)
        listed.add(f"{base.scheme}://{base.netloc}")
    if origin in listed:
        return True
    patterns = [urlsplit(one) for one in listed if "://*." in one]
    return any(
        parts.scheme == pattern.scheme and is_same_domain(parts.netloc, pattern.netloc.lstrip("*"))
        for pattern in patterns
    )


def _check_verb(exchange: Exchange, versions: Sequence[str]) -> Reply | None:
    allowed = ["POST", "OPTIONS"] if exchange.endpoint != "sse" else ["GET", "OPTIONS"]
    if exchange.endpoint == "mcp" and has_sessions(exchange.headers, versions):
        # Without streams there is nothing to get (HTTP-12).
        allowed += ["GET", "DELETE"] if exchange.can_stream else ["DELETE"]
    allow = (("Allow", ", ".join(allowed)),)
    if exchange.verb == "OPTIONS":
        return Reply(status=204, headers=(*_preflight(exchange.headers), *allow))
    is_for_page = exchange.verb == "GET" and site_pages.is_wanted(exchange.headers)
    if exchange.verb in allowed and not is_for_page:
        return None
    return refusal(405, "Send JSON-RPC messages with POST.", headers=allow)


def has_sessions(headers: Headers, versions: Sequence[str]) -> bool:
    """Whether the request may belong to a session: its revision has them (HTTP-29)."""
    claimed = REVISIONS.get(headers.get(MCP_PROTOCOL_VERSION) or "")
    if claimed is not None and claimed.stateless:
        return False
    return any(not REVISIONS[version].stateless for version in versions)


def _check_form(exchange: Exchange) -> Reply | None:
    """RFC 6750 lets a form carry the token; what logs or replays bodies would have it (AUT-2)."""
    if not TOKEN_FIELD.search(exchange.body):
        return None
    message = "Send the token in the Authorization header, not in the body."
    return access_reply(AuthenticationRequired(message, error="invalid_request", status=400))


def _check_types(headers: Headers) -> Reply | None:
    types = headers.getlist("content-type")
    if [one.partition(";")[0].strip().lower() for one in types] != [JSON]:
        given = ", ".join(types)[:80] or "nothing"
        return refusal(415, f"Send the body as {JSON}; Content-Type says {given!r}.")
    if not (accepts(headers, JSON) or accepts(headers, EVENT_STREAM)):
        given = ", ".join(headers.getlist("accept"))[:80]
        return refusal(406, f"Accept {JSON} or {EVENT_STREAM}; Accept says {given!r}.")
    return None


def _check_size(size: int) -> Reply | None:
    limit = get_settings().max_body_bytes
    return refusal(413, f"The body is over {limit} bytes.") if size > limit else None


def accepts(headers: Headers, media_type: str) -> bool:
    """Whether the client takes this type; one that says nothing takes everything (HTTP-8)."""
    values = headers.getlist("accept")
    if not values:
        return True
    taken = _taken(",".join(values))
    ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    # The most specific range decides (RFC 9110, section 12.5.1).
    return next((taken[name] for name in ranges if name in taken), False)


@lru_cache(maxsize=64)
def _taken(accept: str) -> dict[str, bool]:
    """The media ranges of a header that says the same on every request of a client."""
    return dict(map(_media_range, accept.lower().split(",")))


def _media_range(part: str) -> tuple[str, bool]:
    """A media range and whether it is taken at all; how gladly does not matter here."""
    name, *parameters = (piece.strip() for piece in part.split(";"))
    return name, not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)


def _preflight(headers: Headers) -> HeaderList:
    """The answer to a browser that asks before it calls (HTTP-11)."""
    wanted = headers.get("access-control-request-headers") or ""
    # Mcp-Param-* has no fixed names; a preflight has to be answered with the ones it asked for.
    params = [
        name.strip() for name in wanted.split(",") if name.strip().lower().startswith("mcp-param-")
    ]
    return (
        ("Access-Control-Allow-Methods", "POST, GET, DELETE, OPTIONS"),
        ("Access-Control-Allow-Headers", ", ".join([ALLOWED_HEADERS, *params])),
        ("Access-Control-Max-Age", "86400"),
    )


def cors(exchange: Exchange) -> HeaderList:
    """The headers by which a browser lets an allowed origin read an answer."""
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
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

# What runs at its deadline still gets to send its last word.
GRACE_SECONDS = 1
# To decode more than this takes longer than the loop has time for.
MAX_INLINE_BYTES = 64 * 1024


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


def send_at_once(send: Send) -> None:
    """Let the connection of an answer send it at once, where the server has left that out.

    uvicorn with several workers has: asyncio sets TCP_NODELAY for sockets alone that say they are
    of TCP, and there they do not (https://github.com/Kludex/uvicorn/issues/3149). The second piece
    of an answer would wait 40 ms for a client to acknowledge the first. A server that shows no
    socket is left alone.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if not isinstance(transport, asyncio.BaseTransport):
        return
    found = transport.get_extra_info("socket")
    if found is None or found.proto or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def first_of(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first of the tasks.

    daphne cancels every request when it is told to stop. What is draining ends by itself and
    soon, so the first cancellation is put off for as long as that may take.
    """
    drain.chain()
    try:
        await first_done(*tasks)
    except asyncio.CancelledError:
        if not drain.is_draining():
            raise
        await first_done(*tasks, timeout=get_settings().drain_seconds + GRACE_SECONDS)


async def first_done(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait until one of the futures is done or so many seconds have passed; none is cancelled.

    ``asyncio.wait`` would do, at several times the cost, and this is paid on every request.
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


async def until_gone(receive: Receive, work: Awaitable[T], cancellation: Cancellation) -> T:
    """The result of the work, which is cancelled when the client goes away first (HTTP-26).

    Raises:
        ClientGone: the client went away.
    """
    working = asyncio.ensure_future(work)
    try:
        # An answer that waits for nothing is there after one turn of the loop, which is sooner
        # than another task could look after the client.
        await asyncio.sleep(0)
        if not working.done():
            await _done_or_gone(working, receive)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        if not working.done():
            cancellation.cancel()
            working.cancel()
            await first_of(asyncio.gather(working, return_exceptions=True))


async def _done_or_gone(working: asyncio.Future[Any], receive: Receive) -> None:
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await first_of(working, watching)
    finally:
        watching.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
