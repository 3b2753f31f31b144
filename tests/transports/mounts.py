"""One way to send a request to every mount, WSGI included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from django.db import connections
from django.test import Client

from tests.drivers import Answer, headers_for, send
from tests.transports.asgi import MOUNTS

EVERY_MOUNT = ("wsgi", *MOUNTS)


async def ask(
    mount: str,
    path: str,
    body: Mapping[str, Any] | bytes,
    *,
    verb: str = "POST",
    **changes: str | None,
) -> Answer:
    """Send a request to a mount by its name and read the whole answer."""
    if mount == "wsgi":
        return await asyncio.to_thread(_wsgi_in_thread, path, body, verb=verb, **changes)
    return await send(MOUNTS[mount], path, body, verb=verb, **changes)


def _wsgi_in_thread(*args: Any, **kwargs: Any) -> Answer:
    try:
        return wsgi(*args, **kwargs)
    finally:
        # The test client keeps the thread's connection open; nobody else will close it.
        connections.close_all()


def wsgi(
    path: str,
    body: Mapping[str, Any] | bytes,
    *,
    verb: str = "POST",
    client: Client | None = None,
    **changes: str | None,
) -> Answer:
    """Send a request through Django's test client, which serves the view as WSGI does."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = headers_for({} if isinstance(body, bytes) else body, **changes)
    content_type = headers.get("content-type", "")
    client = client or Client(enforce_csrf_checks=True)
    response: Any = client.generic(verb, path, raw, content_type=content_type, headers=headers)
    return Answer(
        status=response.status_code,
        headers={name.lower(): value for name, value in response.items()},
        body=response.content,
    )
