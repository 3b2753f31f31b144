"""Servers whose exposures the tests make, as the admin does."""

import pytest

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.overrides.model_signals import signal_relay
from mcp_django.overrides.state import override_version


@pytest.fixture(autouse=True)
def _rows_are_read():
    """Read exposures from the database, and disconnect all signal receivers before and after."""
    override_version.record_change()
    signal_relay.connect_receivers([])
    yield
    signal_relay.connect_receivers([])


@pytest.fixture
def server():
    """Return a server without components in code."""
    return MCPServer("desk", permission=AllowAny)
