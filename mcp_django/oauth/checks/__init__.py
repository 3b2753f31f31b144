"""System checks that name every state in which the authorization server is half set up."""

from __future__ import annotations

from django.core import checks

from mcp_django.oauth.checks import clients, provider, site, upstream

TAG = "mcp_oauth"

ALL = (
    provider.check_toolkit,
    provider.check_classes,
    provider.check_keys,
    provider.check_refresh_tokens,
    provider.check_gates,
    provider.check_toolkit_registration,
    provider.check_documents,
    site.check_urls,
    site.check_login,
    site.check_middleware,
    site.check_issuer,
    site.check_hosts,
    site.check_templates,
    site.check_use,
    clients.check_app_redirects,
    clients.check_field_keys,
    upstream.check_providers,
    upstream.check_servers,
)


def register_all() -> None:
    """Register every check; called when the app is ready."""
    for check in ALL:
        checks.register(check, TAG)
    checks.register(site.check_scheme, TAG, deploy=True)
    checks.register(clients.check_clients, TAG, checks.Tags.database)
