"""From a ``ModelAdmin`` to the class that is registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp_django.sources.model_admin.declaration import AdminTools
from mcp_django.sources.model_admin.deriving import derive
from mcp_django.sources.model_admin.finding import find_model_admin
from mcp_django.sources.models.resource import ModelResource

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.db.models import Model


def admin_declaration(
    target: Any, site: AdminSite | None, options: Mapping[str, Any]
) -> tuple[type[Model], type[AdminTools[Any]]]:
    """The model, and a class that says of it what its admin says.

    An option that is given replaces what the admin says; one that is ``None`` was not.

    Raises:
        ImproperlyConfigured: there is no such admin.
    """
    model_admin = find_model_admin(target, site)
    given = {name: value for name, value in options.items() if value is not None}
    derived = derive(model_admin, given.get("fields"))
    if not given.get("tools"):
        # Nothing is read, so nothing is missed.
        derived.left_out.clear()
    bases = (AdminTools, ModelResource) if "uri" in given else (AdminTools,)
    members = {**derived.options, **given, "model_admin": model_admin}
    # The words of the admin's own class are for its developers.
    cls: type[AdminTools[Any]] = type(type(model_admin).__name__, bases, members)
    return model_admin.model, cls
