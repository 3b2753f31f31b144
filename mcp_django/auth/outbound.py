"""Outgoing requests for authorization, and the signed cache for their results.

``fetch_json`` fetches documents of the authorization servers that the site owner configured: keys,
metadata, introspection responses. It uses the standard library, so that checking a token needs no
HTTP client package and the system's proxy settings apply. The URLs come from the settings or from
an issuer that the settings trust, never from a token or a client, so private addresses are allowed.
The remaining risk is a server that misbehaves. Therefore: https with a verified certificate, no
redirects, a deadline, a size limit, JSON objects only. Nothing is fetched on an event loop.

``https_get`` is for addresses that an untrusted client chose, and is protected against SSRF.
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
from typing import Any
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
# Some providers reject the default User-Agent of urllib as that of a bot.
_HEADERS = {
    "Accept": "application/json, application/jwk-set+json",
    "User-Agent": "django-mcp-provider",
}


class FetchFailed(Exception):
    """A document could not be fetched; the text gives the reason and contains no secret."""


@sensitive_variables("body", "headers", "request")
@async_unsafe("Documents of other servers are fetched in a thread.")
def fetch_json(
    url: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON object at a URL, of at most ``MAX_BYTES``; with a ``body``, use POST.

    Raises:
        FetchFailed: the URL is not allowed, the server does not respond with 200 within
            ``TIMEOUT_SECONDS``, or the response is not a JSON object.
        SynchronousOnlyOperation: called on an event loop.
    """
    _check_address(url)
    request = Request(url, data=body, headers={**_HEADERS, **(headers or {})})  # noqa: S310 - checked above
    try:
        content = _read_response(request)
    except HTTPError as exc:
        exc.close()
        raise FetchFailed(f"{url} responded with {exc.code}.") from None
    except (URLError, http.client.HTTPException, OSError) as exc:
        reason = exc.reason if isinstance(exc, URLError) else exc
        raise FetchFailed(f"{url} cannot be fetched: {reason}.") from None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise FetchFailed(f"{url} is not valid JSON.") from None
    if not isinstance(document, dict):
        raise FetchFailed(f"{url} is not a JSON object.")
    return document


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and is_loopback(host) and settings.DEBUG:
        return
    raise FetchFailed(f"{url} is not allowed: use https, or with DEBUG http on a loopback host.")


@sensitive_variables("request")
def _read_response(request: Request) -> bytes:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    content = b""
    # For HTTP and HTTPS only; the default opener also opens files and FTP.
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        HTTPHandler(),
        HTTPSHandler(),
        NoRedirect(),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
        if response.status != 200:
            raise URLError(f"it responded with {response.status}")
        # The timeout applies to each read; the deadline stops a server that sends single bytes.
        while chunk := response.read1(_CHUNK):
            content += chunk
            if len(content) > MAX_BYTES:
                raise URLError(f"it is longer than {MAX_BYTES} bytes")
            if time.monotonic() > deadline:
                raise URLError(f"it takes longer than {TIMEOUT_SECONDS} seconds")
    return content


class NoRedirect(HTTPRedirectHandler):
    """Does not follow redirects: the target is not the server that was chosen."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Return the possible URLs of an issuer's metadata, the likeliest first.

    OpenID Connect appends to the issuer's URL, RFC 8414 (section 3.1) inserts before its path.
    """
    base = issuer.rstrip("/")
    parts = urlsplit(base)
    origin = f"{parts.scheme}://{parts.netloc}"
    return (
        f"{base}/.well-known/openid-configuration",
        f"{origin}/.well-known/oauth-authorization-server{parts.path}",
    )


# The signed cache ---------------------------------------------------------------------------------

# Shared by the processes of a site through Django's cache. Keys and introspection responses
# determine the caller, so they must not be accepted from a cache that other programs write to: each
# entry is signed with the site's key, with its name as the salt. If the cache fails or an entry was
# tampered with, the entry counts as missing.

logger = logging.getLogger("mcp_django.security")


def get_signed(kind: str, name: str) -> Any:
    """Return the cached value; ``None`` if it is missing, expired or not signed by this site."""
    key = cache_key(kind, name)
    try:
        signed = cache.get(key)
    except Exception:  # the site's cache, which may be a service that is down
        logger.exception("The cache could not be read for %r.", kind)
        return None
    if signed is None:
        return None
    try:
        return signing.loads(signed, salt=key)
    except (signing.BadSignature, TypeError, AttributeError):
        logger.warning("An entry of kind %r in the cache is not signed by this site.", kind)
        return None


def put_signed(kind: str, name: str, value: Any, *, seconds: float) -> None:
    """Cache a JSON-serializable value for ``seconds``."""
    key = cache_key(kind, name)
    try:
        cache.set(key, signing.dumps(value, salt=key, compress=True), timeout=seconds)
    except Exception:  # as above
        logger.exception("The cache could not be written for %r.", kind)


def mark_first(kind: str, name: str, *, seconds: float) -> bool:
    """Return whether this is the first call within ``seconds``; true if the cache fails."""
    try:
        return bool(cache.add(cache_key(kind, name), "1", timeout=seconds))
    except Exception:  # as above
        logger.exception("The cache could not be written for %r.", kind)
        return True


def cache_key(kind: str, name: str) -> str:
    """Return the cache key of an entry: short and printable, whatever the name is."""
    return f"mcp_django:{kind}:{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()}"


# Addresses that a client chose --------------------------------------------------------------------

# Connections go only to public addresses, to exactly those that were resolved, over TLS with a
# verified host name. Redirects are not followed, and size and total time are limited.

# RFC 6052: addresses through which an IPv6-only network reaches IPv4 hosts.
NAT64 = ipaddress.ip_network("64:ff9b::/96")
NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
# Some Python versions treat these as public: protocol assignments (RFC 6890), where a cloud
# provider had its metadata service, and the 6to4 relays, which are obsolete (RFC 7526).
INTERNAL_NETWORKS = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24")))
# One text for both cases, so that users cannot find out which names have internal addresses.
NO_PUBLIC_ADDRESS = "The host has no address, or one that is not public."
_HTTPS_GET_HEADERS = {
    "Accept": "application/json, application/*+json",
    # A compressed document could exceed the size limit once it is decompressed.
    "Accept-Encoding": "identity",
    "User-Agent": "mcp_django",
}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTarget:
    """Where to send a request: to ``address``, with a certificate that is valid for ``host``."""

    address: str
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundResponse:
    """The response to a request; header names are lowercase."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Resolve = Callable[[str, int], list[str]]
# Target, maximum size of the body in bytes, timeout in seconds.
Transport = Callable[[RequestTarget, int, float], OutboundResponse]


def resolve_host(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host.

    Raises:
        OSError: the host has none.
    """
    infos = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def is_public(address: str) -> bool:
    """Return whether an address is on the public internet, embedded IPv4 addresses included."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        embedded = ip.teredo or ((inner,) if inner else ())
        if embedded:
            return all(map(_is_public, embedded))
        if ip in NAT64_LOCAL or ip.is_site_local:
            return False
    return _is_public(ip)


def _is_public(ip: Address) -> bool:
    special = ip.is_private or ip.is_multicast or ip.is_reserved or ip.is_unspecified
    special = special or any(ip in network for network in INTERNAL_NETWORKS)
    return ip.is_global and not (special or ip.is_loopback or ip.is_link_local)


def public_addresses(host: str, port: int, resolve: Resolve = resolve_host) -> list[str]:
    """Return the public addresses of a host, resolved once.

    Raises:
        FetchFailed: there is none, or one of them is not public. A name with both kinds is rejected
            entirely, so that a retry cannot reach an internal address.
    """
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError) as exc:
        raise FetchFailed(NO_PUBLIC_ADDRESS) from exc
    if not addresses or not all(map(is_public, addresses)):
        raise FetchFailed(NO_PUBLIC_ADDRESS)
    return addresses


def https_get(
    target: RequestTarget, max_bytes: int, seconds: float, *, context: ssl.SSLContext | None = None
) -> OutboundResponse:
    """Send a GET request to one address over TLS; the body has at most ``max_bytes`` + 1 bytes.

    Raises:
        FetchFailed: there is no response, or not all of it arrives within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    context = context or ssl.create_default_context()
    try:
        plain = socket.create_connection((target.address, target.port), timeout=seconds)
    except OSError as exc:
        raise FetchFailed(f"No connection: {type(exc).__name__}.") from exc
    # A socket's timeout restarts with each byte, so a slow sender could block a thread forever; the
    # watchdog closes the connection whatever it is waiting for. It has a duplicate handle, since
    # TLS takes over the first one.
    handle = plain.dup()
    watchdog = threading.Timer(max(0.0, deadline - time.monotonic()), _shut_down, (handle,))
    watchdog.daemon = True
    watchdog.start()
    try:
        with context.wrap_socket(plain, server_hostname=target.host) as secure:
            return _send_request(secure, target, max_bytes)
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise FetchFailed(f"No response: {type(exc).__name__}.") from exc
    finally:
        watchdog.cancel()
        handle.close()
        plain.close()


def _shut_down(handle: socket.socket) -> None:
    try:
        handle.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It was closed in the meantime.
        return


def _send_request(secure: ssl.SSLSocket, target: RequestTarget, max_bytes: int) -> OutboundResponse:
    # Already connected, so it resolves nothing; the host name is only for the header.
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = secure
    host = f"[{target.host}]" if ":" in target.host else target.host
    port = "" if target.port == http.client.HTTPS_PORT else f":{target.port}"
    connection.request("GET", target.path, headers=_HTTPS_GET_HEADERS | {"Host": host + port})
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    # Only a 200 response contains the document.
    body = response.read(max_bytes + 1) if response.status == 200 else b""
    return OutboundResponse(status=response.status, headers=headers, body=body)
