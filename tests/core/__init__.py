"""Tests of `mcp_django/core`."""
