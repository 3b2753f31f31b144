"""A router: readings are in one database, and everything that belongs to members in another."""

from __future__ import annotations

from typing import Any

READINGS, PEOPLE = "readings", "people"
# Sessions of browsers stay in the default database, with everything else.
_OF_PEOPLE = frozenset(
    {"auth", "awkward", "contenttypes", "mcp_django", "mcp_oauth", "oauth2_provider"}
)


def _home(app_label: str, model_name: str | None) -> str:
    if model_name == "reading":
        return READINGS
    return PEOPLE if app_label in _OF_PEOPLE else "default"


class EachInItsPlace:
    """Sends readings to one database; members, tokens and this package's rows to another."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return _home(model._meta.app_label, model._meta.model_name)

    db_for_write = db_for_read

    def allow_relation(self, row: Any, other: Any, **hints: Any) -> bool | None:
        return None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == _home(app_label, hints.get("model_name"))
