"""Upstream access under locks and in a transaction around the call.

`test_on_postgresql.py` runs this file on PostgreSQL.
"""

from tests.oauth.upstream.test_access import (
    test_access_is_renewed_also_in_a_tool_that_may_not_write,
    test_access_that_ends_during_a_call_is_told_to_the_model,
)
from tests.oauth.upstream.test_access_honoring import (
    pytestmark,
    test_our_refresh_looks_upstream_first,
    test_threat_26_access_revoked_upstream_ends_our_tokens,
    test_threat_26_calls_at_once_renew_once,
    token,
)

__all__ = [
    "pytestmark",
    "test_access_is_renewed_also_in_a_tool_that_may_not_write",
    "test_access_that_ends_during_a_call_is_told_to_the_model",
    "test_our_refresh_looks_upstream_first",
    "test_threat_26_access_revoked_upstream_ends_our_tokens",
    "test_threat_26_calls_at_once_renew_once",
    "token",
]
