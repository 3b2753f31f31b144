"""Where a request comes from."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network

from django.http import HttpRequest

from mcp_django.conf import get_settings

# Some proxies (Azure's among them) add the port, and then IPv6 needs its brackets.
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d+)?|([0-9.]+):\d+")


def client_ip(request: HttpRequest) -> str | None:
    """The address of the client, past as many proxies as ``PROXIES`` says; ``None`` if unknown.

    Each proxy appends the address it saw to ``X-Forwarded-For``, so the site's own are counted from
    the right and what a client made up on the left is never believed.
    """
    hops = [one.strip() for one in request.headers.get("X-Forwarded-For", "").split(",")]
    proxies = get_settings().proxies
    found = request.META.get("REMOTE_ADDR", "")
    if proxies:
        found = hops[-proxies] if len(hops) >= proxies else hops[0]
        if written := _WITH_PORT.fullmatch(found):
            found = written[1] or written[2]
    try:
        return str(ip_address(found))
    except ValueError:
        return None


def source_of(address: str) -> str:
    """What a limit counts for an address: itself, or of IPv6 the /64.

    That is what one subscriber has whole. An IPv4 address in the form of IPv6, as sockets for both
    report it, is the IPv4 address.
    """
    found = ip_address(address)
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


def wide_network_of(source: str) -> str:
    """The /24 of IPv4 or the /48 of IPv6 that a source is in: one customer may have it whole."""
    found = ip_network(source)
    return str(found.supernet(new_prefix=24 if found.version == 4 else 48))
