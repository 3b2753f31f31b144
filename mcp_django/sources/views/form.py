"""``register_form``: a class-based view with a form as a tool.

The form is the view's own: it is made, asked and saved by the view, so whatever the view adds
(the user, the edited row, a mail) is there. What the form refuses comes back field by field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django import forms
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.utils import timezone
from django.views.generic.edit import (
    BaseCreateView,
    BaseUpdateView,
    DeletionMixin,
    FormMixin,
    ModelFormMixin,
)

from mcp_django.core.component import Component
from mcp_django.core.context import Context
from mcp_django.sources.models.declaration import snake_case
from mcp_django.sources.site import results
from mcp_django.sources.site.answers import Answer
from mcp_django.sources.site.fresh import Sending
from mcp_django.sources.site.routes import Route, routes_called, routes_of
from mcp_django.sources.views.calling import call
from mcp_django.sources.views.components import component_of
from mcp_django.sources.views.posting import FormValues
from mcp_django.sources.views.source import ViewSource, form_in
from mcp_django.sources.views.values import TypedValues

FormClass = type[forms.BaseForm]


class FormSource(ViewSource):
    """A view with a form; one that edits a row is asked for its values first.

    A browser posts every field of the page that it was shown. A model names those that it wants
    to change, and the others go out as the view shows them to this caller.
    """

    def send(self, ctx: Context, sending: Sending) -> Answer:
        """Post the form."""
        layout = self.arguments.layout
        if layout.form is None or not _edits(layout.route):
            return call(ctx, sending)
        page = call(ctx, replace(sending, verb="GET", body=[]))
        results.check(page, verb="GET")
        fields = {
            name: value
            for name, value in sending.given.items()
            if name in layout.form.json_schema["properties"]
        }
        form = form_in(page)
        if not isinstance(form, forms.BaseForm):
            # Sent without them, the other fields of the row would be emptied.
            raise ImproperlyConfigured(
                f"{layout.route.view.__qualname__} answers GET without a form in its template's "
                "context, so the values of the edited row are not known."
            )
        with timezone.override(page.zone):
            current = layout.form.current(form)
            body = layout.form.pairs(fields, current=current)
        return call(ctx, replace(sending, body=body))


def form_component(
    target: str | type[Any],
    *,
    form: FormClass | None,
    query: Mapping[str, Any] | None,
    urlconf: str | None,
    options: Mapping[str, Any],
) -> Component:
    """The tool of a view with a form, given the view's class or the name of its URL.

    Raises:
        ImproperlyConfigured: the view has no form, or one that JSON cannot fill.
    """
    if isinstance(target, type):
        _check_view(target)
        name = snake_case(target.__name__.removesuffix("View"))
        options = {
            **_hints(target),
            **{key: one for key, one in options.items() if one is not None},
        }
    elif isinstance(target, str):
        name = target.rpartition(":")[2].replace("-", "_")
    else:
        raise ImproperlyConfigured(
            f"register_form() takes a class-based view or the name of its URL, not {target!r}."
        )

    def find() -> Sequence[Route]:
        found = (
            routes_called(target, urlconf)
            if isinstance(target, str)
            else routes_of(target, urlconf)
        )
        for route in found:
            _check_view(route.view)
        return found

    source = FormSource(
        find,
        verb="POST",
        query=TypedValues(query) if query is not None else None,
        make_form=lambda route: _values(route, form),
        urlconf=urlconf,
        is_readable=True,
    )
    return component_of(source, kind="tool", name=name, verb="POST", options=options)


def _hints(view: type[Any]) -> dict[str, bool]:
    """What the kind of a view says of its tool; a form of any other kind may do anything."""
    if issubclass(view, BaseUpdateView | DeletionMixin):
        return {"read_only": False, "destructive": True, "idempotent": True}
    if issubclass(view, BaseCreateView):
        return {"read_only": False, "destructive": False}
    return {}


def _check_view(view: Any) -> None:
    if not (isinstance(view, type) and issubclass(view, FormMixin)):
        raise ImproperlyConfigured(
            f"{getattr(view, '__qualname__', view)!r} has no form: it is no FormView, "
            "CreateView, UpdateView or DeleteView; use register_view(…, method='post', form=…)."
        )


def _values(route: Route, form: FormClass | None) -> FormValues:
    return FormValues(
        form or _form_class(route),
        prefix=getattr(route.view, "prefix", None),
        is_checked=False,
        is_partial=_edits(route),
    )


def _edits(route: Route) -> bool:
    return isinstance(route.view, type) and issubclass(route.view, BaseUpdateView)


def _form_class(route: Route) -> FormClass:
    """The form of a view, found without a request."""
    given = getattr(route.callback, "view_initkwargs", {})
    view = route.view(**given)
    if view.form_class is not None:
        found: FormClass = view.form_class
        return found
    if isinstance(view, ModelFormMixin):
        view.object = None  # type: ignore[attr-defined]  # what ``get`` sets
        try:
            return view.get_form_class()
        except (AttributeError, FieldError, ImproperlyConfigured) as exc:
            reason = f" ({exc})"
    else:
        reason = ""
    raise ImproperlyConfigured(
        f"The form of {route.view.__qualname__} is not known before there is a request{reason}; "
        "name it: register_form(…, form=…)."
    )
