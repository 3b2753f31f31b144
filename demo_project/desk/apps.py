"""App configuration of the operations desk."""

from __future__ import annotations

from django.apps import AppConfig


class DeskConfig(AppConfig):
    name = "demo_project.desk"
    verbose_name = "Operations desk"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the signals that notify subscribed clients whenever a notice is saved."""
        from demo_project.desk import announcements

        announcements.connect_signals()
