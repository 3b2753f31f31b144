"""Where a component comes from, for a list of them: its app, and what in it declares it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import unwrap
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.component import Component
from mcp_django.sources.views.source import ViewSource


def app_of(component: Component) -> str:
    """The label of the app that the component belongs to: of its model, its view or its module."""
    model = getattr(getattr(component.callable, "declared_by", None), "model", None)
    if model is not None:
        return str(model._meta.app_label)
    module = str(getattr(_home(component.callable), "__module__", ""))
    config = apps.get_containing_app_config(module)
    return config.label if config is not None else module.partition(".")[0]


def origin_of(component: Component) -> str:
    """What declares the component, in words: a module, a class, or a view of the site."""
    home = _home(component.callable)
    if home is component.callable or hasattr(component.callable, "declared_by"):
        return component.origin
    return f"{home.__module__}.{getattr(home, '__qualname__', type(home).__qualname__)}"


def _home(function: Callable[..., Any]) -> Any:
    """Whatever of the site's own is behind a function: of a component of a view, the view."""
    source = getattr(function, "__self__", None)
    if not isinstance(source, ViewSource):
        return function
    try:
        view: Any = source.arguments.layout.route.view
    except ImproperlyConfigured:
        # The URLconf has no such view; a system check says so.
        return function
    while isinstance(view, partial):
        view = view.func
    view = unwrap(view)
    return getattr(view, "view_class", None) or getattr(view, "cls", None) or view
