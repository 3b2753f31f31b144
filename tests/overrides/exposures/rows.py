"""Rows of exposures, and users who may view what they show."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission

from mcp_django.models import ModelExposure, ViewExposure
from mcp_django.overrides.state import publish_change
from tests.kit.servers import person

ORDERS = {
    "fields": ["number", "status", "total", "customer"],
    "filter_fields": ["status", "total"],
    "search_fields": ["number"],
    "ordering_fields": ["total", "number"],
    "page_size": 2,
}


def expose(target: str = "shop.Order", **changes: Any) -> ModelExposure:
    """Create a model exposure, by default of orders."""
    details: dict[str, Any] = {"server": "desk", "options": ORDERS, **changes}
    made = ModelExposure.objects.create(target=target, **details)
    publish_change([(made.server, "tools")])
    return made


def expose_view(target: str, **changes: Any) -> ViewExposure:
    """Create a view exposure."""
    groups = {name: changes.pop(name) for name in ("groups", "name") if name in changes}
    server = changes.pop("server", "desk")
    made = ViewExposure.objects.create(target=target, server=server, options=changes, **groups)
    publish_change([(server, "tools")])
    return made


def viewer(*codenames: str, username: str = "ada", **details: Any) -> Any:
    """Return a user who holds these permissions, by default to view orders."""
    user = person(username, **details)
    for codename in codenames or ("view_order",):
        user.user_permissions.add(Permission.objects.get(codename=codename))
    return type(user).objects.get(pk=user.pk)
