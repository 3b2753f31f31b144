"""Tests of `mcp_django/components`."""
