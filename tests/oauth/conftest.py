"""A site that is its own authorization server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache

pytest.importorskip("oauth2_provider")

from tests.oauth import parties


@pytest.fixture(autouse=True)
def site(settings: Any) -> Iterator[Any]:
    """The URLs and scopes of the OAuth test site; limits start from nothing."""
    settings.ROOT_URLCONF = "tests.oauth.urls"
    settings.LOGIN_URL = "login"
    settings.MCP_DJANGO = dict(parties.SETTINGS)
    cache.clear()
    yield settings
    cache.clear()


@pytest.fixture
def user(db: None) -> Any:
    """A user who signs in."""
    return parties.make_user()


@pytest.fixture
def app(db: None) -> Any:
    """A client that registered itself."""
    return parties.make_app()
