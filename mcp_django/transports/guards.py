"""What is looked at before a body is parsed: host, origin, verb, types and size."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from django.conf import settings as django_settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from mcp_django.conf import get_settings
from mcp_django.protocol.headers import Headers
from mcp_django.transports.exchange import EVENT_STREAM, JSON, Exchange, HeaderList, Reply
from mcp_django.transports.replies import refusal

ORIGIN_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]@:,/\\\s]+)(:\d{1,5})?")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
LOCAL_HOSTS = [".localhost", "127.0.0.1", "[::1]"]

ALLOWED_HEADERS = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Last-Event-ID, "
    "Mcp-Method, Mcp-Name"
)
EXPOSED_HEADERS = "Mcp-Session-Id, WWW-Authenticate"


def check(exchange: Exchange) -> Reply | None:
    """The refusal of a request that is not worth parsing, ``None`` for one that is."""
    return (
        _check_host(exchange.headers)
        or _check_origin(exchange.headers)
        or _check_verb(exchange)
        or _check_types(exchange.headers)
        or _check_size(exchange)
    )


def _check_host(headers: Headers) -> Reply | None:
    """HTTP-32: Django looks at the host only when somebody asks; a rebound name must not pass."""
    domain, _ = split_domain_port(host_of(headers))
    if domain and validate_host(domain, _allowed_hosts()):
        return None
    return refusal(400, "The Host header names no host of this site; see ALLOWED_HOSTS.")


def host_of(headers: Headers) -> str:
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


def _check_origin(headers: Headers) -> Reply | None:
    """HTTP-2: a page of another site may not talk to this one; no Origin means no browser."""
    origin = _joined(headers, "origin")
    if "origin" not in headers or is_allowed_origin(origin, host_of(headers)):
        return None
    named = f" {origin[:80]!r}" if django_settings.DEBUG else ""
    return refusal(403, f"The origin{named} is not allowed; see MCP_DJANGO['ALLOWED_ORIGINS'].")


def is_allowed_origin(origin: str, host: str) -> bool:
    """Whether a browser page of this origin may call.

    Listed origins may, and pages of the host itself where that host is named explicitly: under a
    wildcard any rebound name would be its own origin.
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
    same = parts.netloc.lower() == host.lower()
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


def _check_verb(exchange: Exchange) -> Reply | None:
    if exchange.verb == "OPTIONS":
        return Reply(status=204, headers=(*preflight(exchange.headers), ("Allow", "POST, OPTIONS")))
    if exchange.verb == "POST":
        return None
    return refusal(405, "Send JSON-RPC messages with POST.", headers=(("Allow", "POST, OPTIONS"),))


def _check_types(headers: Headers) -> Reply | None:
    types = headers.getlist("content-type")
    if [one.partition(";")[0].strip().lower() for one in types] != [JSON]:
        given = ", ".join(types)[:80] or "nothing"
        return refusal(415, f"Send the body as {JSON}; Content-Type says {given!r}.")
    if not (accepts(headers, JSON) or accepts(headers, EVENT_STREAM)):
        given = ", ".join(headers.getlist("accept"))[:80]
        return refusal(406, f"Accept {JSON} or {EVENT_STREAM}; Accept says {given!r}.")
    return None


def _check_size(exchange: Exchange) -> Reply | None:
    limit = get_settings().max_body_bytes
    return refusal(413, f"The body is over {limit} bytes.") if len(exchange.body) > limit else None


def accepts(headers: Headers, media_type: str) -> bool:
    """Whether the client takes this type; one that says nothing takes everything (HTTP-8)."""
    values = headers.getlist("accept")
    if not values:
        return True
    taken = dict(map(_media_range, ",".join(values).lower().split(",")))
    ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    # The most specific range decides (RFC 9110, section 12.5.1).
    return next((taken[name] for name in ranges if name in taken), False)


def _media_range(part: str) -> tuple[str, bool]:
    """A media range and whether it is taken at all; how gladly does not matter here."""
    name, *parameters = (piece.strip() for piece in part.split(";"))
    return name, not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)


def preflight(headers: Headers) -> HeaderList:
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


def cors(headers: Headers) -> HeaderList:
    """The headers by which a browser lets an allowed origin read an answer."""
    origin = _joined(headers, "origin")
    if not origin or not is_allowed_origin(origin, host_of(headers)):
        return ()
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", EXPOSED_HEADERS),
        ("Vary", "Origin"),
    )
