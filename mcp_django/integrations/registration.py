"""``register`` and the other ``register_*`` methods: add what the site already has to a server.

They take models, views, forms, views of Django REST framework and folders of skills. What needs
REST framework or the admin is imported when it is first used, since a site may have neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.forms import BaseForm

from mcp_django.conf import defaults_while_wrong, parse_all
from mcp_django.core.component import Component
from mcp_django.core.declare import declared_by
from mcp_django.core.registry import Registry
from mcp_django.core.tool import Tool
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from mcp_django.integrations.models.declaration import ModelComponents, ModelResource, ModelTools
from mcp_django.integrations.models.form_tools import Rows, form_tool
from mcp_django.integrations.models.generic import Generic, GenericSet
from mcp_django.integrations.skills import skills_in
from mcp_django.integrations.views import form_component, view_component
from mcp_django.protocol.content import Icon

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite, ModelAdmin
    from django.views import View
    from rest_framework.views import APIView
    from rest_framework.viewsets import ViewSetMixin

# Views of REST framework --------------------------------------------------------------------------


class RegisteringRest(Registry):
    """A registry that takes REST views."""

    def __init__(self) -> None:
        super().__init__()
        self._rest: dict[Any, list[Tool]] = {}

    def register_viewset(
        self,
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
        """Offer actions of a viewset as tools: those that list and retrieve, unless named.

        The real view answers a real request: its permissions, throttles, filters, pagination and
        serializers hold; who calls is already known, so its authentication is not asked.
        ``basename`` is the router's, with a namespace in front where there is one. Tools are named
        after it, or after ``name`` and ``plural``; ``names``, ``descriptions`` and ``serializers``
        are by action. ``url_kwargs`` says which variables the URL has besides the object's own
        (``{"order_pk": int}``), ``fixed`` gives them values, and ``version`` asks for one.
        ``urlconf`` has its URLs, where a middleware gives some hosts URLs of their own.

        Raises:
            AlreadyRegistered: a tool of one of these names is offered.
            ImproperlyConfigured: the viewset has no such action, or it takes no arguments that JSON
                could hold.
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
        self._add_rest(viewset, tools)

    def register_api_view(
        self,
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
        """Offer methods of a REST view as tools: GET, unless named.

        ``view`` is an ``APIView``, what its ``as_view`` made or a function under ``@api_view``.
        ``serializer`` or ``input_schema`` says what it reads, where it is no generic view: of the
        body, or of the query for a GET. ``url_name`` chooses one of several URLs; the rest is as
        for ``register_viewset``.

        Raises:
            AlreadyRegistered: a tool of this name is offered.
            ImproperlyConfigured: the view has no such method, or it takes no arguments that JSON
                could hold.
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
        self._add_rest(view, tools)

    def _add_rest(self, view: Any, tools: Iterable[Tool]) -> None:
        added: list[Tool] = []
        try:
            # All of them are made before the first is offered.
            for tool in list(tools):
                self.add(tool)
                added.append(tool)
        except BaseException:
            for tool in added:
                super().unregister(tool)
            raise
        self._rest.setdefault(view, []).extend(added)

    def _forget_rest(self, view: Any) -> bool:
        """Take away what a view gave, if it gave anything."""
        known = next((one for one in self._rest if one is view), None)
        if known is None:
            return False
        for tool in self._rest.pop(known):
            if self.tools.get(tool.name) is tool:
                super().unregister(tool)
        return True


# Views and forms of the site ----------------------------------------------------------------------


class RegisteringViews(Registry):
    """A registry that takes views and forms."""

    def register_view(
        self,
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
        """Offer the view of a URL name: as a resource with ``uri``, as a read-only tool without.

        The site's own middleware and view answer a fresh request of the caller. The variables of
        the URL are arguments; ``query`` adds those of the address (types by name, or a form), and
        ``form`` those that are posted (``method="post"``). ``readable`` makes text of HTML.
        ``urlconf`` is where the name is, when a middleware gives some hosts URLs of their own.

        Raises:
            AlreadyRegistered: a component of this name is offered.
            ImproperlyConfigured: the declaration cannot work. Whether the URLconf has such a name
                is said by the system check, as it is loaded later.
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
        self.add(
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
        self,
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
        """Offer a form as a tool: that of a view, or a model form by itself.

        A FormView, CreateView, UpdateView or DeleteView is named by its class or its URL, and its
        form is posted to it; give ``form`` where the view chooses its form by the request.

        A model form creates. With ``instance``, the name of a unique field, it changes the object
        that a caller names by it; ``queryset`` says which rows it may, as a query or a function of
        the context. Without ``permission`` it asks for Django's to add, or to change.

        Raises:
            AlreadyRegistered: a tool of this name is offered.
            ImproperlyConfigured: the view has no form, or the options are those of the other kind.
        """
        of_view = {"form": form, "query": query, "urlconf": urlconf}
        of_form = {"instance": instance, "queryset": queryset}
        is_form = isinstance(target, type) and issubclass(target, BaseForm)
        _refuse_other_kind(target, of_view if is_form else of_form, is_form=is_form)
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
            self.add(form_tool(target, server=self, **of_form, options=options))
            return
        self.add(form_component(target, form=form, query=query, urlconf=urlconf, options=options))


def _refuse_other_kind(target: Any, others: Mapping[str, Any], *, is_form: bool) -> None:
    """Refuse options that say nothing of what is registered."""
    found = [name for name, value in others.items() if value is not None]
    if found:
        name = getattr(target, "__name__", target)
        kind, other = ("form", "view") if is_form else ("view", "model form")
        raise ImproperlyConfigured(
            f"register_form({name}): {', '.join(found)} is for a {other}, and this is a {kind}; "
            "register the one that is meant."
        )


# Folders of skills --------------------------------------------------------------------------------


class RegisteringSkills(Registry):
    """A registry that takes folders of skills."""

    def register_skills(
        self,
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
        """Offer each folder with a ``SKILL.md`` below this one as a skill (SEP-2640).

        A relative ``folder`` is beside the module that calls this. A folder in between that has no
        ``SKILL.md`` stands before the names of its skills, as ``prefix`` does: skills are
        ``skill://prefix/name``. ``permission`` and ``scopes`` hold for every file. A skill has up
        to 512 files of 16 MiB together, which are read now and kept in memory; hidden files are
        left out.

        Raises:
            AlreadyRegistered: there is a skill of one of these names; none of them is added.
            ImproperlyConfigured: one of them cannot be offered, or PyYAML is not installed (the
                extra ``skills``); the message names the file.
        """
        caller = sys._getframe(1).f_globals
        path = Path(folder)
        if not path.is_absolute():
            path = Path(str(caller.get("__file__", ""))).parent / path
        try:
            rates = parse_all(rate)
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
        found = skills_in(path, prefix=prefix, module=module, options=options)
        for one in found:
            if one.key in self.resources:
                raise AlreadyRegistered(
                    f"There is a resource {one.key!r} already, from "
                    f"{self.resources[one.key].origin}; rename the folder of one of the skills, or "
                    "give register_skills() a prefix."
                )
        for one in found:
            self.add(one)


# Registration -------------------------------------------------------------------------------------

C = TypeVar("C", bound=type[ModelComponents[Any]])


class Registering(RegisteringRest, RegisteringSkills, RegisteringViews):
    """A registry that also takes models, views, forms, REST views and folders of skills."""

    generated_scopes: bool | str = False

    def __init__(self, *, generic: Generic = None) -> None:
        super().__init__()
        self._registrations: dict[ModelComponents[Any], list[Component]] = {}
        self._generic = GenericSet(self, generic)

    @property
    def generic(self) -> Generic:
        """Above how many models one set of tools serves all of them; may be set at any time.

        ``True``: always, ``False``: never, ``None``: above eight.
        """
        return self._generic.generic

    @generic.setter
    def generic(self, generic: Generic) -> None:
        self._generic.choose(generic)
        self._generic.arrange(self._registrations)

    # Models ---------------------------------------------------------------------------------------

    @overload
    def register(self, model: type[Model], /) -> Callable[[C], C]: ...

    @overload
    def register(self, model: type[Model], declaration: C, /) -> C: ...

    def register(self, model: Any, declaration: Any = None, /) -> Any:
        """Offer a model as a ``ModelTools``, ``ModelResource`` or both say; also a decorator.

        Raises:
            AlreadyRegistered: a component of one of these names is offered.
            ImproperlyConfigured: the declaration cannot work; the message says what to write.
        """
        if not (isinstance(model, type) and issubclass(model, Model)) or model._meta.abstract:
            raise ImproperlyConfigured(f"register() takes a model that has a table, not {model!r}.")
        if declaration is not None:
            self._register(model, declaration)
            return declaration

        def decorator(cls: C) -> C:
            self._register(model, cls)
            return cls

        return decorator

    # A site may register elsewhere than in an ``mcp`` module, as in ``ready()`` of an app.
    @defaults_while_wrong()
    def _register(self, model: type[Model], cls: Any) -> None:
        if not (isinstance(cls, type) and issubclass(cls, ModelComponents)):
            raise ImproperlyConfigured(
                f"register({model.__name__}) takes a subclass of ModelTools or ModelResource, not "
                f"{cls!r}."
            )
        instance = cls(model, self)
        added: list[Component] = []
        # Known from here on: a relation to itself asks for the rules of its own model.
        self._registrations[instance] = added
        try:
            tools = instance.operations.values() if isinstance(instance, ModelTools) else ()
            for component in instance.components():
                declared_by(component.callable, instance)
                if not any(component is tool for tool in tools):
                    self.add(component)
                added.append(component)
            self._generic.arrange(self._registrations)
            for completion in instance.completions():
                self.add_completion(completion)
        except BaseException:
            self._forget(instance)
            raise
        instance.connect()

    def notify_changed(
        self, model: type[Model], changed: QuerySet[Any] | Iterable[Model], /
    ) -> None:
        """Tell subscribers of these objects of a registered model, once the transaction commits.

        For what sends no signals: ``QuerySet.update``, the bulk methods and raw SQL.

        Raises:
            NotRegistered: the model is not registered as resources.
        """
        found = [one for one in self.declared(model) if isinstance(one, ModelResource)]
        if not found:
            raise NotRegistered(f"{model.__name__} is not registered as resources on this server.")
        objects = changed if isinstance(changed, QuerySet) else list(changed)
        for one in found:
            one.notify(objects)

    @property
    def declarations(self) -> list[ModelComponents[Any]]:
        """What is registered of all models."""
        return list(self._registrations)

    def declared(self, model: type[Model]) -> list[ModelComponents[Any]]:
        """What is registered of a model, proxies of it included."""
        concrete = model._meta.concrete_model
        return [one for one in self._registrations if one.model._meta.concrete_model is concrete]

    def unregister(self, target: Any) -> None:
        """Take away a component, or all that registering a model or a class of ours added.

        Raises:
            NotRegistered: it is not offered.
        """
        if self._forget_rest(target):
            return
        if not isinstance(target, type):
            self._unregister_one(target)
            return
        found = [one for one in self._registrations if target in (one.model, type(one))]
        if not found:
            raise NotRegistered(f"{target!r} is not registered here.")
        for instance in found:
            instance.disconnect()
            self._forget(instance)

    def _unregister_one(self, target: Any) -> None:
        before = list(self)
        super().unregister(target)
        left = {id(one) for one in self}
        gone = {id(one) for one in before if id(one) not in left}
        for added in self._registrations.values():
            added[:] = [one for one in added if id(one) not in gone]
        self._generic.arrange(self._registrations)

    def _forget(self, instance: ModelComponents[Any]) -> None:
        for component in self._registrations.pop(instance):
            if component in list(self):
                super().unregister(component)
        self._generic.arrange(self._registrations)

    # The admin ------------------------------------------------------------------------------------

    def register_admin(
        self,
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
        uri: str | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        """Offer a model by the rules of its ``ModelAdmin``: what it shows, finds, allows and logs.

        ``actions`` names those of the admin's actions that become tools. The other options are
        those of ``ModelTools``, each in place of what the admin says; ``form_fields`` narrows what
        its form lets write, and ``uri`` offers the objects as resources, too.

        Raises:
            AlreadyRegistered: a component of one of these names is offered.
            ImproperlyConfigured: the site has no such admin, or an option cannot work.
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
            "uri": uri,
            "scopes": scopes,
        }
        self._register(*admin_declaration(target, site, options))
