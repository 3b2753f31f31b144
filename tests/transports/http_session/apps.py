"""The app of the worker processes, which shortens the leases of workers.

The length of a lease is internal, so there is no setting for it; a test that waits for a lease to
end cannot wait for half a minute each time.
"""

from __future__ import annotations

import os

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Reads `MCP_TEST_LEASE_SECONDS`; a worker still beats three times within its lease."""

    name = "tests.transports.http_session"
    label = "worker_processes"

    def ready(self) -> None:
        from mcp_django.storage import inbox

        if lease := os.environ.get("MCP_TEST_LEASE_SECONDS"):
            inbox.LEASE_SECONDS = float(lease)
            inbox.HEARTBEAT_SECONDS = float(lease) / 3
