"""A site whose server `orders` also needs access at Acme."""

import pytest

pytest.importorskip("authlib")

from mcp_django.oauth.upstream import provider
from tests.oauth.parties import SETTINGS
from tests.oauth.servers import orders
from tests.oauth.upstream.parties import FakeProvider, configured


@pytest.fixture
def acme(site, monkeypatch):
    """The provider that `orders` requires access at."""
    fake = FakeProvider()
    monkeypatch.setattr(provider, "open_client", fake.open_client)
    monkeypatch.setattr(orders, "upstream", "acme")
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": configured()}
    return fake
