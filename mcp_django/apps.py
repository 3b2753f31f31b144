"""App configurations: ``MCPConfig`` imports all ``mcp`` modules, ``SimpleMCPConfig`` does not."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import use_defaults_if_invalid
from mcp_django.overrides import model_signals
from mcp_django.overrides.sync import catalog_rows
from mcp_django.schema import secrets
from mcp_django.server import all_servers
from mcp_django.storage import cleanup, revocations, task_rows
from mcp_django.tasks import handlers as task_handlers
from mcp_django.tenants import thread_context


class SimpleMCPConfig(AppConfig):
    """Installs the app without importing ``mcp`` modules; the site imports them itself."""

    name = "mcp_django"
    label = "mcp_django"
    verbose_name = _("Model Context Protocol")
    default_auto_field = "django.db.models.BigAutoField"
    # The class of ``mcp``; a subclass may override it, like ``AdminConfig.default_site``.
    default_server = "mcp_django.server.MCPServer"

    def ready(self) -> None:
        """Install the log filter for secrets, connect tasks and signals, register the checks."""
        # Imports models, so only after the apps are loaded.
        from mcp_django import checks

        secrets.install_log_filter()
        task_handlers.connect()
        if task_rows.close_expired not in cleanup.closers:
            cleanup.closers.append(task_rows.close_expired)
        checks.register_all()
        # Without users, no access can be revoked.
        if apps.is_installed("django.contrib.auth"):
            revocations.connect_receivers()
        cleanup.connect_tenants()
        model_signals.connect_signals()
        catalog_rows.connect(self, all_servers)
        # A value cached before may not reflect all modules of the site, or its settings.
        thread_context.cache_clear()


class MCPConfig(SimpleMCPConfig):
    """Installs the app and imports ``mcp.py`` of every installed app, as the admin does."""

    default = True

    def ready(self) -> None:
        """Set up the app, then import every ``mcp`` module."""
        super().ready()
        with use_defaults_if_invalid():
            autodiscover_modules("mcp")
        thread_context.cache_clear()
