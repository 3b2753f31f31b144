"""Whether there is anything to check yet: one mistake is to be told once, by its own check."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage

from mcp_django import conf

Check = Callable[..., list[CheckMessage]]


def when_ready(check: Check) -> Check:
    """The check, silent as long as the toolkit is missing or ``MCP_DJANGO`` cannot be read."""

    @wraps(check)
    def ready(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
        unreadable = conf.problems(getattr(settings, "MCP_DJANGO", {}))
        if unreadable or not apps.is_installed("oauth2_provider"):
            return []
        return check(app_configs, **kwargs)

    return ready
