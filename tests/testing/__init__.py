"""Tests of `mcp_django/test`, the client for tests of sites."""
