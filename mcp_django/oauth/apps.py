"""The app configuration of the authorization server."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _


class OAuthConfig(AppConfig):
    """Installs the authorization server beside ``mcp_django`` and ``oauth2_provider``."""

    name = "mcp_django.oauth"
    label = "mcp_oauth"
    verbose_name = _("Model Context Protocol: authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Import the models.

        Raises:
            ImproperlyConfigured: the toolkit is missing and the admin is there, whose autodiscovery
                would complain of the toolkit's models. Without the admin, a check says it (E001).
        """
        super().import_models()
        if apps.is_installed("django.contrib.admin") and not apps.is_installed("oauth2_provider"):
            raise ImproperlyConfigured(
                "mcp_django.oauth is installed without django-oauth-toolkit: "
                "pip install 'django-mcp-provider[oauth]', and add \"oauth2_provider\" to "
                "INSTALLED_APPS."
            )

    def ready(self) -> None:
        """Register the checks and what is to be pruned; keep tokens out of the log."""
        from mcp_django.oauth import checks, quiet
        from mcp_django.storage import cleanup

        checks.register_all()
        quiet.install()
        if _due not in cleanup.extra:
            cleanup.extra.append(_due)

    def document_problem(self, client_id: str) -> str:
        """Why this site cannot take the metadata document of a client; empty if it can.

        ``mcp doctor`` asks, which knows nothing of the toolkit.
        """
        from mcp_django.oauth.cimd import find_problem

        return find_problem(client_id)


def _due() -> dict[str, QuerySet[Any]]:
    # The toolkit's models cannot be imported before the apps are ready.
    from mcp_django.oauth.pruning import due

    return due()
