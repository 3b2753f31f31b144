"""Outgoing requests for authorization, and the signed cache for what they return.

``fetch_json`` reads documents of the authorization servers that the site owner named: keys,
metadata, answers. The standard library fetches them, so that checking a token needs no HTTP
client to be installed and a company's proxy settings count. The addresses come from the settings
or from an issuer that the settings trust, never from a token or a client, so a private address is
allowed. What is left to guard against is a server that misbehaves: https with a checked
certificate, no redirects, a deadline, a size limit, JSON objects only. Nothing is fetched on an
event loop.

``https_get`` is for addresses that an untrusted client chose, and is guarded against SSRF.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from django.conf import settings
from django.core import signing
from django.core.cache import cache
from django.utils.asyncio import async_unsafe
from django.views.decorators.debug import sensitive_variables

from mcp_django.conf import is_loopback

TIMEOUT_SECONDS = 5
MAX_BYTES = 256 * 1024
_CHUNK = 16 * 1024
# Some providers turn the library's own name away, as that of a robot.
_HEADERS = {
    "Accept": "application/json, application/jwk-set+json",
    "User-Agent": "django-mcp-provider",
}


class FetchFailed(Exception):
    """A document could not be had; the text says why, and holds no secret."""


@sensitive_variables("body", "headers", "request")
@async_unsafe("Documents of other servers are fetched in a thread.")
def fetch_json(
    url: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON object at an address, of at most ``MAX_BYTES``; with a ``body`` it is posted there.

    Raises:
        FetchFailed: the address may not be asked, does not answer with 200 within
            ``TIMEOUT_SECONDS``, or answers with something else than a JSON object.
        SynchronousOnlyOperation: called on an event loop.
    """
    _check_address(url)
    request = Request(url, data=body, headers={**_HEADERS, **(headers or {})})  # noqa: S310 - checked above
    try:
        content = _read(request)
    except HTTPError as exc:
        exc.close()
        raise FetchFailed(f"{url} answered with {exc.code}.") from None
    except (URLError, http.client.HTTPException, OSError) as exc:
        reason = exc.reason if isinstance(exc, URLError) else exc
        raise FetchFailed(f"{url} cannot be read: {reason}.") from None
    return _object(url, content)


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and is_loopback(host) and settings.DEBUG:
        return
    raise FetchFailed(
        f"{url} is not asked: it has to be https, or http on a loopback host under DEBUG."
    )


@sensitive_variables("request")
def _read(request: Request) -> bytes:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    content = b""
    with _opener().open(request, timeout=TIMEOUT_SECONDS) as response:
        if response.status != 200:
            _refuse(f"it answered with {response.status}")
        # The timeout is for each read; one that sends a byte at a time is ended here.
        while chunk := response.read1(_CHUNK):
            content += chunk
            if len(content) > MAX_BYTES:
                _refuse(f"it is longer than {MAX_BYTES} bytes")
            if time.monotonic() > deadline:
                _refuse(f"it takes longer than {TIMEOUT_SECONDS} seconds")
    return content


def _opener() -> OpenerDirector:
    """An opener of web addresses alone; the library's own also reads files and FTP."""
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        HTTPHandler(),
        HTTPSHandler(),
        _NoRedirect(),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class _NoRedirect(HTTPRedirectHandler):
    """Takes a redirect for what it is: an answer from somebody who was not asked."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _refuse(reason: str) -> NoReturn:
    raise URLError(reason)


def _object(url: str, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise FetchFailed(f"{url} is no JSON.") from None
    if not isinstance(document, dict):
        raise FetchFailed(f"{url} is no JSON object.")
    return document


# The signed cache ---------------------------------------------------------------------------------

# What the processes of a site share through Django's cache. Keys and answers that decide who a
# caller is must not be accepted from a cache that other programs write to, so each entry is
# signed with the site's key, under its own name. A cache that fails, or an entry that was
# tampered with, counts as nothing found.

logger = logging.getLogger("mcp_django.security")


def get(kind: str, name: str) -> Any:
    """The value that was put there, ``None`` if there is none any more."""
    entry = entry_name(kind, name)
    try:
        found = cache.get(entry)
    except Exception:  # the site's cache, which may be a service that is down
        logger.exception("The cache could not be read for %r.", kind)
        return None
    if found is None:
        return None
    try:
        return signing.loads(found, salt=entry)
    except (signing.BadSignature, TypeError, AttributeError):
        logger.warning("An entry of kind %r in the cache is not signed by this site.", kind)
        return None


def put(kind: str, name: str, value: Any, *, seconds: float) -> None:
    """Keep a value that JSON can say, for so many seconds."""
    entry = entry_name(kind, name)
    try:
        cache.set(entry, signing.dumps(value, salt=entry, compress=True), timeout=seconds)
    except Exception:  # as above
        logger.exception("The cache could not be written for %r.", kind)


def is_first(kind: str, name: str, *, seconds: float) -> bool:
    """Whether nobody has asked this within so many seconds; yes, where nothing can tell."""
    try:
        return bool(cache.add(entry_name(kind, name), "1", timeout=seconds))
    except Exception:  # as above
        logger.exception("The cache could not be written for %r.", kind)
        return True


def entry_name(kind: str, name: str) -> str:
    """What the entry is called in the cache: short and printable, whatever the name is."""
    return f"mcp_django:{kind}:{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()}"


# Addresses that a client chose --------------------------------------------------------------------

# Only public addresses are connected to, the very ones that were looked up, by TLS with the name
# verified. No redirect is followed, and size and total time are bounded.

# RFC 6052: addresses by which a network that has only IPv6 reaches those that have IPv4.
NAT64 = ipaddress.ip_network("64:ff9b::/96")
NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
# Public in the eyes of some Pythons: protocol assignments (RFC 6890), among which a provider had
# its metadata, and the relays of 6to4, which nobody has any more (RFC 7526).
INTERNAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24")))
# One sentence for both: which names lead inside is not for everybody who has an account here.
NO_PUBLIC_ADDRESS = "The host has no address, or one that is not public."
_STRANGER_HEADERS = {
    "Accept": "application/json, application/*+json",
    # A compressed document could be larger than what was read of it.
    "Accept-Encoding": "identity",
    "User-Agent": "mcp_django",
}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to ask whom for: the connection goes to ``address``, which has to prove ``host``."""

    address: str
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Resolve = Callable[[str, int], list[str]]
# Target, largest size of the body in bytes, seconds.
Transport = Callable[[Target, int, float], Answer]


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host.

    Raises:
        OSError: it has none.
    """
    found = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, embedded IPv4 addresses included."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = _embedded(ip)
        if embedded:
            return all(map(_is_public, embedded))
        if ip in NAT64_LOCAL or ip.is_site_local:
            return False
    return _is_public(ip)


def _is_public(ip: Address) -> bool:
    special = ip.is_private or ip.is_multicast or ip.is_reserved or ip.is_unspecified
    special = special or any(ip in network for network in INTERNAL)
    return ip.is_global and not (special or ip.is_loopback or ip.is_link_local)


def _embedded(ip: ipaddress.IPv6Address) -> tuple[ipaddress.IPv4Address, ...]:
    if ip.teredo is not None:
        return ip.teredo
    if ip in NAT64:
        return (ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF),)
    inner = ip.ipv4_mapped or ip.sixtofour
    return () if inner is None else (inner,)


def public_addresses(host: str, port: int, resolve: Resolve = resolve) -> list[str]:
    """The addresses of a host, looked up once.

    Raises:
        FetchFailed: there is none, or one of them is not public; a name with both kinds is refused
            whole, so that it cannot lead inside by a second try.
    """
    try:
        found = resolve(host, port)
    except (OSError, UnicodeError) as exc:
        raise FetchFailed(NO_PUBLIC_ADDRESS) from exc
    if not found or not all(map(is_public, found)):
        raise FetchFailed(NO_PUBLIC_ADDRESS)
    return found


def https_get(
    target: Target, max_bytes: int, seconds: float, *, context: ssl.SSLContext | None = None
) -> Answer:
    """Ask one address by TLS; the body has one byte more than ``max_bytes`` at most.

    Raises:
        FetchFailed: it did not answer, or not within ``seconds`` from the first packet to the last.
    """
    deadline = time.monotonic() + seconds
    context = context or ssl.create_default_context()
    try:
        plain = socket.create_connection((target.address, target.port), timeout=seconds)
    except OSError as exc:
        raise FetchFailed(f"No connection: {type(exc).__name__}.") from exc
    # A timeout of the socket starts anew with each byte, so a slow sender could hold a thread for
    # as long as it likes; the watchdog ends the connection whatever it is waiting for. It keeps a
    # handle of its own, since TLS takes the first one over.
    handle = plain.dup()
    watchdog = threading.Timer(max(0.0, deadline - time.monotonic()), _hang_up, (handle,))
    watchdog.daemon = True
    watchdog.start()
    try:
        with context.wrap_socket(plain, server_hostname=target.host) as secure:
            return _ask(secure, target, max_bytes)
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise FetchFailed(f"No answer: {type(exc).__name__}.") from exc
    finally:
        watchdog.cancel()
        handle.close()
        plain.close()


def _hang_up(handle: socket.socket) -> None:
    try:
        handle.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It was closed in the meantime.
        return


def _ask(secure: ssl.SSLSocket, target: Target, max_bytes: int) -> Answer:
    # Already connected, so that it looks nothing up; the name is for the header alone.
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = secure
    host = f"[{target.host}]" if ":" in target.host else target.host
    port = "" if target.port == http.client.HTTPS_PORT else f":{target.port}"
    connection.request("GET", target.path, headers=_STRANGER_HEADERS | {"Host": host + port})
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    # What is no document need not be read.
    body = response.read(max_bytes + 1) if response.status == 200 else b""
    return Answer(status=response.status, headers=headers, body=body)
