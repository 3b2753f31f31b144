"""Tests of `mcp_django/execution`."""
