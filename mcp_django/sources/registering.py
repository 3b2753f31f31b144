"""``Registering``: the verbs by which a server takes what the site already has.

Each imports its source when it is used: Django REST framework is optional, and a model can only be
looked at once the apps are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet

from mcp_django.conf import defaults_while_wrong
from mcp_django.core.component import Component
from mcp_django.core.declare import declared_by
from mcp_django.exceptions import NotRegistered
from mcp_django.sources.models.declaration import ModelComponents
from mcp_django.sources.models.generic import Generic, GenericSet
from mcp_django.sources.models.resource import ModelResource
from mcp_django.sources.models.tools import ModelTools
from mcp_django.sources.rest.registering import RegisteringRest
from mcp_django.sources.skills.registering import RegisteringSkills
from mcp_django.sources.views.registering import RegisteringViews

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite, ModelAdmin

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
        from mcp_django.sources.model_admin.source import admin_declaration

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
