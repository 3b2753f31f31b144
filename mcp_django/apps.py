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
        """Register the system checks."""
        from mcp_django import checks

        checks.register_all()


class MCPConfig(SimpleMCPConfig):
    """Installs the app and finds ``mcp.py`` in every installed app, as the admin does."""

    default = True

    def ready(self) -> None:
        """Register the checks, then import every ``mcp`` module."""
        super().ready()
        autodiscover_modules("mcp")
