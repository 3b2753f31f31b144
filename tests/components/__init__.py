"""Tests of `mcp_django/components`."""

from __future__ import annotations
