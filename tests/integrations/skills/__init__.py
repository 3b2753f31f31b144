"""Tests of `mcp_django/integrations/skills.py`."""
