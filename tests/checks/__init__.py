"""Tests of `mcp_django/checks`."""
