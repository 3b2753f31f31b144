"""Tests of `mcp_django/admin`."""
