"""Tests of `mcp_django/management`."""
