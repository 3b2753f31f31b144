"""Readings live apart from everything else, and so does whatever has to do with members."""

from __future__ import annotations

from typing import Any

READINGS, PEOPLE = "readings", "people"
# Sessions of browsers stay where everything is that nobody has moved.
_OF_PEOPLE = frozenset(
    {"auth", "awkward", "contenttypes", "mcp_django", "mcp_oauth", "oauth2_provider"}
)


def _home(app_label: str, model_name: str | None) -> str:
    if model_name == "reading":
        return READINGS
    return PEOPLE if app_label in _OF_PEOPLE else "default"


class EachInItsPlace:
    """Sends one model to the second database, and members, tokens and the rest of us to a third."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return _home(model._meta.app_label, model._meta.model_name)

    db_for_write = db_for_read

    def allow_relation(self, row: Any, other: Any, **hints: Any) -> bool | None:
        return None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == _home(app_label, hints.get("model_name"))
