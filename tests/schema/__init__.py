"""Tests of `mcp_django/schema`."""
