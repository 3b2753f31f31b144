"""The app configurations: one that imports every app's ``mcp`` module, and one that does not."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import defaults_while_wrong
from mcp_django.overrides import model_signals
from mcp_django.overrides.sync import catalog_rows
from mcp_django.schema import secrets
from mcp_django.server import all_servers
from mcp_django.storage import revocations


class SimpleMCPConfig(AppConfig):
    """Installs the app and leaves the import of the ``mcp`` modules to the site."""

    name = "mcp_django"
    label = "mcp_django"
    verbose_name = _("Model Context Protocol")
    default_auto_field = "django.db.models.BigAutoField"
    # The class of ``mcp``; a subclass of this configuration may name another, as for the admin.
    default_server = "mcp_django.server.MCPServer"

    def ready(self) -> None:
        """Keep secrets out of the log, register the system checks and listen to signals."""
        # It imports models, which needs the apps.
        from mcp_django import checks

        secrets.install()
        checks.register_all()
        # A site without users has nobody to send away.
        if apps.is_installed("django.contrib.auth"):
            revocations.connect()
        model_signals.connect()
        catalog_rows.connect(self, all_servers)


class MCPConfig(SimpleMCPConfig):
    """Installs the app and finds ``mcp.py`` in every installed app, as the admin does."""

    default = True

    def ready(self) -> None:
        """Register the checks, then import every ``mcp`` module."""
        super().ready()
        with defaults_while_wrong():
            autodiscover_modules("mcp")
