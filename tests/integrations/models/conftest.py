"""Fixtures of the tests of models: published topics, commits, and servers with subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import MCPServer
from mcp_django.storage.versions import TopicKey
from tests.integrations.models.offering import offer
from tests.sites.shop.models import Order
from tests.transports.conftest import close_asgiref_connections


@pytest.fixture
def published(monkeypatch):
    """Return a list of what each call published: the URIs, and `resources` for the list."""
    announcements: list[list[str]] = []

    def announce(*topics: TopicKey) -> None:
        assert {topic.server for topic in topics} == {"shop"}
        announcements.append([topic.uri or topic.kind for topic in topics])

    monkeypatch.setattr("mcp_django.integrations.models.changes.publish", announce)
    return announcements


@pytest.fixture
def commit(django_capture_on_commit_callbacks):
    """Return a context manager that runs the callbacks of `on_commit` at its end."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


@pytest.fixture
def subscribed():
    """Yield a function that makes servers whose objects notify; unregister them after the test."""
    made: list[tuple[MCPServer, Any]] = []

    def make(model: Any = Order, **options: Any) -> MCPServer:
        server = offer(model, **{"subscribe": True, **options})
        made.append((server, model))
        return server

    yield make
    for server, model in made:
        if server.templates:
            server.unregister(model)


@pytest.fixture
def _closed():
    """Close the connection that an asynchronous test left in asgiref's thread."""
    yield
    close_asgiref_connections()
