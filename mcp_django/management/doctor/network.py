"""The site over HTTP, as hosts see it: through its proxies, its TLS and its redirects.

Python's own ``urllib`` is enough, so the command needs no client library.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from mcp_django import __version__
from mcp_django.management.doctor.messages import MAX_BYTES, Answer, DoorError, Request

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NetworkDoor:
    """Sends requests over the network; each may take ``timeout`` seconds."""

    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout

    def send(self, request: Request) -> Answer:
        """The answer, whatever its status.

        Raises:
            DoorError: nobody answered, or not in time.
        """
        parts = urlsplit(request.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DoorError(f"{request.url!r} is no http address")
        agent = {"User-Agent": f"mcp-doctor/{__version__}"}
        sent = urllib.request.Request(  # noqa: S310 - the scheme was looked at above
            request.url,
            data=request.body if request.method == "POST" else None,
            headers={**agent, **request.headers},
            method=request.method,
        )
        try:
            with _opener(parts.hostname).open(sent, timeout=self._timeout) as response:
                return _answer(response)
        except urllib.error.HTTPError as exc:
            with exc:
                return _answer(exc)
        except (OSError, HTTPException, ValueError) as exc:
            reason = getattr(exc, "reason", None) or exc
            raise DoorError(f"{request.url} does not answer: {reason}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Leave a redirect to whoever asked: a host would lose its POST."""


def _opener(host: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if host in LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _answer(response: Any) -> Answer:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        known = headers.get(name.lower())
        headers[name.lower()] = f"{known}, {value}" if known else value
    # An open stream of events would be read for ever.
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    return Answer(
        status=response.status,
        headers=headers,
        body=b"" if is_stream else response.read(MAX_BYTES),
    )
