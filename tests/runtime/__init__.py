"""Tests of `mcp_django/runtime`."""

from __future__ import annotations
