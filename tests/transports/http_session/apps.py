"""The application of the worker processes: it makes dead workers known sooner.

How long a silent process is believed in is nobody's to set but ours, so there is no setting for
it; a test that waits for a lease to end cannot wait for half a minute each time.
"""

from __future__ import annotations

import os

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Reads `MCP_TEST_LEASE_SECONDS`; a worker beats three times within its lease, as ever."""

    name = "tests.transports.http_session"
    label = "worker_processes"

    def ready(self) -> None:
        from mcp_django.storage import inbox

        if lease := os.environ.get("MCP_TEST_LEASE_SECONDS"):
            inbox.LEASE_SECONDS = float(lease)
            inbox.HEARTBEAT_SECONDS = float(lease) / 3
