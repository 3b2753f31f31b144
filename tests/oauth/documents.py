"""Clients that are documents, published in memory: the network as the fetcher is given it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp_django.auth.outbound import OutboundResponse, RequestTarget
from mcp_django.oauth.cimd import Fetcher

CLIENT = "https://client.example/metadata.json"
PUBLIC = "203.0.114.10"
# What was asked of the network, and what it answers; emptied by the fixture ``web``.
asked: list[RequestTarget] = []
published: dict[str, OutboundResponse] = {}


def document(**more: Any) -> dict[str, Any]:
    """A document that is good, with other members where given; ``None`` takes one out."""
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
    """How a host answers with a body."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | more.pop("headers", {})
    return OutboundResponse(**({"status": 200, "headers": headers, "body": encoded} | more))


def publish(values: dict[str, Any] | None = None) -> str:
    """Publish a document; its address is the client id."""
    values = values or document()
    published[values["client_id"]] = answer(values)
    return str(values["client_id"])


def resolve(host: str, port: int) -> list[str]:
    """Every host has one public address."""
    return [PUBLIC]


def transport(target: RequestTarget, max_bytes: int, seconds: float) -> OutboundResponse:
    """What was published at the address, else 404."""
    asked.append(target)
    response = published.get(f"https://{target.host}{target.path}")
    return response or OutboundResponse(status=404, headers={}, body=b"")


def fetcher(given: OutboundResponse, resolve: Callable[[str, int], list[str]] = resolve) -> Fetcher:
    """A fetcher that gets one answer to everything."""

    def give(target: RequestTarget, max_bytes: int, seconds: float) -> OutboundResponse:
        asked.append(target)
        return given

    return Fetcher(resolve, give)


class PublishedFetcher(Fetcher):
    """What a test puts into ``CIMD_METADATA_FETCHER``: fetches what was published here."""

    def __init__(self) -> None:
        super().__init__(resolve, transport)
