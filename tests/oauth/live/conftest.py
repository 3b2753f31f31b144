"""The live site, started once; and at a prefix, once."""

import secrets

import httpx
import pytest

from tests.oauth.live.browser import Browser
from tests.oauth.live.host import SECONDS
from tests.oauth.live.site import GUESTS, running_site

_guests = iter(GUESTS)


@pytest.fixture(autouse=True)
def site():
    """Nothing of the site in this process is used here."""


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
    """The browser of somebody whom no other test knows, not yet signed in."""
    with Browser(next(_guests)) as opened:
        yield opened


@pytest.fixture
def http():
    """What a host sends requests with, from its own address; it follows no redirect."""
    address = f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}::1"
    headers = {"X-Forwarded-For": address}
    with httpx.Client(timeout=SECONDS, trust_env=False, headers=headers) as client:
        yield client
