"""How much trouble tests with real processes make: a few seconds each, half a minute in CI.

`MCP_TEST_CHAOS_SECONDS` says how long each kind of trouble lasts.
"""

from __future__ import annotations

import os

SECONDS = float(os.environ.get("MCP_TEST_CHAOS_SECONDS", "4"))
IS_LONG = SECONDS >= 30
