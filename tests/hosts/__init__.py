"""Tests of `mcp_django/hosts`."""
