"""``register_view``: a URL name as a tool, a resource, a resource template or a prompt."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.component import Component
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.sources.site.routes import routes_called
from mcp_django.sources.views.components import Kind, component_of
from mcp_django.sources.views.posting import FormValues
from mcp_django.sources.views.source import ViewSource
from mcp_django.sources.views.values import TypedValues, Values

VERBS = ("GET", "POST")
KINDS = ("tool", "resource", "prompt")


def view_component(
    target: str,
    *,
    uri: str | None,
    kind: Kind | None,
    method: str,
    query: Mapping[str, Any] | type[forms.BaseForm] | None,
    form: type[forms.BaseForm] | None,
    readable: bool,
    urlconf: str | None,
    options: Mapping[str, Any],
) -> Component:
    """The component of a URL name.

    Raises:
        ImproperlyConfigured: the declaration cannot work, whatever the URLconf has.
    """
    if not isinstance(target, str):
        raise ImproperlyConfigured(
            f"register_view() takes the name of a URL, as in 'shop:price_list', not {target!r}."
        )
    verb = _verb(target, method, form)
    kind = _kind(target, kind, uri, verb)
    template = _template(uri)
    source = ViewSource(
        lambda: routes_called(target, urlconf),
        verb=verb,
        query=_query(target, query),
        make_form=lambda route: FormValues(form) if form is not None else None,
        template=template.variables if template is not None else None,
        urlconf=urlconf,
        is_readable=readable,
    )
    name = target.rpartition(":")[2].replace("-", "_")
    if form is not None:
        # What is wrong with a form is wrong without a URLconf.
        FormValues(form)
    return component_of(source, kind=kind, name=name, template=template, verb=verb, options=options)


def _verb(target: str, method: str, form: type[forms.BaseForm] | None) -> str:
    verb = str(method).upper()
    if verb not in VERBS:
        raise ImproperlyConfigured(
            f"register_view({target!r}): method is 'get' or 'post', not {method!r}."
        )
    if form is not None and verb != "POST":
        raise ImproperlyConfigured(
            f"register_view({target!r}): a form is posted; add method='post', or give it as "
            "query=… when the view reads it from the address."
        )
    return verb


def _kind(target: str, kind: str | None, uri: str | None, verb: str) -> Kind:
    found = kind or ("tool" if uri is None else "resource")
    if found not in KINDS:
        nearest = difflib.get_close_matches(found, KINDS, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"use one of {', '.join(KINDS)}."
        raise ImproperlyConfigured(f"register_view({target!r}): there is no kind {kind!r}; {hint}")
    if found == "resource" and uri is None:
        raise ImproperlyConfigured(
            f"register_view({target!r}): a resource has a URI; give uri='shop://…'."
        )
    if found != "resource" and uri is not None:
        raise ImproperlyConfigured(
            f"register_view({target!r}): a {found} has no URI; take uri away, or say "
            "kind='resource'."
        )
    if found != "tool" and verb != "GET":
        raise ImproperlyConfigured(f"register_view({target!r}): only a tool can post.")
    return found  # type: ignore[return-value]  # one of the three, as was checked


def _template(uri: str | None) -> URITemplate | None:
    if uri is None:
        return None
    try:
        return URITemplate(uri)
    except ValueError as exc:
        raise ImproperlyConfigured(f"resource {uri!r}: {exc}") from None


def _query(target: str, query: Any) -> Values | None:
    if query is None:
        return None
    if isinstance(query, type) and issubclass(query, forms.BaseForm):
        return FormValues(query)
    if isinstance(query, Mapping):
        return TypedValues(query)
    raise ImproperlyConfigured(
        f"register_view({target!r}): query names what the address may hold, as in "
        f"query={{'season': str}}, or is a form class; not {query!r}."
    )
