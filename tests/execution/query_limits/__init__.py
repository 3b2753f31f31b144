"""Tests of `mcp_django/execution/query_limits.py`."""
