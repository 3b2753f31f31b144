"""How an authorization ends: a redirect to the client that says who answers (RFC 9207).

``iss`` is on every answer, success or error, exactly once and equal to the issuer of the metadata
(AUT-27); a client that talks to several servers tells by it whose answer it holds.
"""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qs, quote, unquote_plus, urlencode, urlsplit

from django.http import HttpRequest, HttpResponse
from oauth2_provider.http import OAuth2ResponseRedirect

from mcp_django.oauth.issuer import issuer_of


class UntrustedRequest(Exception):
    """The redirect URI cannot be trusted, so only the user may be told (RFC 6749, 4.1.2.1).

    ``detail`` is a second sentence, for whoever mends it.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Refused(Exception):
    """An error that the client is told through its redirect URI, with its state."""

    def __init__(self, error: str, description: str, *, redirect_uri: str, state: str = "") -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.redirect_uri = redirect_uri
        self.state = state

    def location(self) -> str:
        """Where the browser goes; the issuer is added by ``redirect``."""
        values = {"error": self.error, "error_description": self.description, "state": self.state}
        return _with(self.redirect_uri, {name: value for name, value in values.items() if value})


class WrongAccount(Refused):
    """A refusal that is about the account; the user may have another one."""


def with_code(redirect_uri: str, issued: str, *, state: str = "") -> str:
    """The redirect URI with the code of ``issued``, the location the toolkit made.

    That has the client's own query in another spelling, which a client may compare.
    """
    code = parse_qs(urlsplit(issued).query)["code"][-1]
    return _with(redirect_uri, {"code": code} | ({"state": state} if state else {}))


def redirect(request: HttpRequest, location: str) -> HttpResponse:
    """The redirect to a client, with ``iss``. The scheme was judged with the redirect URI."""
    scheme = urlsplit(location).scheme.lower()
    return cast(
        HttpResponse, OAuth2ResponseRedirect(with_issuer(location, issuer_of(request)), [scheme])
    )


def with_issuer(location: str, issuer: str) -> str:
    """The location with one ``iss``; what else its query says stays as it is, byte for byte."""
    base, _, query = location.partition("?")
    kept = [one for one in query.split("&") if one and unquote_plus(one.partition("=")[0]) != "iss"]
    return f"{base}?{'&'.join([*kept, 'iss=' + quote(issuer, safe='')])}"


def _with(location: str, values: dict[str, str]) -> str:
    return location + ("&" if "?" in location else "?") + urlencode(values)
