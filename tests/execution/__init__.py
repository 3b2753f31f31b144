"""Tests of `mcp_django/execution`."""

from __future__ import annotations
