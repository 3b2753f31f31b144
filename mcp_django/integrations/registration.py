"""``register`` and the other ``register_*`` methods: add the site's existing code to a server.

They are functions of a server, which ``MCPServer`` has as methods. They take models, views, forms,
views of Django REST framework and folders of skills. Modules that need REST framework or the admin
are imported when they are first used, since a site may have neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.forms import BaseForm

from mcp_django.components.component import Component
from mcp_django.components.declare import set_declaration
from mcp_django.components.registry import RegistryOwner
from mcp_django.components.tool import Tool
from mcp_django.conf import parse_rates, use_defaults_if_invalid
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from mcp_django.integrations.models import resources
from mcp_django.integrations.models.columns import suggest_name
from mcp_django.integrations.models.counting import count_tool
from mcp_django.integrations.models.declaration import ModelComponents, ModelResource, ModelTools
from mcp_django.integrations.models.form_tools import Rows, form_tool
from mcp_django.integrations.models.generic import GenericSet
from mcp_django.integrations.models.list_get import get_tool, list_tool
from mcp_django.integrations.models.writing import create_tool, delete_tool, update_tool
from mcp_django.integrations.skills import load_skills
from mcp_django.integrations.views import form_component, view_component
from mcp_django.protocol.content import Icon

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite, ModelAdmin
    from django.views import View
    from rest_framework.views import APIView
    from rest_framework.viewsets import ViewSetMixin

C = TypeVar("C", bound=type[ModelComponents[Any]])

OPERATIONS: Mapping[str, Callable[[ModelTools[Any]], Tool]] = {
    "list": list_tool,
    "get": get_tool,
    "count": count_tool,
    "create": create_tool,
    "update": update_tool,
    "delete": delete_tool,
}


class RegistrationServer(RegistryOwner, Protocol):
    """A server to which the site's existing code can be added."""

    generic_tools: GenericSet


# Views of REST framework --------------------------------------------------------------------------


def register_viewset(
    server: RegistrationServer,
    viewset: type[ViewSetMixin],
    /,
    *,
    basename: str | None = None,
    actions: Sequence[str] | None = None,
    name: str = "",
    plural: str = "",
    names: Mapping[str, str] | None = None,
    descriptions: Mapping[str, str] | None = None,
    serializers: Mapping[str, Any] | None = None,
    url_kwargs: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    urlconf: str | None = None,
    version: str = "",
    permission: Any = None,
    scopes: Sequence[str] = (),
    timeout: float | None = None,
) -> None:
    """Register actions of a viewset as tools; by default ``list`` and ``retrieve``.

    The view itself handles a real request: its permissions, throttles, filters, pagination and
    serializers apply. Its authentication is skipped, because the caller is already known.
    ``basename`` is that of the router, after its namespace if there is one. Tools are named
    after it, or after ``name`` and ``plural``; ``names``, ``descriptions`` and ``serializers``
    are by action. ``url_kwargs`` has the types of URL variables other than the object's own
    (``{"order_pk": int}``), ``fixed`` sets URL variables, and ``version`` the API version.
    ``urlconf`` is the URLconf of the view, if a middleware selects one for some hosts.

    Raises:
        AlreadyRegistered: a tool of one of these names is already registered.
        ImproperlyConfigured: the viewset has no such action, or the action takes arguments
            that JSON cannot express.
    """
    from mcp_django.integrations.rest.tools import viewset_tools

    tools = viewset_tools(
        viewset,
        basename=basename,
        actions=actions,
        name=name,
        plural=plural,
        names=names,
        descriptions=descriptions,
        serializers=serializers,
        url_kwargs=url_kwargs or {},
        fixed=fixed or {},
        urlconf=urlconf,
        version=version,
        permission=permission,
        scopes=scopes,
        timeout=timeout,
    )
    _add_rest(server, viewset, tools)


def register_api_view(
    server: RegistrationServer,
    view: type[APIView] | Callable[..., Any],
    /,
    *,
    methods: Sequence[str] = ("get",),
    name: str = "",
    title: str = "",
    description: str = "",
    url_name: str = "",
    serializer: type[Any] | None = None,
    input_schema: Mapping[str, Any] | None = None,
    read_only: bool | None = None,
    url_kwargs: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    urlconf: str | None = None,
    version: str = "",
    permission: Any = None,
    scopes: Sequence[str] = (),
    timeout: float | None = None,
) -> None:
    """Register methods of a REST view as tools; by default ``get``.

    ``view`` is an ``APIView``, the result of its ``as_view`` or a function with ``@api_view``.
    For a view that is not generic, ``serializer`` or ``input_schema`` describes the body, or
    the query string for a GET. ``url_name`` selects one of several URLs; the other options are
    those of ``register_viewset``.

    Raises:
        AlreadyRegistered: a tool of this name is already registered.
        ImproperlyConfigured: the view has no such method, or the method takes arguments that
            JSON cannot express.
    """
    from mcp_django.integrations.rest.tools import api_view_tools

    tools = api_view_tools(
        view,
        methods=methods,
        name=name,
        title=title,
        description=description,
        url_name=url_name,
        serializer=serializer,
        input_schema=input_schema,
        read_only=read_only,
        url_kwargs=url_kwargs or {},
        fixed=fixed or {},
        urlconf=urlconf,
        version=version,
        permission=permission,
        scopes=scopes,
        timeout=timeout,
    )
    _add_rest(server, view, tools)


def _add_rest(server: RegistrationServer, view: Any, tools: Iterable[Tool]) -> None:
    added: list[Tool] = []
    try:
        # Build all tools before the first one is added.
        for tool in list(tools):
            server.add(tool)
            added.append(tool)
    except BaseException:
        for tool in added:
            server.registry.unregister(tool)
        raise
    server.registry.views.setdefault(view, []).extend(added)


def _remove_rest(server: RegistrationServer, view: Any) -> bool:
    """Remove the tools of a REST view, and return whether it was registered."""
    known = next((one for one in server.registry.views if one is view), None)
    if known is None:
        return False
    for tool in server.registry.views.pop(known):
        if server.registry.tools.get(tool.name) is tool:
            server.registry.unregister(tool)
    return True


# Views and forms of the site ----------------------------------------------------------------------


def register_view(
    server: RegistrationServer,
    url_name: str,
    /,
    *,
    uri: str | None = None,
    kind: Literal["tool", "resource", "prompt"] | None = None,
    method: Literal["get", "post"] = "get",
    query: Mapping[str, Any] | type[BaseForm] | None = None,
    form: type[BaseForm] | None = None,
    readable: bool = False,
    urlconf: str | None = None,
    name: str | None = None,
    title: str = "",
    description: str = "",
    permission: Any = None,
    scopes: Sequence[str] = (),
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
) -> None:
    """Register the view of a URL name: as a resource with ``uri``, else as a read-only tool.

    The site's own middleware and view handle a new request of the caller. The variables of
    the URL are arguments; ``query`` adds those of the query string (types by name, or a form),
    and ``form`` those that are posted (``method="post"``). ``readable`` converts HTML to text.
    ``urlconf`` is the URLconf of the name, if a middleware selects one for some hosts.

    Raises:
        AlreadyRegistered: a component of this name is already registered.
        ImproperlyConfigured: the declaration is not valid. A URL name that does not exist is
            reported by the system check, because the URLconf is loaded later.
    """
    options = {
        "name": name,
        "title": title,
        "description": description,
        "permission": permission,
        "scopes": scopes,
        "icons": icons,
        "meta": meta or {},
        "timeout": timeout,
        "destructive": destructive,
        "idempotent": idempotent,
    }
    server.add(
        view_component(
            url_name,
            uri=uri,
            kind=kind,
            method=method,
            query=query,
            form=form,
            readable=readable,
            urlconf=urlconf,
            options=options,
        )
    )


def register_form(
    server: RegistrationServer,
    target: type[View | BaseForm] | str,
    /,
    *,
    instance: str | None = None,
    queryset: Rows | None = None,
    form: type[BaseForm] | None = None,
    query: Mapping[str, Any] | None = None,
    urlconf: str | None = None,
    name: str | None = None,
    title: str = "",
    description: str = "",
    permission: Any = None,
    scopes: Sequence[str] = (),
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
) -> None:
    """Register a form as a tool: the form of a view, or a model form without a view.

    A FormView, CreateView, UpdateView or DeleteView is given by its class or its URL name, and
    its form is posted to it; pass ``form`` if the view selects its form by the request.

    A model form creates an object. With ``instance``, the name of a unique field, it changes
    the object with the given value of that field; ``queryset`` restricts the rows, as a
    queryset or a function of the context. Without ``permission``, Django's add or change
    permission is required.

    Raises:
        AlreadyRegistered: a tool of this name is already registered.
        ImproperlyConfigured: the view has no form, or an option does not apply to ``target``.
    """
    of_view = {"form": form, "query": query, "urlconf": urlconf}
    of_form = {"instance": instance, "queryset": queryset}
    is_form = isinstance(target, type) and issubclass(target, BaseForm)
    _reject_foreign_options(target, of_view if is_form else of_form, is_form=is_form)
    options = {
        "name": name,
        "title": title,
        "description": description,
        "permission": permission,
        "scopes": scopes,
        "icons": icons,
        "meta": meta or {},
        "timeout": timeout,
        "destructive": destructive,
        "idempotent": idempotent,
    }
    if isinstance(target, type) and issubclass(target, BaseForm):
        server.add(form_tool(target, server=server, **of_form, options=options))
        return
    server.add(form_component(target, form=form, query=query, urlconf=urlconf, options=options))


# Folders of skills --------------------------------------------------------------------------------


def register_skills(
    server: RegistrationServer,
    folder: str | Path,
    /,
    *,
    prefix: str = "",
    permission: Any = None,
    scopes: Sequence[str] = (),
    rate: str | Sequence[str] = (),
    cache_ttl: timedelta = timedelta(0),
    cache_public: bool = False,
) -> None:
    """Register each folder with a ``SKILL.md`` below ``folder`` as a skill (SEP-2640).

    A relative ``folder`` is relative to the calling module. The name of an intermediate folder
    without a ``SKILL.md`` is put before the names of its skills, as ``prefix`` is: the URI of
    a skill is ``skill://prefix/name``. ``permission`` and ``scopes`` apply to every file. A
    skill has up to 512 files with a total of 16 MiB, which are read now and kept in memory;
    hidden files are left out.

    Raises:
        AlreadyRegistered: a skill of one of these names is already registered; none is added.
        ImproperlyConfigured: a skill is not valid, or PyYAML is not installed (the extra
            ``skills``); the message names the file.
    """
    caller = sys._getframe(1).f_globals
    path = Path(folder)
    if not path.is_absolute():
        path = Path(str(caller.get("__file__", ""))).parent / path
    try:
        rates = parse_rates(rate)
    except ValueError as exc:
        raise ImproperlyConfigured(f"register_skills: rate: {exc}.") from None
    options = {
        "permission": permission,
        "scopes": tuple(scopes),
        "rates": rates,
        "cache_ttl": cache_ttl,
        "cache_public": cache_public,
    }
    module = str(caller.get("__name__", ""))
    found = load_skills(path, prefix=prefix, module=module, options=options)
    for one in found:
        if one.key in server.registry.resources:
            raise AlreadyRegistered(
                f"The resource {one.key!r} is already registered, from "
                f"{server.registry.resources[one.key].origin}; rename the folder of one of the "
                "skills, or pass prefix=… to register_skills()."
            )
    for one in found:
        server.add(one)


# Models -------------------------------------------------------------------------------------------


@overload
def register(server: RegistrationServer, model: type[Model], /) -> Callable[[C], C]: ...


@overload
def register(server: RegistrationServer, model: type[Model], declaration: C, /) -> C: ...


def register(server: RegistrationServer, model: Any, declaration: Any = None, /) -> Any:
    """Register a model with a ``ModelTools`` or ``ModelResource`` class; also a decorator.

    The class may inherit from both.

    Raises:
        AlreadyRegistered: a component of one of these names is already registered.
        ImproperlyConfigured: the declaration is not valid; the message says what to write.
    """
    if not (isinstance(model, type) and issubclass(model, Model)) or model._meta.abstract:
        raise ImproperlyConfigured(f"register() takes a concrete model class, not {model!r}.")
    if declaration is not None:
        _register(server, model, declaration)
        return declaration

    def decorator(cls: C) -> C:
        _register(server, model, cls)
        return cls

    return decorator


# A site may register outside of an ``mcp`` module, for example in ``AppConfig.ready()``.
@use_defaults_if_invalid()
def _register(server: RegistrationServer, model: type[Model], cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, ModelComponents)):
        raise ImproperlyConfigured(
            f"register({model.__name__}) takes a subclass of ModelTools or ModelResource, not "
            f"{cls!r}."
        )
    instance = cls(model, server)
    added: list[Component] = []
    # Added first, because a relation to the model itself needs the rules of this declaration.
    server.registry.declarations[instance] = added
    try:
        if isinstance(instance, ModelTools):
            for tool in _build_operations(instance):
                set_declaration(tool.callable, instance)
                # The generic tools add it to the registry, or stand for it.
                added.append(tool)
        for component in _build_others(instance):
            set_declaration(component.callable, instance)
            server.add(component)
            added.append(component)
        server.generic_tools.update()
        if isinstance(instance, ModelResource):
            for completion in resources.build_completions(instance):
                server.registry.add_completion(completion)
    except BaseException:
        _remove_declaration(server, instance)
        raise
    instance.connect()


def _build_operations(declaration: ModelTools[Any]) -> Iterator[Tool]:
    for name in declaration.get_name_list("tools"):
        if name not in OPERATIONS:
            declaration.refuse(f"tools has {name!r}; {suggest_name(name, OPERATIONS)}")
        declaration.operations[name] = OPERATIONS[name](declaration)
    yield from declaration.operations.values()


def _build_others(declaration: ModelComponents[Any]) -> Iterator[Component]:
    if isinstance(declaration, ModelResource):
        yield from resources.build_components(declaration)
    yield from declaration.components()


def notify_changed(
    server: RegistrationServer, model: type[Model], changed: QuerySet[Any] | Iterable[Model], /
) -> None:
    """Notify subscribers of these objects of a registered model when the transaction commits.

    Use it for changes that send no signals: ``QuerySet.update``, bulk methods and raw SQL.

    Raises:
        NotRegistered: the model is not registered as resources.
    """
    found = [one for one in server.declarations_of(model) if isinstance(one, ModelResource)]
    if not found:
        raise NotRegistered(f"{model.__name__} is not registered as resources on this server.")
    objects = changed if isinstance(changed, QuerySet) else list(changed)
    for one in found:
        one.notify(objects)


def unregister(server: RegistrationServer, target: Any) -> None:
    """Remove a component, or all components of a model, a declaration class or a REST view.

    Raises:
        NotRegistered: it is not registered.
    """
    if _remove_rest(server, target):
        return
    if not isinstance(target, type):
        _unregister_one(server, target)
        return
    found = [one for one in server.registry.declarations if target in (one.model, type(one))]
    if not found:
        raise NotRegistered(f"{target!r} is not registered on this server.")
    for instance in found:
        instance.disconnect()
        _remove_declaration(server, instance)


def _unregister_one(server: RegistrationServer, target: Any) -> None:
    before = list(server.registry)
    server.registry.unregister(target)
    left = {id(one) for one in server.registry}
    gone = {id(one) for one in before if id(one) not in left}
    for added in server.registry.declarations.values():
        added[:] = [one for one in added if id(one) not in gone]
    server.generic_tools.update()


def _remove_declaration(server: RegistrationServer, instance: ModelComponents[Any]) -> None:
    for component in server.registry.declarations.pop(instance):
        if component in list(server.registry):
            server.registry.unregister(component)
    server.generic_tools.update()


# ModelAdmin as tools ------------------------------------------------------------------------------


def register_admin(
    server: RegistrationServer,
    target: type[Model | ModelAdmin[Any]],
    /,
    *,
    site: AdminSite | None = None,
    tools: Sequence[str] = ("list", "get"),
    actions: Sequence[str] = (),
    fields: Sequence[str] | None = None,
    form_fields: Sequence[str] | None = None,
    search_fields: Sequence[str] | None = None,
    filter_fields: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    ordering_fields: Sequence[str] | None = None,
    ordering: Sequence[str] | None = None,
    page_size: int | None = None,
    count: bool | None = None,
    name: str = "",
    plural: str = "",
    key: str = "",
    preview: bool | None = None,
    uri: str | None = None,
    scopes: Sequence[str] = (),
) -> None:
    """Register a model with the fields, search, permissions and log of its ``ModelAdmin``.

    ``actions`` names the admin actions that become tools. The other options are those of
    ``ModelTools`` and replace what is derived from the admin; ``form_fields`` restricts which
    fields of its form can be written, and ``uri`` also registers the objects as resources.

    Raises:
        AlreadyRegistered: a component of one of these names is already registered.
        ImproperlyConfigured: the site has no such admin, or an option is not valid.
    """
    from mcp_django.integrations.model_admin import admin_declaration

    options = {
        "tools": tools,
        "actions": actions,
        "fields": fields,
        "form_fields": form_fields,
        "search_fields": search_fields,
        "filter_fields": filter_fields,
        "ordering_fields": ordering_fields,
        "ordering": ordering,
        "page_size": page_size,
        "count": count,
        "name": name,
        "plural": plural,
        "key": key,
        "preview": preview,
        "uri": uri,
        "scopes": scopes,
    }
    with use_defaults_if_invalid():
        model, declaration = admin_declaration(server, target, site, options)
    _register(server, model, declaration)


def _reject_foreign_options(target: Any, others: Mapping[str, Any], *, is_form: bool) -> None:
    """Raise an error for options that do not apply to the registered view or form."""
    found = [name for name, value in others.items() if value is not None]
    if found:
        name = getattr(target, "__name__", target)
        kind, other = ("form", "view") if is_form else ("view", "model form")
        raise ImproperlyConfigured(
            f"register_form({name}): {', '.join(found)} can only be used with a {other}, but "
            f"{name} is a {kind}; remove it, or register a {other}."
        )
