"""Checks of what approvals need of the site."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage

from mcp_django.auth.pages import HINT, has_sign_in_page
from mcp_django.checks.site import OAUTH_APP
from mcp_django.core.tool import Tool
from mcp_django.server import all_servers


def check_sign_in_page(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W016: a tool waits for a person who has no page to sign in at."""
    # The authorization server needs that page too, and has an error of its own for it.
    if apps.is_installed(OAUTH_APP) or not getattr(django_settings, "ROOT_URLCONF", ""):
        return []
    waiting = [
        f"{tool.key} on {server.name}"
        for server in all_servers()
        for tool in server
        if isinstance(tool, Tool) and tool.approval
    ]
    if not waiting or has_sign_in_page():
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}, which no URL of the site answers, "
            f"so nobody can sign in to approve a call ({', '.join(sorted(waiting))}).",
            hint=HINT,
            id="mcp_django.W016",
        )
    ]
