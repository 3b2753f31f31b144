"""Models and views that are exposed here, in the admin."""

from __future__ import annotations

from mcp_django.admin.exposures import models, views

__all__ = ["models", "views"]
