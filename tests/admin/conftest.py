"""What the tests of screens share."""

from functools import partial

import pytest
from django.contrib import admin
from django.test import Client
from django.utils.functional import SimpleLazyObject

from tests.admin.staff import FixedUserMiddleware

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@pytest.fixture(autouse=True)
def _few_servers(few_servers):
    """Screens that look at all servers cost the same whatever other tests have made."""
    from mcp_django import server as module
    from tests.admin.shelf import shelf
    from tests.execution.approval_site import gated

    module._servers.update({shelf, gated})


@pytest.fixture(autouse=True)
def _no_sidebar(monkeypatch):
    """Leave out Django's list of all models beside a page, which is on the index as well."""
    listed = admin.site.get_app_list
    monkeypatch.setattr(admin.site, "enable_nav_sidebar", False)
    # Each page has it in its context all the same.
    monkeypatch.setattr(
        admin.site, "get_app_list", lambda *given: SimpleLazyObject(partial(listed, *given))
    )


@pytest.fixture
def sign_in(settings):
    """Sign in a user for all requests of a test that sends many, without queries for each."""
    fixed = f"{FixedUserMiddleware.__module__}.{FixedUserMiddleware.__qualname__}"
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MIDDLEWARE = [
        fixed if path == AUTHENTICATION else path for path in settings.MIDDLEWARE
    ]

    def sign_in(user):
        FixedUserMiddleware.user = user
        return Client()

    return sign_in
