"""A small site whose MCP tools are the requests that the benchmarks send."""

from __future__ import annotations
