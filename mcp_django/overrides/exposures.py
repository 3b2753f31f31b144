"""Exposures: models and views that the site owner adds in the admin, without code.

They are registered with the same classes that code uses: a model as ``ModelTools``, a
``ModelResource`` or both, a view by the same ``register_*`` methods. An exposure that cannot be
built is left out, with the reason. Of two components with one name, the one in code wins.
"""

from __future__ import annotations

import logging
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet

from mcp_django.auth.permissions import BasePermission, HasCodename
from mcp_django.core.catalog import Offered
from mcp_django.core.component import Component
from mcp_django.core.context import Context
from mcp_django.core.registry import Registry
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.integrations.models.changes import Changes
from mcp_django.integrations.models.columns import resolve
from mcp_django.integrations.models.declaration import (
    Action,
    ModelComponents,
    ModelResource,
    ModelTools,
)
from mcp_django.integrations.models.row_access import (
    ModelPermission,
    codename,
    has_own_rules,
    may,
    may_this,
)
from mcp_django.integrations.registration import Registering
from mcp_django.integrations.site_requests import Route, routes, routes_called
from mcp_django.integrations.views import ViewSource
from mcp_django.overrides.exposure_rules import (
    ACTIONS,
    ModelOptions,
    ViewOptions,
    closed_form,
    closed_model,
    closed_path,
    closed_route,
    decides_access,
)
from mcp_django.overrides.override_values import ExposureSpec, guards_of

logger = logging.getLogger("mcp_django")

# Views --------------------------------------------------------------------------------------------

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
METHODS = ("get", "post", "put", "patch", "delete")


def routes_to_expose() -> list[Route]:
    """The named URLs of the site whose views may be exposed, one for each name."""
    found: dict[str, Route] = {}
    for route in routes():
        if route.name and not route.trouble and not closed_route(route):
            found.setdefault(route.full_name, route)
    return [found[name] for name in sorted(found)]


def route_of(target: str) -> Route:
    """The URL that a row names.

    Raises:
        ImproperlyConfigured: the site has none, or its view may not be exposed.
    """
    route = routes_called(target)[0]
    if reason := closed_route(route):
        raise ImproperlyConfigured(reason)
    return route


def is_rest(route: Route) -> bool:
    """Whether a view is one of REST framework, which is not imported to find that out."""
    views = sys.modules.get("rest_framework.views")
    return (
        views is not None and isinstance(route.view, type) and issubclass(route.view, views.APIView)
    )


def register_view(spec: ExposureSpec, scratch: Scratch) -> None:
    """Offer what a row says of a view, as a developer would have registered it.

    Raises:
        AlreadyRegistered: another exposure has one of the names.
        ImproperlyConfigured: the row cannot work; the message says what to change.
    """
    options = ViewOptions.read(spec.read())
    if spec.name and not NAME.fullmatch(spec.name):
        raise ImproperlyConfigured(
            f"name is {spec.name!r}; use at most 100 of A-Z a-z 0-9 _ - and the point."
        )
    route = route_of(spec.target)
    common: dict[str, Any] = {
        "permission": list(guards_of(spec.groups, spec.permissions)) or None,
        "scopes": list(spec.scopes),
    }
    before = set(map(id, scratch))
    if is_rest(route):
        _register_rest(spec, options, route, scratch, common)
    else:
        common |= {
            "name": spec.name or None,
            "title": options.title,
            "description": options.description,
        }
        _register_page(spec, options, scratch, common)
    for one in list(scratch):
        if id(one) not in before and (problem := _problem_of(one)):
            raise ImproperlyConfigured(problem)


def _register_page(
    spec: ExposureSpec, options: ViewOptions, scratch: Scratch, common: Mapping[str, Any]
) -> None:
    if options.methods != ("get",):
        raise ImproperlyConfigured("methods are for views of REST framework alone.")
    if options.becomes == "form":
        if options.uri or options.is_readable is not True:
            raise ImproperlyConfigured("A form has no URI, and its answer is always text.")
        scratch.register_form(spec.target, query=options.parameters or None, **common)
        return
    scratch.register_view(
        spec.target,
        kind=options.becomes,  # type: ignore[arg-type]  # one of BECOMES without the form
        uri=options.uri or None,
        query=options.parameters or None,
        readable=options.is_readable,
        **common,
    )


def _register_rest(
    spec: ExposureSpec,
    options: ViewOptions,
    route: Route,
    scratch: Scratch,
    common: Mapping[str, Any],
) -> None:
    if options.becomes != "tool" or options.uri or options.query:
        raise ImproperlyConfigured(
            "A view of REST framework becomes tools, whose parameters are those of the view; "
            "leave URI and parameters of the address empty."
        )
    for method in options.methods:
        if method not in METHODS:
            raise ImproperlyConfigured(
                f"methods has {method!r:.20}; there is {', '.join(METHODS)}."
            )
    actions: Mapping[str, str] | None = getattr(route.callback, "actions", None)
    if actions is None:
        # What ``as_view`` or ``@api_view`` made.
        scratch.register_api_view(
            route.callback,
            methods=options.methods,
            name=spec.name,
            title=options.title,
            description=options.description,
            url_name=route.full_name,
            **common,
        )
        return
    lacking = [method for method in options.methods if method not in actions]
    if lacking:
        raise ImproperlyConfigured(
            f"The URL {route.full_name!r} has no {lacking[0]}; it has {', '.join(actions)}."
        )
    if options.title:
        raise ImproperlyConfigured("The tools of a viewset have no title; leave it empty.")
    wanted = list(dict.fromkeys(actions[method] for method in options.methods))
    space = ":".join(instance for instance, _ in route.namespaces)
    base = getattr(route.callback, "initkwargs", {}).get("basename") or ""
    described = dict.fromkeys(wanted, options.description) if options.description else {}
    scratch.register_viewset(
        route.view,
        basename=f"{space}:{base}" if space and base else base or None,
        actions=wanted,
        name=spec.name,
        descriptions=described,
        **common,
    )


def files_of(component: Component) -> frozenset[str]:
    """What the page takes and the component does not: JSON carries no files."""
    found: frozenset[str] = getattr(getattr(component, "arguments", None), "files", frozenset())
    return found


def _problem_of(component: Component) -> str:
    """Why a component of a view cannot be called, or must not be; empty when it can."""
    source: Any = getattr(component.callable, "__self__", component.callable)
    problem = getattr(source, "problem", None)
    found = str(problem()) if callable(problem) else ""
    form = source.arguments.layout.form if not found and isinstance(source, ViewSource) else None
    return found or (closed_form(form.form_class) if form is not None else "")


# The registry of exposed components ---------------------------------------------------------------

# The registry of code stays unchanged. What a registration asks of its server is answered by the
# real one; the rules for related objects are those of code, if code has any.


class Scratch(Registering):
    """A registry beside the one of a server; ``None`` where this process has no such server."""

    def __init__(self, name: str, server: Any) -> None:
        # One set of tools for all models would change the names of tools with their number.
        super().__init__(generic=False)
        self.name = name
        # It is kept as long as its server, and must not keep it.
        self._reference = None if server is None else weakref.ref(server)

    @property
    def _real(self) -> Any:
        reference = self.__dict__.get("_reference")
        return None if reference is None else reference()

    def __getattr__(self, name: str) -> Any:
        """What hooks of code find on a server."""
        real = self._real
        if real is None or name.startswith("_"):
            raise AttributeError(name)
        return getattr(real, name)

    @property
    def generated_scopes(self) -> bool | str:  # type: ignore[override]  # a class attribute there
        """The scopes that the server makes for what is registered."""
        return getattr(self._real, "generated_scopes", False)

    def twins(self, model: type[Model]) -> list[ModelComponents[Any]]:
        """What code registers of a model on this server."""
        found: list[ModelComponents[Any]] = self._real.declared(model) if self._real else []
        return found

    def shown_by_code(self, model: type[Model]) -> set[str]:
        """The columns of a model that code shows on this server."""
        paths = (path for twin in self.twins(model) for path in twin.exposed.paths.values())
        return {path.field.name for path in paths if not path.hops}

    def declared(self, model: type[Model]) -> list[ModelComponents[Any]]:
        """The rules for the rows of a model: those of code, else those of exposures."""
        return self.twins(model) or super().declared(model)


# Models -------------------------------------------------------------------------------------------

# ``ExposedModel`` is the class that a developer would have written, so calls take the same path.
# What it adds only restricts access: the groups and permissions of the row, and the rules of
# every class that code registers for the model on this server.

M = TypeVar("M", bound=Model)

WRITE_HOOKS = (
    *("form", "form_reader", "serializer", "write_fields"),
    *("perform_create", "perform_update", "perform_delete"),
)


class ExposedModel(ModelComponents[M]):
    """What every model exposure has before its options."""

    server: Scratch
    _guards: ClassVar[tuple[BasePermission, ...]] = ()
    _operations: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"exposure of {self.model._meta.label}"

    # Rules --------------------------------------------------------------------------------------

    @property
    def _twins(self) -> list[ModelComponents[Any]]:
        return self.server.twins(self.model)

    @property
    def asks_of_each(self) -> bool:
        """Whether code decides about each object of the model."""
        return any(has_own_rules(twin) for twin in self._twins)

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """The rows that every registration of code lets the caller know of."""
        rows = super().get_queryset(ctx)
        for twin in self._twins:
            rows = rows.filter(pk__in=twin.rows(ctx).using(rows.db).values("pk"))
        return rows

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Whether the row, Django's permissions and code let the caller do it."""
        if not all(one.has_permission(ctx.principal) for one in self._guards):
            return False
        if not may(self, ctx, action, obj):
            return False
        if obj is None:
            # Asked with the server of code in the context.
            asked = (ModelPermission(twin, action) for twin in self._twins)
            return all(one.has_permission(ctx.principal) for one in asked)
        return all(may_this(twin, ctx, action, obj) for twin in self._twins)

    def guards(self, action: Action) -> tuple[Any, ...]:
        """The rules of the row beside those of the model, and of the models shown beside it."""
        beside = sorted(self._shown_beside(), key=lambda one: one._meta.label)
        needed = (HasCodename(codename(model, "view")) for model in beside)
        by_code = (
            guard
            for model in beside
            for twin in self.server.twins(model)
            for guard in twin.guards("view")
        )
        return (*super().guards(action), *self._guards, *needed, *by_code)

    # Hearing ------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Nothing: ``model_signals`` listens, whether the process serves this server or not."""

    def listen(self) -> None:
        """Begin to listen to what is saved and deleted."""
        super().connect()

    @property
    def receivers(self) -> tuple[Any, ...]:
        """Who listens to which signal of which model."""
        changes: Changes | None = getattr(self, "_changes", None)
        return changes.receivers if changes is not None else ()

    # What the admin may not expose --------------------------------------------------------------

    def check(self) -> None:
        """Refuse what only code may expose."""
        super().check()
        for path in self.exposed.paths.values():
            if reason := closed_path(path, self.server.shown_by_code):
                self.refuse(f"fields: {path.text!r} {reason}")
        for model in self._shown_beside():
            self._check_beside(model)
        if not isinstance(self, ModelTools) and not isinstance(self, ModelResource):
            self.refuse("it offers nothing; choose operations, or write a URI for resources.")
        if set(self._operations).intersection(ACTIONS):
            self._check_writing()

    def _shown_beside(self) -> set[type[Model]]:
        """The related models of which columns are shown."""
        paths = self.exposed.paths.values()
        return {hop.related_model for path in paths for hop in path.hops}

    def _check_beside(self, model: type[Model]) -> None:
        for twin in self.server.twins(model):
            if has_own_rules(twin) or twin.is_overridden("get_queryset"):
                self.refuse(
                    f"fields shows columns of {model._meta.label}, which has rules of its own in "
                    f"code ({type(twin).__name__}); name the relation alone, which obeys them."
                )

    def _check_writing(self) -> None:
        for name in getattr(self, "write_fields", None) or ():
            path = resolve(self.model, name, what=f"{self}: write_fields")
            if reason := closed_path(path, self.server.shown_by_code):
                self.refuse(f"write_fields: {name!r} {reason}")
        if decides_access(self.model):
            self.refuse(
                "operations: who may do what is decided in the admin, and not by a client; choose "
                "list, get and count alone."
            )
        for twin in self._twins:
            own = [name for name in WRITE_HOOKS if twin.is_overridden(name)]
            if own:
                self.refuse(
                    f"operations: code has rules for writing {self.model._meta.label} "
                    f"({type(twin).__name__}: {', '.join(own)}); offer create, update and delete "
                    "there."
                )


def model_of(target: str) -> type[Model]:
    """The model that a row names.

    Raises:
        ImproperlyConfigured: the site has none, or it may not be exposed.
    """
    try:
        model = apps.get_model(target)
    except (LookupError, ValueError):
        raise ImproperlyConfigured(
            f"The site has no model {target!r}; write it as 'shop.Order'."
        ) from None
    if reason := closed_model(model):
        raise ImproperlyConfigured(reason)
    return model


def register_model(spec: ExposureSpec, scratch: Scratch) -> None:
    """Offer what a row says of a model.

    Raises:
        AlreadyRegistered: another exposure has one of the names.
        ImproperlyConfigured: the row cannot work; the message says what to change.
    """
    options = ModelOptions.read(spec.read())
    scratch.register(model_of(spec.target), declaration_of(spec, options))


def declaration_of(spec: ExposureSpec, options: ModelOptions) -> type[ModelComponents[Any]]:
    """The class that a developer would have written."""
    said: dict[str, Any] = {
        "__doc__": options.description,
        "__module__": __name__,
        "_guards": guards_of(spec.groups, spec.permissions),
        "_operations": options.operations,
        "fields": list(options.fields),
        "name": spec.name,
        "plural": options.plural,
        "scopes": list(spec.scopes),
    }
    bases: tuple[type, ...] = (ExposedModel,)
    if options.uri:
        bases = (*bases, ModelResource)
        said |= {"uri": options.uri, "list": options.is_listed, "subscribe": options.subscribe}
    if options.operations:
        bases = (*bases, ModelTools)
        said |= {
            "tools": list(options.operations),
            "filter_fields": list(options.filter_fields),
            "search_fields": list(options.search_fields),
            "ordering_fields": list(options.ordering_fields),
            "ordering": list(options.ordering),
            "page_size": options.page_size,
            "write_fields": list(options.write_fields) or None,
        }
    return type("Exposure", bases, said)


# Exposures ----------------------------------------------------------------------------------------

REGISTER: Mapping[str, Callable[[ExposureSpec, Scratch], None]] = {
    "model": register_model,
    "view": register_view,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a row, or one of its components, is not offered; ``is_whole`` for all of it."""

    spec: ExposureSpec
    reason: str
    is_whole: bool = True


@dataclass(slots=True, kw_only=True)
class Built:
    """The components of some exposures, and what is wrong with the others."""

    scratch: Scratch
    components: dict[ExposureSpec, list[Component]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    registered: dict[ExposureSpec, list[ModelComponents[Any]]] = field(default_factory=dict)

    def table(self, kind: str) -> dict[str, Any]:
        """The components of a kind by their keys."""
        every = (one for some in self.components.values() for one in some)
        return {one.key: one for one in every if one.kind == kind}

    def of(self, spec: ExposureSpec) -> list[Component]:
        """What one exposure became."""
        return self.components.get(spec, [])

    def declarations(self, spec: ExposureSpec) -> list[ModelComponents[Any]]:
        """What was registered for one model exposure."""
        return self.registered.get(spec, [])

    def wrong_with(self, spec: ExposureSpec) -> list[Problem]:
        """What is wrong with one exposure."""
        return [one for one in self.problems if one.spec == spec]

    def completions(self) -> dict[tuple[str, str, str], Any]:
        """The completions of what is offered."""
        offered = {(one.kind, one.key) for some in self.components.values() for one in some}
        return {key: one for key, one in self.scratch.completions.items() if key[:2] in offered}


def build(server: Any, name: str, specs: Iterable[ExposureSpec]) -> Built:
    """What these exposures become on a server; what cannot be built is left out, with the reason.

    ``server`` is the registry of code, ``None`` where this process has no server of the name.
    """
    made = Built(scratch=Scratch(name, server))
    for spec in specs:
        reason = _added(made, spec)
        if reason:
            made.problems.append(Problem(spec=spec, reason=reason))
            continue
        _leave_to_code(made, spec, server)
    return made


def _added(made: Built, spec: ExposureSpec) -> str:
    """Add what one exposure becomes, or say why it cannot become anything."""
    scratch = made.scratch
    before = {id(one) for one in scratch}
    known = len(scratch.declarations)
    reason = ""
    try:
        REGISTER.get(spec.kind, _unknown)(spec, scratch)
    except (AlreadyRegistered, ImproperlyConfigured) as exc:
        reason = str(exc)
    except Exception as exc:
        # The site's own views, forms and serializers are looked at, and any of them may fail.
        logger.exception("The exposure of %s cannot be looked at.", spec)
        reason = f"The site's own code failed with {type(exc).__name__}; it was logged."
    added = [one for one in scratch if id(one) not in before]
    if not reason:
        made.components[spec] = added
        made.registered[spec] = scratch.declarations[known:]
        return ""
    for one in added:
        scratch.unregister(one)
    return reason


def _unknown(spec: ExposureSpec, scratch: Scratch) -> None:
    raise ImproperlyConfigured(f"There is no kind {spec.kind!r} of exposures.")


def _leave_to_code(made: Built, spec: ExposureSpec, server: Any) -> None:
    """Leave out what code offers under the same name."""
    kept: list[Component] = []
    for one in made.components[spec]:
        other = server.answering(one.kind, one.key) if server is not None else None
        if other is None:
            kept.append(one)
            continue
        reason = (
            f"Code has a {one.kind} {one.key!r} already ({other.origin}), and that is offered; "
            "give this exposure another name."
        )
        made.problems.append(Problem(spec=spec, reason=reason, is_whole=False))
    made.components[spec] = kept


_known: WeakKeyDictionary[Registry, tuple[Any, Built]] = WeakKeyDictionary()


def built(server: Any, name: str, specs: tuple[ExposureSpec, ...]) -> Built:
    """``build``, kept until the specs or what code declares change; problems are logged once."""
    state = (server.generation, specs)
    found = _known.get(server)
    if found is None or found[0] != state:
        found = _known[server] = state, build(server, name, specs)
        for problem in found[1].problems:
            logger.error("The exposure of %s: %s", problem.spec, problem.reason)
    return found[1]


def with_exposed(declared: Offered, server: Any, specs: tuple[ExposureSpec, ...]) -> Offered:
    """What is declared, and beside it what the admin exposes; of one name, what is declared."""
    if not specs:
        return declared
    made = built(server, server.name, specs)
    return replace(
        declared,
        tools={**made.table("tool"), **declared.tools},
        resources={**made.table("resource"), **declared.resources},
        templates={**made.table("resource template"), **declared.templates},
        prompts={**made.table("prompt"), **declared.prompts},
        completions={**made.completions(), **declared.completions},
    )
