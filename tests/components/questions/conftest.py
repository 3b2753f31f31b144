"""Fixtures: every mount in turn, for a server that the test creates."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import SyncToAsync
from django.db import connections
from django.urls import path

from mcp_django import MCPServer
from tests.kit.drivers import Answer, send
from tests.sites.example.asgi import application, plain
from tests.transports.mounts import in_thread, wsgi


@pytest.fixture(autouse=True)
def _close_connections():
    """Close the connections that async tests leave open in asgiref's thread."""
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture(params=["wsgi", "view", "lane", "raw"])
def ask(request, settings):
    """A function that sends a request to a server on each mount in turn, and reads the response."""
    mount = request.param

    async def ask(server: MCPServer, body: Mapping[str, Any], **changes: str | None) -> Answer:
        urls = ModuleType("urls")
        urls.urlpatterns = [path("mcp", server.urls)]
        settings.ROOT_URLCONF = urls
        if mount == "wsgi":
            # In a thread, because Django's test client permits no running event loop.
            return await in_thread(wsgi, "/mcp", body, **changes)
        app = {"view": plain, "lane": application, "raw": server.asgi}[mount]
        return await send(app, "/mcp", body, **changes)

    return ask
