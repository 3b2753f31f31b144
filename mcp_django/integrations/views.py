"""``register_view`` and ``register_form``: the site's own views and forms as components.

A view becomes a tool, a resource, a resource template or a prompt; a class-based view with a form
becomes a tool. Each call sends a new request through the site's own middleware. An exception that
the view raises is raised here, so a component never returns one of Django's error pages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal, get_args

from django import forms
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import Resolver404
from django.utils import timezone
from django.utils.functional import lazy
from django.views.generic.edit import (
    BaseCreateView,
    BaseUpdateView,
    DeletionMixin,
    FormMixin,
    ModelFormMixin,
)

from mcp_django.components.component import Component, ComponentFunction, Prompt
from mcp_django.components.context import Context
from mcp_django.components.resource import Resource, ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.exceptions import ToolError
from mcp_django.integrations import site_responses
from mcp_django.integrations.models.declaration import snake_case
from mcp_django.integrations.site_requests import (
    CallerRequest,
    SiteRequest,
    URLRoute,
    build_request,
    routes_by_name,
    routes_by_view,
    send_isolated,
)
from mcp_django.integrations.site_responses import SiteResponse, read_response
from mcp_django.integrations.view_arguments import (
    FormValues,
    RequestValues,
    TypedValues,
    ViewArguments,
)
from mcp_django.protocol.text import did_you_mean
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.deferred import runs_own_code
from mcp_django.schema.django_forms import FormClass
from mcp_django.schema.structure import Schema

ViewComponentType = Literal["tool", "resource", "prompt"]

HTTP_METHODS = ("GET", "POST")
KINDS = get_args(ViewComponentType)


def view_component(
    target: str,
    *,
    uri: str | None = None,
    kind: ViewComponentType | None = None,
    method: str = "get",
    query: Mapping[str, Any] | FormClass | None = None,
    form: FormClass | None = None,
    readable: bool = False,
    urlconf: str | None = None,
    **options: Any,
) -> Component:
    """Return the component of a URL name; ``options`` are those that views and forms share.

    Raises:
        ImproperlyConfigured: the declaration is not valid; the URLconf is not used for this check.
    """
    if not isinstance(target, str):
        raise ImproperlyConfigured(
            f"register_view() takes the name of a URL, as in 'shop:price_list', not {target!r}."
        )
    verb = str(method).upper()
    if verb not in HTTP_METHODS:
        raise ImproperlyConfigured(
            f"register_view({target!r}): method must be 'get' or 'post', not {method!r}."
        )
    if form is not None and verb != "POST":
        raise ImproperlyConfigured(
            f"register_view({target!r}): form=… needs method='post'; if the view reads the form "
            "from the query string, pass it as query=…."
        )
    kind = _check_kind(target, kind, uri, verb)
    try:
        template = None if uri is None else URITemplate(uri)
    except ValueError as exc:
        raise ImproperlyConfigured(f"resource {uri!r}: {exc}") from None
    make_query, query_schema = _query(target, query)
    arguments = ViewArguments(
        find=lambda: routes_by_name(target, urlconf),
        method=verb,
        make_query=make_query,
        query_schema=query_schema,
        what=f"The view {target}",
        make_form=lambda route: FormValues(form) if form is not None else None,
        template=template.variables if template is not None else None,
        urlconf=urlconf,
    )
    source = ViewRunner(arguments, kind=kind, is_readable=readable)
    name = target.rpartition(":")[2].replace("-", "_")
    if form is not None and not runs_own_code(form, "__init__"):
        # Errors in the form are raised now, without the URLconf.
        FormValues(form)
    return _build_component(source, kind=kind, name=name, template=template, options=options)


def _check_kind(target: str, kind: str | None, uri: str | None, verb: str) -> ViewComponentType:
    kind = kind or ("tool" if uri is None else "resource")
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS, f"use one of {', '.join(KINDS)}.")
        raise ImproperlyConfigured(f"register_view({target!r}): no kind named {kind!r}; {hint}")
    if kind == "resource" and uri is None:
        raise ImproperlyConfigured(
            f"register_view({target!r}): a resource needs a URI; pass uri='shop://…'."
        )
    if kind != "resource" and uri is not None:
        raise ImproperlyConfigured(
            f"register_view({target!r}): a {kind} has no URI; remove uri=…, or pass "
            "kind='resource'."
        )
    if kind != "tool" and verb != "GET":
        raise ImproperlyConfigured(f"register_view({target!r}): only a tool can use method='post'.")
    return kind  # type: ignore[return-value]  # checked to be one of the three


def _query(target: str, query: Any) -> tuple[Callable[[], RequestValues | None], Schema]:
    """Return a factory of the values of the query string, and their schema if already known."""
    values: RequestValues | None = None
    if isinstance(query, type) and issubclass(query, forms.BaseForm):
        if runs_own_code(query, "__init__"):
            return partial(FormValues, query), {}
        values = FormValues(query)
    elif isinstance(query, Mapping):
        values = TypedValues(query)
    if values is not None or query is None:
        return lambda: values, {} if values is None else values.json_schema
    raise ImproperlyConfigured(
        f"register_view({target!r}): query must map names to types, as in "
        f"query={{'season': str}}, or be a form class, not {query!r}."
    )


CONVERTERS: Mapping[str, Callable[..., Any]] = {
    "tool": site_responses.tool_result,
    "resource": site_responses.resource_contents,
    "prompt": site_responses.prompt_messages,
}


class ViewRunner:
    """A view of the site that handles calls: the function of a component."""

    def __init__(
        self,
        arguments: ViewArguments,
        *,
        kind: ViewComponentType = "tool",
        is_readable: bool = False,
    ) -> None:
        self.arguments = arguments
        self._to_result = CONVERTERS[kind]
        self._is_readable = is_readable

    def __call__(self, ctx: Context, sending: SiteRequest | None = None) -> Any:
        """Call the view, and return its response as the result of the component."""
        return self._to_result(self._get_response(ctx, sending), is_readable=self._is_readable)

    def description(self) -> str:
        """Return the docstring of the view; those of Django's own views are too general to use."""
        try:
            view = self.arguments.layout.route.view
        except (ImproperlyConfigured, ToolError):
            return ""
        while isinstance(view, partial):
            view = view.func
        is_django = str(getattr(view, "__module__", "")).startswith("django.")
        return "" if is_django else inspect.cleandoc(view.__doc__ or "")

    def configuration_problem(self) -> str:
        """Return why no call can succeed, for the system check; empty if calls can succeed."""
        try:
            _ = self.arguments.layout
        except ImproperlyConfigured as exc:
            return str(exc)
        except ToolError:
            # Another check reports exceptions of the site's code.
            return ""
        return ""

    def send(self, ctx: Context, sending: SiteRequest) -> SiteResponse:
        """Send the request to the site; a subclass may request the page first."""
        return send_request(ctx, sending)

    def _get_response(self, ctx: Context, sending: SiteRequest | None) -> SiteResponse:
        # Arguments are not parsed for a fixed URI, or if the URLconf has no such view.
        sending = sending or self.arguments.build_request({})
        answer = self.send(ctx, sending)
        form = self.arguments.layout.form
        problems = form.problems(_context_form(answer), sending.arguments) if form else ()
        if problems:
            raise ToolError(
                str(InvalidArguments(problems)) + site_responses.messages_suffix(answer)
            )
        site_responses.check_status(answer, method=self.arguments.method)
        return answer


def _context_form(answer: SiteResponse) -> Any:
    """Return the form in the context of a template response, if there is one."""
    return answer.context.get("form") if isinstance(answer.context, Mapping) else None


def send_request(ctx: Context, sending: SiteRequest) -> SiteResponse:
    """Send a request to the site as the caller.

    Raises:
        ToolError: a view that runs for a call tries to call another view.
        Exception: any exception of the view.
    """
    request = build_request(ctx, sending, CallerRequest)

    def read(response: HttpResponseBase) -> SiteResponse:
        _raise_failure(request, response)
        return read_response(request, response, is_over=lambda: ctx.cancelled)

    return send_isolated(request, read)


def _raise_failure(request: CallerRequest, response: HttpResponseBase) -> None:
    """Raise the exception of the view, unless a middleware returned a page, such as a flat page.

    A redirect does not count, because Django's ``LocaleMiddleware`` redirects URLs that were not
    found to those with a language prefix.
    """
    if 200 <= response.status_code < 300:
        return
    is_missing = getattr(request.view_response, "status_code", 0) in {404, 410}
    if isinstance(request.view_exception, Resolver404) or is_missing:
        # The message of Resolver404 lists every pattern that was tried.
        raise Http404("Not found.") from request.view_exception
    if request.view_exception is not None:
        raise request.view_exception


def _build_component(
    source: ViewRunner,
    *,
    kind: ViewComponentType,
    name: str,
    options: Mapping[str, Any],
    template: URITemplate | None = None,
) -> Component:
    """Return the component for a view.

    The component opens no transaction, because Django's handler opens one if ``ATOMIC_REQUESTS``
    is set. The read-only limits are off, because a page may count its visitors.
    """
    given_options = {name: value for name, value in options.items() if value is not None}
    given_options.setdefault("name", name)
    # Read from the view when it is used, because the URLconf is loaded later.
    given_options["description"] = (
        given_options.get("description") or lazy(source.description, str)()
    )
    for listed in ("scopes", "icons"):
        if isinstance(given_options.get(listed), str):
            raise ImproperlyConfigured(
                f"{listed} is a list: write {listed}=[{given_options[listed]!r}]."
            )
        given_options[listed] = tuple(given_options.get(listed, ()))
    common = {
        **given_options,
        "function": ComponentFunction(function=source, is_async=False, context_parameter="ctx"),
        "atomic": False,
        "enforce": False,
    }
    component: Component
    if kind == "tool":
        hints = {"read_only": True} if source.arguments.method == "GET" else {}
        component = Tool(**{**hints, **common}, arguments=source.arguments)
    elif kind == "prompt":
        _reject_tool_options(Prompt, common)
        component = Prompt(**common, arguments=source.arguments)
    else:
        assert template is not None
        _reject_tool_options(Resource, common)
        if template.variables:
            component = ResourceTemplate(**common, template=template, arguments=source.arguments)
        else:
            component = Resource(**common, uri=template.template)
    source.arguments.is_published = True
    return component


def _reject_tool_options(kind: type[Component], options: Mapping[str, Any]) -> None:
    """Raise an error for options that only tools have."""
    names = {field.name for field in fields(kind)}
    for name in options:
        if name not in names:
            raise ImproperlyConfigured(f"A {kind.kind} has no option {name!r}.")


# Forms as tools -----------------------------------------------------------------------------------

# The view itself creates, validates and saves its form, so that everything that the view adds
# (the user, the edited row, an email) is included. Errors of the form are returned by field.


class FormViewRunner(ViewRunner):
    """A view with a form; the current values of an edited row are requested first.

    A browser posts every field of the page. A model names only the fields to change, and the
    others are sent with the values that the view shows to this caller.
    """

    def send(self, ctx: Context, sending: SiteRequest) -> SiteResponse:
        """Post the form, with the current values if it edits a row."""
        layout = self.arguments.layout
        if layout.form is None or not _is_update_view(layout.route):
            return send_request(ctx, sending)
        page = send_request(ctx, replace(sending, method="GET", body=[]))
        site_responses.check_status(page, method="GET")
        fields = {
            name: value
            for name, value in sending.arguments.items()
            if name in layout.form.json_schema["properties"]
        }
        form = _context_form(page)
        if not isinstance(form, forms.BaseForm):
            # Without the current values, the other fields of the row would be emptied.
            raise ImproperlyConfigured(
                f"{layout.route.view.__qualname__} answers GET without a form in its template "
                "context, so the current values of the edited row are not known."
            )
        with timezone.override(page.time_zone):
            current = layout.form.current_values(form)
            body = layout.form.pairs(fields, current=current)
        return send_request(ctx, replace(sending, body=body))


def form_component(
    target: str | type[Any],
    *,
    form: FormClass | None = None,
    query: Mapping[str, Any] | None = None,
    urlconf: str | None = None,
    **options: Any,
) -> Component:
    """Return the tool of a view with a form, given the view's class or its URL name.

    Raises:
        ImproperlyConfigured: the view has no form, or JSON cannot express the form's values.
    """
    if isinstance(target, type):
        _check_view(target)
        name = snake_case(target.__name__.removesuffix("View"))
        given_options = {key: value for key, value in options.items() if value is not None}
        options = {**_tool_hints(target), **given_options}
    elif isinstance(target, str):
        name = target.rpartition(":")[2].replace("-", "_")
    else:
        raise ImproperlyConfigured(
            f"register_form() takes a class-based view or the name of its URL, not {target!r}."
        )

    def find() -> Sequence[URLRoute]:
        routes = (
            routes_by_name(target, urlconf)
            if isinstance(target, str)
            else routes_by_view(target, urlconf)
        )
        for route in routes:
            _check_view(route.view)
        return routes

    values = TypedValues(query) if query is not None else None
    arguments = ViewArguments(
        find=find,
        method="POST",
        make_query=lambda: values,
        query_schema={} if values is None else values.json_schema,
        what=f"The view {getattr(target, '__qualname__', target)}",
        make_form=lambda route: FormValues(
            form or _form_class(route),
            prefix=getattr(route.view, "prefix", None),
            is_checked=False,
            is_partial=_is_update_view(route),
        ),
        urlconf=urlconf,
    )
    source = FormViewRunner(arguments, is_readable=True)
    return _build_component(source, kind="tool", name=name, options=options)


def _tool_hints(view: type[Any]) -> dict[str, bool]:
    """Return the tool hints that follow from the class of a view; other forms may do anything."""
    if issubclass(view, BaseUpdateView | DeletionMixin):
        return {"read_only": False, "destructive": True, "idempotent": True}
    if issubclass(view, BaseCreateView):
        return {"read_only": False, "destructive": False}
    return {}


def has_form(view: Any) -> bool:
    """Return whether a view is one of Django's class-based views with a form."""
    return isinstance(view, type) and issubclass(view, FormMixin)


def _check_view(view: Any) -> None:
    if not has_form(view):
        raise ImproperlyConfigured(
            f"{getattr(view, '__qualname__', view)!r} has no form: it is not a FormView, "
            "CreateView, UpdateView or DeleteView; use register_view(…, method='post', form=…)."
        )


def _is_update_view(route: URLRoute) -> bool:
    return isinstance(route.view, type) and issubclass(route.view, BaseUpdateView)


def _form_class(route: URLRoute) -> FormClass:
    """Return the form class of a view, without a request."""
    initkwargs = getattr(route.callback, "view_initkwargs", {})
    view = route.view(**initkwargs)
    if view.form_class is not None:
        form_class: FormClass = view.form_class
        return form_class
    if isinstance(view, ModelFormMixin):
        view.object = None  # type: ignore[attr-defined]  # what ``get`` sets
        try:
            return view.get_form_class()
        except (AttributeError, FieldError, ImproperlyConfigured) as exc:
            reason = f" ({exc})"
    else:
        reason = ""
    raise ImproperlyConfigured(
        f"The form class of {route.view.__qualname__} is not known without a request{reason}; "
        "pass it: register_form(…, form=…)."
    )
