"""pytest fixtures for sites; add this module to ``pytest_plugins`` in ``conftest.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mcp_django.testing import MCPClient


@pytest.fixture
def mcp_client() -> Callable[..., MCPClient]:
    """Return ``MCPClient``, to be called as ``mcp_client(user=user, server=staff)``."""
    # Imported here since pytest loads plugins before the settings are configured.
    from mcp_django.testing import MCPClient

    return MCPClient
