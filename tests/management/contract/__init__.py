"""Tests of `mcp_django/management/contract.py`."""
