"""The system checks of ``manage.py check``, and their registration."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.core import checks

from mcp_django.checks import components, site
from mcp_django.conf import Check, skip_if_settings_invalid
from mcp_django.tenants import as_tenant

TAG = "mcp_django"


def _skip_all_if_settings_invalid(*functions: Check) -> tuple[Check, ...]:
    # Created once, so that calling ``ready`` again registers the same objects.
    return tuple(skip_if_settings_invalid(_of_no_tenant(check)) for check in functions)


def _of_no_tenant(check: Check) -> Check:
    """Return a check that runs without a tenant, so that no overrides of a tenant apply."""

    @wraps(check)
    def inner(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:
        with as_tenant(""):
            return check(app_configs, **kwargs)

    return inner


# The other checks need valid settings.
FIRST = (site.check_distribution, site.check_settings)
ALL = _skip_all_if_settings_invalid(
    site.check_backends,
    site.check_oauth_app,
    site.check_issuers,
    site.check_unused_issuers,
    site.check_rest_tokens,
    site.check_channel_layer,
    site.check_mounts,
    site.check_middleware,
    site.check_origins,
    site.check_sqlite,
    site.check_persistent_connections,
    site.check_tenants,
    components.check_server_names,
    components.check_permissions,
    components.check_codenames,
    components.check_descriptions,
    components.check_async_transactions,
    components.check_read_only_databases,
    components.check_prompt_templates,
    components.check_validation,
    components.check_admin_sources,
    components.check_views,
    components.check_left_out,
    components.check_uri_schemes,
    components.check_missing_columns,
    components.check_previews,
    site.check_scopes,
    site.check_resource_urls,
    site.check_can_connect,
    site.check_metadata,
    site.check_sign_in_page,
    components.check_sensitive,
    components.check_tool_names,
    components.check_lists,
    site.check_task_backend,
    components.check_apps,
)
# Not relevant during development; run with ``check --deploy``.
DEPLOY = _skip_all_if_settings_invalid(
    components.check_open_servers, components.check_rate_cache, site.note_uncached_callers
)
# Query the database; run with ``check --database default``.
DATABASE = _skip_all_if_settings_invalid(components.check_overrides)


def register_all() -> None:
    """Register all checks; called by ``AppConfig.ready``."""
    for check in (*FIRST, *ALL):
        checks.register(check, TAG)
    for check in DEPLOY:
        checks.register(check, TAG, deploy=True)
    for check in DATABASE:
        checks.register(check, TAG, checks.Tags.database)
