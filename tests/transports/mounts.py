"""One way to send a request to every mount, WSGI included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db import connections
from django.test import Client

from tests.kit.drivers import Answer, headers_for, send
from tests.transports.asgi import MOUNTS

T = TypeVar("T")

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
        return await in_thread(wsgi, path, body, verb=verb, **changes)
    return await send(MOUNTS[mount], path, body, verb=verb, **changes)


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function in a thread of the event loop, and close its database connections.

    Neither Django nor this package would close the connections of such a thread.
    """

    def call() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.to_thread(call)


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
