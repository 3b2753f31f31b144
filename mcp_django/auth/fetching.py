"""Documents of the authorization servers that the site's owner named: keys, metadata, answers.

The standard library fetches them, so that checking a token needs no HTTP client to be installed and
a company's proxy settings count. The addresses come from the settings or from an issuer that the
settings trust, never from a token or a client, so a private address is no attack. What is left to
guard against is a server that misbehaves: https with a checked certificate, no redirects, a
deadline, a size, JSON objects only. Nothing is fetched on an event loop.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
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
from django.utils.asyncio import async_unsafe
from django.views.decorators.debug import sensitive_variables

from mcp_django.conf_auth import is_loopback

TIMEOUT_SECONDS = 5
MAX_BYTES = 256 * 1024
_CHUNK = 16 * 1024
# Some providers turn the library's own name away, as that of a robot.
_HEADERS = {
    "Accept": "application/json, application/jwk-set+json",
    "User-Agent": "django-mcp-provider",
}


class FetchFailed(Exception):
    """A document could not be had; the text names the address and the reason, never a secret."""


class _NoRedirect(HTTPRedirectHandler):
    """Takes a redirect for what it is: an answer from somebody who was not asked."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


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
    except (URLError, HTTPException, OSError) as exc:
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
