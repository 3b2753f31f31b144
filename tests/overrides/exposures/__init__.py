"""Tests of `mcp_django/overrides/exposures.py`."""
