"""Tests of `mcp_django/models`."""
