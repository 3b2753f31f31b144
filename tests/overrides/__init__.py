"""Tests of `mcp_django/overrides`."""
