"""``register`` and the other ``register_*`` methods: add the site's existing code to a server.

``SiteRegistrar`` is the base class of ``MCPServer`` that has them. They take models, views, forms,
views of Django REST framework and folders of skills. Modules that need REST framework or the admin
are imported when they are first used, since a site may have neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.forms import BaseForm

from mcp_django.components.component import Component
from mcp_django.components.declare import check_options, set_declaration
from mcp_django.components.registry import Registrar
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


# An option that is left out has the default of the function or class that takes it.


class RestOptions(TypedDict, total=False):
    """The options of all tools of one view of REST framework."""

    name: str
    url_kwargs: Mapping[str, Any] | None
    fixed: Mapping[str, Any] | None
    urlconf: str | None
    version: str
    permission: Any
    scopes: Sequence[str]
    timeout: float | None


class ViewsetOptions(RestOptions, total=False):
    """The options of ``register_viewset``."""

    basename: str | None
    actions: Sequence[str] | None
    plural: str
    names: Mapping[str, str] | None
    descriptions: Mapping[str, str] | None
    serializers: Mapping[str, Any] | None


class APIViewOptions(RestOptions, total=False):
    """The options of ``register_api_view``."""

    methods: Sequence[str]
    title: str
    description: str
    url_name: str
    serializer: type[Any] | None
    input_schema: Mapping[str, Any] | None
    read_only: bool | None


class PageOptions(TypedDict, total=False):
    """The options of a component that is built from a view or a form."""

    name: str | None
    title: str
    description: str
    permission: Any
    scopes: Sequence[str]
    icons: Sequence[Icon]
    meta: Mapping[str, Any] | None
    timeout: float | None
    destructive: bool | None
    idempotent: bool | None


class ViewComponentOptions(PageOptions, total=False):
    """The options of ``register_view``."""

    uri: str | None
    kind: Literal["tool", "resource", "prompt"] | None
    method: Literal["get", "post"]
    query: Mapping[str, Any] | type[BaseForm] | None
    form: type[BaseForm] | None
    readable: bool
    urlconf: str | None


class FormOptions(PageOptions, total=False):
    """The options of ``register_form``."""

    instance: str | None
    queryset: Rows | None
    form: type[BaseForm] | None
    query: Mapping[str, Any] | None
    urlconf: str | None


class SkillOptions(TypedDict, total=False):
    """The options of ``register_skills``."""

    prefix: str
    permission: Any
    scopes: Sequence[str]
    rate: str | Sequence[str]
    cache_ttl: timedelta
    cache_public: bool


class AdminOptions(TypedDict, total=False):
    """The options of ``register_admin``."""

    site: AdminSite | None
    tools: Sequence[str]
    actions: Sequence[str]
    fields: Sequence[str] | None
    form_fields: Sequence[str] | None
    search_fields: Sequence[str] | None
    filter_fields: Sequence[str] | Mapping[str, Sequence[str]] | None
    ordering_fields: Sequence[str] | None
    ordering: Sequence[str] | None
    page_size: int | None
    count: bool | None
    name: str
    plural: str
    key: str
    preview: bool | None
    uri: str | None
    scopes: Sequence[str]


class SiteRegistrar(Registrar):
    """Adds the site's existing code to a server."""

    generic_tools: GenericSet

    @overload
    def register(self, model: type[Model], /) -> Callable[[C], C]: ...

    @overload
    def register(self, model: type[Model], declaration: C, /) -> C: ...

    def register(self, model: Any, declaration: Any = None, /) -> Any:
        """Register a model with a ``ModelTools`` or ``ModelResource`` class; also a decorator.

        The class may inherit from both.

        Raises:
            AlreadyRegistered: a component of one of these names is already registered.
            ImproperlyConfigured: the declaration is not valid; the message says what to write.
        """
        if not (isinstance(model, type) and issubclass(model, Model)) or model._meta.abstract:
            raise ImproperlyConfigured(f"register() takes a concrete model class, not {model!r}.")
        if declaration is not None:
            _register(self, model, declaration)
            return declaration

        def decorator(cls: C) -> C:
            _register(self, model, cls)
            return cls

        return decorator

    def unregister(self, target: Any) -> None:
        """Remove a component, or all components of a model, a declaration class or a REST view.

        Raises:
            NotRegistered: the target is not registered.
        """
        registry = self.registry
        if any(view is target for view in registry.views):
            for tool in registry.views.pop(target):
                if registry.tools.get(tool.name) is tool:
                    registry.unregister(tool)
            return
        if not isinstance(target, type):
            previous = list(registry)
            registry.unregister(target)
            remaining_ids = {id(component) for component in registry}
            removed_ids = {id(component) for component in previous} - remaining_ids
            for components in registry.declarations.values():
                components[:] = [
                    component for component in components if id(component) not in removed_ids
                ]
            self.generic_tools.update()
            return
        declarations = [
            declaration
            for declaration in registry.declarations
            if target in (declaration.model, type(declaration))
        ]
        if not declarations:
            raise NotRegistered(f"{target!r} is not registered on this server.")
        for declaration in declarations:
            declaration.disconnect()
            _remove_declaration(self, declaration)

    def notify_changed(
        self, model: type[Model], changed: QuerySet[Any] | Iterable[Model], /
    ) -> None:
        """Notify subscribers of these objects of a registered model when the transaction commits.

        Use it for changes that send no signals: ``QuerySet.update``, bulk methods and raw SQL.

        Raises:
            NotRegistered: the model is not registered as resources.
        """
        declarations = [
            declaration
            for declaration in self.declarations_of(model)
            if isinstance(declaration, ModelResource)
        ]
        if not declarations:
            raise NotRegistered(f"{model.__name__} is not registered as resources on this server.")
        objects = changed if isinstance(changed, QuerySet) else list(changed)
        for declaration in declarations:
            declaration.notify(objects)

    def register_admin(
        self, target: type[Model | ModelAdmin[Any]], /, **options: Unpack[AdminOptions]
    ) -> None:
        """Register a model with the fields, search, permissions and log of its ``ModelAdmin``.

        The tools are ``list`` and ``get`` unless ``tools`` names others, and ``actions`` names the
        admin actions that become tools. The other options are those of ``ModelTools`` and replace
        what is derived from the admin; ``form_fields`` restricts which fields of the admin's form
        can be written, and ``uri`` also registers the objects as resources.

        Raises:
            AlreadyRegistered: a component of one of these names is already registered.
            ImproperlyConfigured: the site has no such admin, or an option is not valid.
        """
        valid_options = check_options("register_admin()", AdminOptions, options)
        from mcp_django.integrations.model_admin import admin_declaration

        site = valid_options.pop("site", None)
        with use_defaults_if_invalid():
            model, declaration = admin_declaration(self, target, site, valid_options)
        _register(self, model, declaration)

    def register_viewset(
        self, viewset: type[ViewSetMixin], /, **options: Unpack[ViewsetOptions]
    ) -> None:
        """Register actions of a viewset as tools; by default ``list`` and ``retrieve``.

        The view itself handles a real request: its permissions, throttles, filters, pagination and
        serializers apply. Its authentication is skipped, because the caller is already known.
        ``basename`` is that of the router, prefixed with the URL namespace if there is one. Tools
        are named after ``basename``, or after ``name`` and ``plural``; ``names``, ``descriptions``
        and ``serializers`` map actions to values. ``url_kwargs`` has the types of URL variables
        other than the object's own (``{"order_pk": int}``), ``fixed`` sets URL variables, and
        ``version`` the API version.
        ``urlconf`` is the URLconf of the view, if a middleware selects one for some hosts.

        Raises:
            AlreadyRegistered: a tool of one of these names is already registered.
            ImproperlyConfigured: the viewset has no such action, or the action takes arguments
                that JSON cannot express.
        """
        valid_options = check_options("register_viewset()", ViewsetOptions, options)
        from mcp_django.integrations.rest.tools import viewset_tools

        _add_rest(self, viewset, viewset_tools(viewset, **valid_options))

    def register_api_view(
        self, view: type[APIView] | Callable[..., Any], /, **options: Unpack[APIViewOptions]
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
        valid_options = check_options("register_api_view()", APIViewOptions, options)
        from mcp_django.integrations.rest.tools import api_view_tools

        _add_rest(self, view, api_view_tools(view, **valid_options))

    def register_view(self, url_name: str, /, **options: Unpack[ViewComponentOptions]) -> None:
        """Register the view of a URL name: as a resource with ``uri``, else as a read-only tool.

        The site's own middleware and view handle a new request of the caller. The variables of
        the URL are arguments; ``query`` adds the parameters of the query string (types by name, or
        a form), and ``form`` the fields that are posted (``method="post"``). ``readable`` converts
        HTML to text.
        ``urlconf`` is the URLconf of the name, if a middleware selects one for some hosts.

        Raises:
            AlreadyRegistered: a component of this name is already registered.
            ImproperlyConfigured: the declaration is not valid. A URL name that does not exist is
                reported by the system check, because the URLconf is loaded later.
        """
        valid_options = check_options("register_view()", ViewComponentOptions, options)
        self.add(view_component(url_name, **valid_options))

    def register_form(
        self, target: type[View | BaseForm] | str, /, **options: Unpack[FormOptions]
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
        valid_options = check_options("register_form()", FormOptions, options)
        if isinstance(target, type) and issubclass(target, BaseForm):
            _reject_foreign_options(
                target, valid_options, ("form", "query", "urlconf"), "form", "view"
            )
            self.add(form_tool(target, server=self, **valid_options))
        else:
            _reject_foreign_options(
                target, valid_options, ("instance", "queryset"), "view", "model form"
            )
            self.add(form_component(target, **valid_options))

    def register_skills(self, folder: str | Path, /, **options: Unpack[SkillOptions]) -> None:
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
        valid_options = check_options("register_skills()", SkillOptions, options)
        caller = sys._getframe(1).f_globals
        path = Path(folder)
        if not path.is_absolute():
            path = Path(str(caller.get("__file__", ""))).parent / path
        try:
            valid_options["rates"] = parse_rates(valid_options.pop("rate", ()))
        except ValueError as exc:
            raise ImproperlyConfigured(f"register_skills: rate: {exc}.") from None
        valid_options["scopes"] = tuple(valid_options.get("scopes", ()))
        prefix, module = valid_options.pop("prefix", ""), str(caller.get("__name__", ""))
        files = load_skills(path, prefix=prefix, module=module, options=valid_options)
        for file in files:
            if file.key in self.registry.resources:
                raise AlreadyRegistered(
                    f"The resource {file.key!r} is already registered, from "
                    f"{self.registry.resources[file.key].origin}; rename the folder of one of the "
                    "skills, or pass prefix=… to register_skills()."
                )
        for file in files:
            self.add(file)


def _add_rest(server: SiteRegistrar, view: Any, tools: Iterable[Tool]) -> None:
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


# A site may register outside of an ``mcp`` module, for example in ``AppConfig.ready()``.
@use_defaults_if_invalid()
def _register(server: SiteRegistrar, model: type[Model], cls: Any) -> None:
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
            for name in instance.get_name_list("tools"):
                if name not in OPERATIONS:
                    instance.refuse(f"tools has {name!r}; {suggest_name(name, OPERATIONS)}")
                instance.operations[name] = OPERATIONS[name](instance)
            for tool in instance.operations.values():
                set_declaration(tool.callable, instance)
                # ``generic_tools.update()`` adds the tool to the registry, or uses a generic tool.
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


def _build_others(declaration: ModelComponents[Any]) -> Iterator[Component]:
    if isinstance(declaration, ModelResource):
        yield from resources.build_components(declaration)
    yield from declaration.components()


def _remove_declaration(server: SiteRegistrar, instance: ModelComponents[Any]) -> None:
    for component in server.registry.declarations.pop(instance):
        if component in list(server.registry):
            server.registry.unregister(component)
    server.generic_tools.update()


def _reject_foreign_options(
    target: Any, options: Mapping[str, Any], foreign: Sequence[str], kind: str, other: str
) -> None:
    """Raise an error for ``foreign`` options, which are for the other kind of registered form."""
    names = [name for name in foreign if options.get(name) is not None]
    if names:
        name = getattr(target, "__name__", target)
        raise ImproperlyConfigured(
            f"register_form({name}): {', '.join(names)} can only be used with a {other}, but "
            f"{name} is a {kind}; remove it, or register a {other}."
        )
