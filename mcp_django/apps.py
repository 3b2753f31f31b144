"""The app configurations: one that imports every app's ``mcp`` module, and one that does not."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class SimpleMCPConfig(AppConfig):
    """Installs the app and leaves the import of the ``mcp`` modules to the site."""

    name = "mcp_django"
    label = "mcp_django"
    verbose_name = _("Model Context Protocol")
    default_auto_field = "django.db.models.BigAutoField"
    # The class of ``mcp``; a subclass of this configuration may name another, as for the admin.
    default_server = "mcp_django.server.MCPServer"

    def ready(self) -> None:
        """Keep secrets out of the log, and register the system checks."""
        from mcp_django import checks
        from mcp_django.schema import secrets

        secrets.install()
        checks.register_all()
        self._hear_of_departures()
        self._hear_of_exposed_objects()
        self._keep_rows_of_the_catalog()

    @staticmethod
    def _hear_of_departures() -> None:
        from django.apps import apps

        # A site without users has nobody to send away.
        if apps.is_installed("django.contrib.auth"):
            from mcp_django.storage import revocations

            revocations.connect()

    @staticmethod
    def _hear_of_exposed_objects() -> None:
        from mcp_django.overrides import model_signals

        model_signals.connect()

    def _keep_rows_of_the_catalog(self) -> None:
        from mcp_django.overrides.sync import catalog_rows
        from mcp_django.server import all_servers

        catalog_rows.connect(self, all_servers)


class MCPConfig(SimpleMCPConfig):
    """Installs the app and finds ``mcp.py`` in every installed app, as the admin does."""

    default = True

    def ready(self) -> None:
        """Register the checks, then import every ``mcp`` module."""
        from mcp_django.conf import defaults_while_wrong

        super().ready()
        with defaults_while_wrong():
            autodiscover_modules("mcp")
