"""pytest fixtures for sites; a conftest names this module in ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mcp_django.test import MCPClient


@pytest.fixture
def mcp_client() -> Callable[..., MCPClient]:
    """Make an ``MCPClient``: ``mcp_client(user=user, server=staff)``."""
    # Imported here: a plugin is loaded before the settings are configured.
    from mcp_django.test import MCPClient

    return MCPClient
