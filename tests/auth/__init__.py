"""Tests of `mcp_django/auth`."""
