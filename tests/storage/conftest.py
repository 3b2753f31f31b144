"""Sessions to try the store with, as the tests of the transport have them."""

import os

from tests.transports.http_session.conftest import (
    _stage,
    app,
    gate,
    here,
    mount,
    session,
    streaming,
)

__all__ = ["_stage", "app", "gate", "here", "mount", "session", "streaming"]

# Only there are rows locked one by one.
POSTGRES = os.environ.get("DJANGO_SETTINGS_MODULE") == "tests.kit.settings_postgres"
collect_ignore = [] if POSTGRES else ["test_streams_locked_rows.py"]
