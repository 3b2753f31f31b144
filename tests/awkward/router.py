"""Readings live apart from everything else."""

from __future__ import annotations

from typing import Any


class ReadingsApart:
    """Sends one model to the second database."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "readings" if model.__name__ == "Reading" else "default"

    db_for_write = db_for_read

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool | None:
        return None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "readings") == (hints.get("model_name") == "reading")
