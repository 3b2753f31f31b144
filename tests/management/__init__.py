"""Tests of `mcp_django/management`."""

from __future__ import annotations
