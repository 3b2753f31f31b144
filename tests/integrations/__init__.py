"""Tests of `mcp_django/integrations`."""
