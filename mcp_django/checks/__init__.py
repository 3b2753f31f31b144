"""System checks: what ``manage.py check`` says about a configuration that cannot work, or leaks."""

from __future__ import annotations

from django.core import checks

from mcp_django.checks import components, site

TAG = "mcp_django"

ALL = (
    site.check_distribution,
    site.check_settings,
    site.check_backends,
    site.check_mounts,
    site.check_middleware,
    site.check_origins,
    site.check_sqlite,
    site.check_persistent_connections,
    components.check_server_names,
    components.check_permissions,
    components.check_codenames,
    components.check_descriptions,
    components.check_async_transactions,
    components.check_prompt_templates,
    components.check_validation,
)


def register_all() -> None:
    """Register every check; called when the app is ready."""
    for check in ALL:
        checks.register(check, TAG)
