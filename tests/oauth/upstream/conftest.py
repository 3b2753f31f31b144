"""A site whose server `orders` also needs access at Acme."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("authlib")

from mcp_django.oauth.upstream import provider
from tests.oauth.parties import SETTINGS
from tests.oauth.servers import orders
from tests.oauth.upstream.parties import FakeProvider, configured


@pytest.fixture
def acme(site: Any, monkeypatch: pytest.MonkeyPatch) -> FakeProvider:
    """The provider that `orders` stands on."""
    fake = FakeProvider()
    monkeypatch.setattr(provider, "open_client", fake.open_client)
    monkeypatch.setattr(orders, "upstream", "acme")
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": configured()}
    return fake
