"""The servers, callers and clock of the record.

The call log, spans and callers need the extras of the tests; without these, nothing is compared.
"""

import time
from types import SimpleNamespace

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("oauth2_provider")
pytest.importorskip("yaml")

from mcp_django.auth import limits
from mcp_django.execution import telemetry
from tests.matrix.callers import create_callers
from tests.matrix.observing import Watch
from tests.matrix.site import SETTINGS
from tests.transports.conftest import close_asgiref_connections

# In the middle of an hour, so that no period ends meanwhile.
NOW = 1_800_001_800


@pytest.fixture
def watch(settings, transactional_db, call_log, monkeypatch):
    """The `Watch` of requests to the site; the callers exist."""
    settings.ROOT_URLCONF = "tests.matrix.site"
    settings.MCP_DJANGO = SETTINGS
    clock = SimpleNamespace(time=lambda: NOW, monotonic=time.monotonic)
    monkeypatch.setattr(limits, "time", clock)
    close_asgiref_connections()
    create_callers()
    watcher = Watch(call_log)
    monkeypatch.setattr(telemetry, "load_instruments", lambda: watcher.instruments)
    with watcher.receive_signals():
        yield watcher
    close_asgiref_connections()
