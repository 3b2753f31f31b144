"""The levels of log messages have an order."""

import pytest

from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.revisions import LOG_LEVELS, severity
from tests.spec import spec


@spec("LOG-1", "LOG-2")
def test_levels_are_ordered_by_severity():
    assert [severity(level) for level in LOG_LEVELS] == [*range(8)]
    assert severity("debug") < severity("error") < severity("emergency")
    with pytest.raises(InvalidParams, match="debug, info"):
        severity("x" * 10_000)
