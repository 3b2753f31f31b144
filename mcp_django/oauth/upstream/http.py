"""Requests to a provider: no redirects, a total deadline, a bounded answer.

The addresses are the site owner's own configuration, so private networks are allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
from django.views.decorators.debug import sensitive_variables

from mcp_django.oauth.upstream.conf import is_safe
from mcp_django.oauth.upstream.errors import UpstreamUnavailable

TOTAL_SECONDS = 10
MAX_BYTES = 512 * 1024
ClientAuth = Callable[[str, str, dict[str, str], str], tuple[str, dict[str, str], str]]


def open_client() -> httpx.Client:
    """A client for one exchange; it follows nothing and trusts no proxy of the environment."""
    return httpx.Client(follow_redirects=False, timeout=TOTAL_SECONDS / 2, trust_env=False)


@sensitive_variables()
def fetch(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, content: str = ""
) -> httpx.Response:
    """The whole answer.

    Raises:
        UpstreamUnavailable: there was none in time, it is too long, or the address is not safe.
    """
    if not is_safe(url):
        raise UpstreamUnavailable("The provider names an address that is not https.")
    deadline = time.monotonic() + TOTAL_SECONDS
    body = bytearray()
    try:
        with (
            open_client() as client,
            client.stream(method, url, headers=dict(headers or {}), content=content) as answer,
        ):
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES or time.monotonic() > deadline:
                    raise UpstreamUnavailable("The provider's answer is too long or too slow.")
            # What was decoded is not to be decoded again.
            kept = [(k, v) for k, v in answer.headers.items() if k.lower() == "content-type"]
            return httpx.Response(
                answer.status_code, headers=kept, content=bytes(body), request=answer.request
            )
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise UpstreamUnavailable(f"The provider does not answer ({type(exc).__name__}).") from exc


def fetch_json(method: str, url: str, **options: Any) -> dict[str, Any]:
    """The JSON object of a successful answer.

    Raises:
        UpstreamUnavailable: the answer is anything else.
    """
    return json_of(fetch(method, url, **options))


def json_of(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object in an answer with status 200.

    Raises:
        UpstreamUnavailable: it is something else.
    """
    if answer.status_code != 200:
        raise UpstreamUnavailable(f"The provider answers with HTTP {answer.status_code}.")
    try:
        found = answer.json()
    except ValueError as exc:
        raise UpstreamUnavailable("The provider's answer is no JSON.") from exc
    if not isinstance(found, dict):
        raise UpstreamUnavailable("The provider's answer is no JSON object.")
    return found


class Session:
    """What Authlib's client sends its forms through."""

    @sensitive_variables()
    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: Any
    ) -> httpx.Response:
        """Send a form with the client's own authentication added.

        Raises:
            UpstreamUnavailable: there is no answer.
        """
        url, prepared, body = auth.prepare("POST", url, dict(headers), urlencode(data))
        return fetch("POST", url, headers=prepared, content=body)
