"""Client metadata documents that are published in memory, and the network that serves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp_django.auth.outbound import OutboundResponse, RequestTarget
from mcp_django.oauth.cimd import Fetcher

CLIENT = "https://client.example/metadata.json"
PUBLIC = "203.0.114.10"
# The requests to the network, and its responses; the fixture ``web`` empties both.
targets: list[RequestTarget] = []
published: dict[str, OutboundResponse] = {}


def document(**more: Any) -> dict[str, Any]:
    """Return a valid document, with these members changed; ``None`` removes one."""
    values = {
        "client_id": CLIENT,
        "client_name": "Example Client",
        "redirect_uris": ["https://client.example/callback", "http://localhost/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    return {name: value for name, value in (values | more).items() if value is not None}


def answer(body: object, **more: Any) -> OutboundResponse:
    """Return a host's response with a body."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | more.pop("headers", {})
    return OutboundResponse(**({"status": 200, "headers": headers, "body": encoded} | more))


def publish(values: dict[str, Any] | None = None) -> str:
    """Publish a document and return its address, which is the client id."""
    values = values or document()
    published[values["client_id"]] = answer(values)
    return str(values["client_id"])


def resolve(host: str, port: int) -> list[str]:
    """Resolve every host to one public address."""
    return [PUBLIC]


def transport(target: RequestTarget, max_bytes: int, seconds: float) -> OutboundResponse:
    """Return the response that was published at the address, or a 404."""
    targets.append(target)
    response = published.get(f"https://{target.host}{target.path}")
    return response or OutboundResponse(status=404, headers={}, body=b"")


def fetcher(given: OutboundResponse, resolve: Callable[[str, int], list[str]] = resolve) -> Fetcher:
    """Return a fetcher that gets the same response to every request."""

    def give(target: RequestTarget, max_bytes: int, seconds: float) -> OutboundResponse:
        targets.append(target)
        return given

    return Fetcher(resolve, give)


class PublishedFetcher(Fetcher):
    """A value for ``CIMD_METADATA_FETCHER`` that fetches the documents published here."""

    def __init__(self) -> None:
        super().__init__(resolve, transport)
