"""Tests of `mcp_django/auth`."""

from __future__ import annotations
