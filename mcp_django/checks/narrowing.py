"""A check of what was decided in the admin; it reads the database, so only where that is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Warning  # noqa: A004 - Django's name
from django.db import DatabaseError, router

from mcp_django.server import known_scopes
from mcp_django.storage.databases import tables

CODE = "mcp_django.W015"


def check_narrowing(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W015: the admin narrows something to a group, permission or scope that there is not."""
    if router.db_for_read(tables.Component) not in (databases or ()):
        return []
    try:
        return list(_unknown())
    except DatabaseError:
        # Not migrated yet; ``migrate`` itself runs this first.
        return []


def _unknown() -> Iterable[CheckMessage]:
    narrowed = [
        *tables.Server._default_manager.all(),
        *tables.Component._default_manager.filter(missing_since=None),
    ]
    known = {"groups": _groups(), "permissions": _permissions(), "scopes": known_scopes()}
    for row in narrowed:
        for column, names in known.items():
            unknown = sorted(set(getattr(row, column, ())) - names)
            if unknown:
                yield Warning(
                    f"The admin narrows the {row._meta.verbose_name} {row} by {column} that there "
                    f"are not: {', '.join(unknown)}.",
                    hint="Nobody but superusers gets past a group or permission without a holder, "
                    "and no token has an unknown scope: choose others in the admin.",
                    obj=row,
                    id=CODE,
                )


def _groups() -> set[str]:
    if not apps.is_installed("django.contrib.auth"):
        return set()
    from django.contrib.auth.models import Group

    return set(Group.objects.values_list("name", flat=True))


def _permissions() -> set[str]:
    if not apps.is_installed("django.contrib.auth"):
        return set()
    from django.contrib.auth.models import Permission

    rows = Permission.objects.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


TAG = checks.Tags.database
