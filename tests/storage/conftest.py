"""Sessions for tests of storage, as the tests of the transport have them."""

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

# This database locks rows one by one, which some tests need.
POSTGRES = os.environ.get("DJANGO_SETTINGS_MODULE") == "tests.kit.settings_postgres"
collect_ignore = [] if POSTGRES else ["test_streams_locked_rows.py"]
