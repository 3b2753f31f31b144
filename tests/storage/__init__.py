"""Tests of `mcp_django/storage`."""
