"""A fetcher for a network that has only the metadata documents; all its checks are in place."""

from __future__ import annotations

import json

from mcp_django.auth.outbound import FetchFailed, OutboundResponse, RequestTarget
from mcp_django.oauth import cimd
from tests.oauth.live.documents import DOCUMENTS

PUBLIC_ADDRESS = "93.184.215.14"


class Fetcher(cimd.Fetcher):
    """The fetcher of a site, with a table in place of the network."""

    def __init__(self) -> None:
        super().__init__(resolve=lambda host, port: [PUBLIC_ADDRESS], transport=_get)


def _get(target: RequestTarget, max_bytes: int, seconds: float) -> OutboundResponse:
    document = DOCUMENTS.get(f"https://{target.host}{target.path}")
    if document is None:
        raise FetchFailed("No connection.")
    body = json.dumps(document).encode()
    return OutboundResponse(status=200, headers={"content-type": "application/json"}, body=body)
