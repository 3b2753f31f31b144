"""The app of the operations desk."""

from __future__ import annotations

from django.apps import AppConfig


class DeskConfig(AppConfig):
    name = "demo_project.desk"
    verbose_name = "Operations desk"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tell subscribed clients whenever a notice is saved, by whatever code."""
        from demo_project.desk import announcements

        announcements.connect()
