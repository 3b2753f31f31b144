"""Which ``ModelAdmin`` is meant, on which site.

An ``mcp`` module may be imported before the ``admin`` module of its app: then all of those are
imported first, as the admin itself does a moment later.
"""

from __future__ import annotations

import difflib
from typing import Any

from django.apps import apps
from django.contrib.admin import AdminSite, ModelAdmin
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model
from django.utils.module_loading import autodiscover_modules


def find_model_admin(target: Any, site: AdminSite | None) -> ModelAdmin[Any]:
    """The instance that a site made of a class, or for a model.

    Raises:
        ImproperlyConfigured: there is none; the message says what there is.
    """
    if not apps.is_installed("django.contrib.admin"):
        raise ImproperlyConfigured(
            'register_admin() reads the admin of the site: add "django.contrib.admin" to '
            "INSTALLED_APPS, or register the model itself."
        )
    if not isinstance(target, type) or not issubclass(target, Model | ModelAdmin):
        raise ImproperlyConfigured(
            f"register_admin() takes a model or a ModelAdmin, not {target!r}."
        )
    chosen = _default_site() if site is None else site
    found = _find(target, chosen)
    if found is None:
        autodiscover_modules("admin", register_to=chosen)
        found = _find(target, chosen)
    if found is None:
        raise ImproperlyConfigured(_unknown(target, chosen))
    return found


def _default_site() -> AdminSite:
    from django.contrib import admin

    return admin.site


def _registered(site: AdminSite) -> dict[type[Model], ModelAdmin[Any]]:
    return site._registry


def _find(target: type, site: AdminSite) -> ModelAdmin[Any] | None:
    if issubclass(target, Model):
        return _registered(site).get(target)
    found = [one for one in _registered(site).values() if type(one) is target]
    if len(found) > 1:
        names = ", ".join(one.model.__name__ for one in found)
        raise ImproperlyConfigured(
            f"{target.__name__} is the admin of several models: register one of {names}."
        )
    return found[0] if found else None


def _unknown(target: type, site: AdminSite) -> str:
    known = _registered(site)
    names = [model.__name__ for model in known]
    if not issubclass(target, Model):
        names = [type(one).__name__ for one in known.values()]
    close = difflib.get_close_matches(target.__name__, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; register it there, or pass site=…."
    return f"{target.__name__} is not registered at the admin site {site.name!r}{hint}"
