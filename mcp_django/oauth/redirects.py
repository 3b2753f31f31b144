"""Where a client that registered itself may send its users back to (RFC 8252; RFC 9700, 2.1).

``https`` anywhere, ``http`` on the user's own machine, and the private-use addresses that the site
lists one by one in ``OAUTH["APP_REDIRECTS"]``. Whether a requested address is a registered one is
compared by the toolkit: exactly, apart from the port of a loopback address.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from mcp_django.conf import get_settings

MAX_LENGTH = 2000
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Run or read by the browser instead of being handed to an application, or not an address at all.
NEVER = frozenset(
    (
        *("about", "blob", "chrome", "data", "file", "filesystem", "ftp", "http", "https"),
        *("intent", "jar", "javascript", "mailto", "tel", "vbscript", "view-source", "ws", "wss"),
    )
)
# The characters of RFC 3986 without the number sign: no space, control character or backslash.
_URI = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_APP = re.compile(r"[a-z][a-z0-9+.\-]*:/[^#]*")


def problem(uri: object) -> str:
    """Why an address is none to redirect to, as a sentence; empty if it is."""
    if not isinstance(uri, str) or not uri:
        return "A redirect URI is a string that is not empty."
    if len(uri) > MAX_LENGTH:
        return f"A redirect URI has at most {MAX_LENGTH} characters."
    if not _URI.fullmatch(uri):
        return "A redirect URI has no fragment, space, control character or backslash."
    if uri in get_settings().oauth.app_redirects and not app_problem(uri):
        return ""
    return _web_problem(uri)


def is_allowed(uri: object) -> bool:
    """Whether the policy of this module lets a client register the address."""
    return not problem(uri)


def is_loopback(uri: str) -> bool:
    """Whether the address is the user's own machine, where any program may be listening."""
    parts = urlsplit(uri)
    return parts.scheme == "http" and parts.hostname in LOOPBACK


def app_problem(uri: str) -> str:
    """Why an entry of ``APP_REDIRECTS`` can never be used, as a sentence; empty if it can."""
    scheme = uri.partition(":")[0].lower()
    if scheme in NEVER:
        return f"{scheme!r} is no scheme of an application."
    if not _URI.fullmatch(uri) or not _APP.fullmatch(uri) or len(uri) > MAX_LENGTH:
        return "It is no absolute address such as 'com.example.app:/callback'."
    return ""


def _web_problem(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "A redirect URI has a host and a port that can be read."
    if parts.scheme not in ("http", "https") or not uri.startswith(f"{parts.scheme}://"):
        return (
            "A redirect URI is https, or http on localhost, 127.0.0.1 or [::1], or one of the "
            "application addresses that this site lists."
        )
    if not host or "*" in host or "%" in host or port == 0:
        return "A redirect URI names one host."
    if "@" in parts.netloc:
        return "A redirect URI names no user."
    if parts.scheme == "http" and host not in LOOPBACK:
        return "An http redirect URI is on localhost, 127.0.0.1 or [::1]; use https elsewhere."
    return ""
