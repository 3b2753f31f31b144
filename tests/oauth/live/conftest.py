"""Fixtures that start the live site once at the root and once under a prefix."""

import secrets

import httpx
import pytest

from tests.oauth.live.browser import Browser
from tests.oauth.live.host import SECONDS
from tests.oauth.live.site import GUESTS, running_site

_guests = iter(GUESTS)


@pytest.fixture(autouse=True)
def site():
    """Override the fixture of the outer folder: these tests do not use this process's site."""


@pytest.fixture(scope="session")
def live(tmp_path_factory):
    """The site at the root of its host."""
    with running_site(tmp_path_factory.mktemp("oauth")) as running:
        yield running


@pytest.fixture(scope="session")
def prefixed(tmp_path_factory):
    """The site at a prefix, whose issuer has a path."""
    with running_site(tmp_path_factory.mktemp("oauth-prefix"), prefix="/app") as running:
        yield running


@pytest.fixture
def browser():
    """The browser of a user that no other test uses, not yet signed in."""
    with Browser(next(_guests)) as opened:
        yield opened


@pytest.fixture
def http():
    """The HTTP client of a host, with an address of its own; it follows no redirects."""
    address = f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}::1"
    headers = {"X-Forwarded-For": address}
    with httpx.Client(timeout=SECONDS, trust_env=False, headers=headers) as client:
        yield client
