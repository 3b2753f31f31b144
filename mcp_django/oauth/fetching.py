"""One GET of a document whose address a stranger chose, guarded against misuse (SSRF).

Only public addresses are connected to, the very ones that were looked up, by TLS with the name
verified. No redirect is followed, and size and total time are bounded.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# RFC 6052: addresses by which a network that has only IPv6 reaches those that have IPv4.
NAT64 = ipaddress.ip_network("64:ff9b::/96")
NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
# Public in the eyes of some Pythons: protocol assignments (RFC 6890), among which a provider had
# its metadata, and the relays of 6to4, which nobody has any more (RFC 7526).
INTERNAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24")))
# One sentence for both: which names lead inside is not for everybody who has an account here.
NO_PUBLIC_ADDRESS = "The host has no address, or one that is not public."
_HEADERS = {
    "Accept": "application/json, application/*+json",
    # A compressed document could be larger than what was read of it.
    "Accept-Encoding": "identity",
    "User-Agent": "mcp_django",
}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class FetchError(Exception):
    """The document was not to be had; the text names the reason and no secret."""


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
        FetchError: there is none, or one of them is not public; a name with both kinds is refused
            whole, so that it cannot lead inside by a second try.
    """
    try:
        found = resolve(host, port)
    except (OSError, UnicodeError) as exc:
        raise FetchError(NO_PUBLIC_ADDRESS) from exc
    if not found or not all(map(is_public, found)):
        raise FetchError(NO_PUBLIC_ADDRESS)
    return found


def https_get(
    target: Target, max_bytes: int, seconds: float, *, context: ssl.SSLContext | None = None
) -> Answer:
    """Ask one address by TLS; the body has one byte more than ``max_bytes`` at most.

    Raises:
        FetchError: it did not answer, or not within ``seconds`` from the first packet to the last.
    """
    deadline = time.monotonic() + seconds
    context = context or ssl.create_default_context()
    try:
        plain = socket.create_connection((target.address, target.port), timeout=seconds)
    except OSError as exc:
        raise FetchError(f"No connection: {type(exc).__name__}.") from exc
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
        raise FetchError(f"No answer: {type(exc).__name__}.") from exc
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
    connection.request("GET", target.path, headers=_HEADERS | {"Host": host + port})
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    # What is no document need not be read.
    body = response.read(max_bytes + 1) if response.status == 200 else b""
    return Answer(status=response.status, headers=headers, body=body)
