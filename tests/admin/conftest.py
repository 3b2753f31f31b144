"""What the tests of screens share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def unpinned(_nothing_is_managed: None) -> Any:
    """Decisions are looked up, as on any site."""
    from mcp_django.managed.freshness import freshness

    freshness.forget()
    freshness.start_over()


@pytest.fixture(autouse=True)
def _few_servers(few_servers: None) -> None:
    """Screens that look at all servers cost the same whatever other tests have made."""
    from mcp_django import server as module
    from tests.admin.shelf import shelf
    from tests.runtime.approving_site import gated

    module._servers.update({shelf, gated})
