"""The example site, filled, with its own URLconf."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.urls import path

from mcp_django.test import MCPClient

# Without REST framework there is no site.
HAS_SITE = bool(find_spec("rest_framework") and find_spec("django_filters"))
collect_ignore_glob = [] if HAS_SITE else ["*"]

Caller = Callable[..., MCPClient]


@pytest.fixture(autouse=True)
def site(db, settings):
    """Fill the shop, clear the throttles, and set the URLconf with the views."""
    from tests.integrations.rest.site import fill

    settings.ROOT_URLCONF = "tests.integrations.rest.urls"
    cache.clear()
    fill()


def give_address(settings: Any, view: Any) -> None:
    """Set a URLconf that has one view of a test, and no other."""
    callback = view.as_view() if isinstance(view, type) else view
    patterns = [path("own/", callback, name="own")]
    settings.ROOT_URLCONF = type("URLs", (), {"urlpatterns": patterns})


@pytest.fixture(scope="session")
def whole_site():
    """Return a server with every view of the site, which no test changes."""
    from tests.integrations.rest.site import rest_server

    return rest_server()


@pytest.fixture
def client_of(whole_site):
    """Return a function that makes a client for a user, of the whole site or of another server."""

    def client(username: str = "", server: Any = None) -> MCPClient:
        user = get_user_model().objects.get(username=username) if username else None
        return MCPClient(server=server or whole_site, user=user, raise_exceptions=False)

    return client
