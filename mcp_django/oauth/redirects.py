"""Redirect URI policy for clients that register themselves (RFC 8252; RFC 9700, section 2.1).

Allowed are ``https`` URIs, ``http`` URIs of the user's own machine, and the private-use URIs listed
in ``OAUTH["APP_REDIRECTS"]``. The toolkit compares a requested URI with the registered ones:
exactly, except for the port of a loopback address.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from mcp_django.conf import get_settings

MAX_LENGTH = 2000
# The loopback addresses whose port the toolkit ignores (RFC 8252, section 7.3), and no others.
HTTP_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
# Schemes that the browser handles itself, or that are not those of an application.
FORBIDDEN_SCHEMES = frozenset(
    (
        *("about", "blob", "chrome", "data", "file", "filesystem", "ftp", "http", "https"),
        *("intent", "jar", "javascript", "mailto", "tel", "vbscript", "view-source", "ws", "wss"),
    )
)
# The characters of RFC 3986 without the number sign: no space, control character or backslash.
_URI = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_APP = re.compile(r"[a-z][a-z0-9+.\-]*:/[^#]*")


def redirect_problem(uri: object) -> str:
    """Return why a redirect URI is not allowed, as a sentence, or an empty string."""
    if not isinstance(uri, str) or not uri:
        return "A redirect URI must be a non-empty string."
    if len(uri) > MAX_LENGTH:
        return f"A redirect URI must have at most {MAX_LENGTH} characters."
    if not _URI.fullmatch(uri):
        return "A redirect URI must not contain a fragment, space, control character or backslash."
    if uri in get_settings().oauth.app_redirects and not app_redirect_problem(uri):
        return ""
    return _web_problem(uri)


def is_allowed(uri: object) -> bool:
    """Return whether a client may register the redirect URI."""
    return not redirect_problem(uri)


def app_redirect_problem(uri: str) -> str:
    """Return why an entry of ``APP_REDIRECTS`` is not valid, as a sentence, or an empty string."""
    scheme = uri.partition(":")[0].lower()
    if scheme in FORBIDDEN_SCHEMES:
        return f"{scheme!r} is not an application's own scheme."
    if not _URI.fullmatch(uri) or not _APP.fullmatch(uri) or len(uri) > MAX_LENGTH:
        return "It is not an absolute URI such as 'com.example.app:/callback'."
    return ""


def _web_problem(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "A redirect URI must have a valid host and port."
    if parts.scheme not in ("http", "https") or not uri.startswith(f"{parts.scheme}://"):
        return (
            "A redirect URI must be https, or http on localhost, 127.0.0.1 or [::1], or one of the "
            "application URIs that this site lists."
        )
    if not host or "*" in host or "%" in host or port == 0:
        return "A redirect URI must name one host."
    if "@" in parts.netloc:
        return "A redirect URI must not contain a user name."
    if parts.scheme == "http" and host not in HTTP_HOSTS:
        return "An http redirect URI must be on localhost, 127.0.0.1 or [::1]; use https elsewhere."
    return ""
