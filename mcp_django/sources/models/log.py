"""``LogEntry`` rows for what callers write, where the site has the admin and its history pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from django.apps import apps
from django.db.models import Model

from mcp_django.core.context import Context

Deed = Literal["add", "change", "delete"]
# django.contrib.admin.models has the same numbers, and cannot be imported without the admin.
FLAGS = {"add": 1, "change": 2, "delete": 3}


def record(
    ctx: Context, obj: Model, key: Any, deed: Deed, *, tool: str, fields: Iterable[str] = ()
) -> None:
    """Leave an entry in the history of an object; without admin or user there is none.

    ``key`` is the object's own, which a deleted one has lost. Fields are named and never their
    values, since who reads the history may see fewer fields than who wrote.
    """
    if not apps.is_installed("django.contrib.admin") or not _is_user(ctx.user):
        return
    from django.contrib.admin.models import LogEntry
    from django.contrib.contenttypes.models import ContentType

    kind = ContentType.objects.get_for_model(obj, for_concrete_model=False)
    LogEntry.objects.create(
        user_id=ctx.user.pk,
        content_type_id=kind.pk,
        object_id=str(key),
        object_repr=str(obj)[:200],
        action_flag=FLAGS[deed],
        change_message=_message(deed, tool, list(fields)),
    )


def _is_user(user: Any) -> bool:
    """Whether the history can point to this caller: a row of the site's own table of users."""
    from django.contrib.auth import get_user_model

    return isinstance(user, get_user_model()) and user.pk is not None


def _message(deed: Deed, tool: str, fields: list[str]) -> str:
    through = f"through the MCP tool {tool}."
    if deed == "add":
        return f"Added {through}"
    if deed == "delete":
        return f"Deleted {through}"
    return f"Changed {', '.join(fields)} {through}" if fields else f"Changed no field {through}"
