"""The live site, started once; and at a prefix, once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.oauth.live.browser import Browser
from tests.oauth.live.host import SECONDS
from tests.oauth.live.site import GUESTS, Site, running_site

_guests = iter(GUESTS)


@pytest.fixture(autouse=True)
def site() -> None:
    """Nothing of the site in this process is used here."""


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site at the root of its host."""
    with running_site(tmp_path_factory.mktemp("oauth")) as running:
        yield running


@pytest.fixture(scope="session")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site at a prefix, whose issuer has a path."""
    with running_site(tmp_path_factory.mktemp("oauth-prefix"), prefix="/app") as running:
        yield running


@pytest.fixture
def browser() -> Iterator[Browser]:
    """The browser of somebody whom no other test knows, not yet signed in."""
    with Browser(next(_guests)) as opened:
        yield opened


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """What a host sends requests with, from its own address; it follows no redirect."""
    address = f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}::1"
    headers = {"X-Forwarded-For": address}
    with httpx.Client(timeout=SECONDS, trust_env=False, headers=headers) as client:
        yield client
