"""Tests of `mcp_django/core`."""

from __future__ import annotations
