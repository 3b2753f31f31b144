"""Fixtures of a site that is its own authorization server."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.core.signals import setting_changed

pytest.importorskip("oauth2_provider")

from oauth2_provider.views.mixins import OAuthLibMixin

from tests.oauth import parties


def _forget_cores(*, setting: str, **kwargs: Any) -> None:
    """Reset what the toolkit's views cache of its settings, such as the lifetime of tokens."""
    views = [OAuthLibMixin]
    while setting == "OAUTH2_PROVIDER" and views:
        view = views.pop()
        views += view.__subclasses__()
        if "_oauthlib_core" in vars(view):
            del view._oauthlib_core


setting_changed.connect(_forget_cores)


@pytest.fixture(autouse=True)
def site(settings, only_declared_servers):
    """The OAuth test site with its URLs, servers and scopes; rate limits start at zero."""
    settings.ROOT_URLCONF = "tests.oauth.urls"
    settings.LOGIN_URL = "login"
    settings.MCP_DJANGO = dict(parties.SETTINGS)
    cache.clear()
    yield settings
    cache.clear()


@pytest.fixture
def user(db):
    """A user who signs in."""
    return parties.make_user()


@pytest.fixture
def app(db):
    """A client that registered itself."""
    return parties.make_app()
