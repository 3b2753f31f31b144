"""Exposed models and views: components that the site owner adds in the admin, without code.

They are registered with the same classes that code uses: a model as ``ModelTools``, a
``ModelResource`` or both, a view by the same ``register_*`` methods. A row that cannot be built is
left out, with the reason. If two components have the same name, the one in code wins.
"""

from __future__ import annotations

import logging
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.utils.translation import override

from mcp_django.auth.permissions import BasePermission, HasCodename
from mcp_django.components.component import Component
from mcp_django.components.context import Context
from mcp_django.components.registry import Registrar, Registry
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.integrations.models.changes import ModelSignalReceivers
from mcp_django.integrations.models.columns import resolve_path
from mcp_django.integrations.models.declaration import ModelComponents, ModelResource, ModelTools
from mcp_django.integrations.models.generic import GenericSet
from mcp_django.integrations.models.row_access import (
    Action,
    ModelPermission,
    codename,
    has_default_permission,
    overrides_has_permission,
)
from mcp_django.integrations.registration import SiteRegistrar
from mcp_django.integrations.site_requests import URLRoute, all_routes, routes_by_name
from mcp_django.integrations.views import ViewRunner
from mcp_django.overrides.exposure_rules import (
    PERMISSION_ACTIONS,
    ModelOptions,
    ViewOptions,
    controls_access,
    form_exclusion,
    model_exclusion,
    path_exclusion,
    route_exclusion,
)
from mcp_django.overrides.override_values import ExposureSpec, build_permissions

logger = logging.getLogger("mcp_django")

# Views --------------------------------------------------------------------------------------------

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
METHODS = ("get", "post", "put", "patch", "delete")


def exposable_routes() -> list[URLRoute]:
    """Return the named URLs of the site whose views may be exposed, one for each name."""
    routes: dict[str, URLRoute] = {}
    for route in all_routes():
        if route.name and not route_exclusion(route) and not route.reverse_problem:
            routes.setdefault(route.full_name, route)
    return [routes[name] for name in sorted(routes)]


def route_of(target: str) -> URLRoute:
    """Return the URL that a row names.

    Raises:
        ImproperlyConfigured: the URL does not exist, or its view may not be exposed.
    """
    route = routes_by_name(target)[0]
    if reason := route_exclusion(route):
        raise ImproperlyConfigured(reason)
    return route


def is_rest(route: URLRoute) -> bool:
    """Return whether a view is an ``APIView``, without importing REST framework."""
    views = sys.modules.get("rest_framework.views")
    return (
        views is not None and isinstance(route.view, type) and issubclass(route.view, views.APIView)
    )


def register_view(spec: ExposureSpec, staging: StagingServer) -> None:
    """Register the components of an exposed view, as a developer would in code.

    Raises:
        AlreadyRegistered: another row has one of the names.
        ImproperlyConfigured: the row is invalid; the message says what to change.
    """
    options = ViewOptions.from_json(spec.load_options())
    if spec.name and not NAME.fullmatch(spec.name):
        raise ImproperlyConfigured(
            f"name is {spec.name!r}; use at most 100 characters from A-Z a-z 0-9 _ . -"
        )
    route = route_of(spec.target)
    common: dict[str, Any] = {
        "permission": list(build_permissions(spec.groups, spec.permissions)) or None,
        "scopes": list(spec.scopes),
    }
    before = set(map(id, staging.registry))
    if is_rest(route):
        _register_rest(spec, options, route, staging, common)
    else:
        common |= {
            "name": spec.name or None,
            "title": options.title,
            "description": options.description,
        }
        _register_page(spec, options, staging, common)
    for component in list(staging.registry):
        if id(component) in before:
            continue
        source: Any = component.callable
        problem = getattr(source, "configuration_problem", None)
        reason = (str(problem()) if callable(problem) else "") or component.problem
        if not reason and isinstance(source, ViewRunner):
            form = source.arguments.layout.form
            reason = form_exclusion(form.form_class) if form is not None else ""
        if reason:
            raise ImproperlyConfigured(reason)


def _register_page(
    spec: ExposureSpec, options: ViewOptions, staging: StagingServer, common: Mapping[str, Any]
) -> None:
    if options.methods != ("get",):
        raise ImproperlyConfigured("methods are only for views of REST framework.")
    if options.becomes == "form":
        if options.uri or options.is_readable is not True:
            raise ImproperlyConfigured("A form has no URI, and its result is always text.")
        staging.register_form(spec.target, query=options.parameters or None, **common)
        return
    staging.register_view(
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
    route: URLRoute,
    staging: StagingServer,
    common: Mapping[str, Any],
) -> None:
    if options.becomes != "tool" or options.uri or options.query:
        raise ImproperlyConfigured(
            "A view of REST framework becomes tools, whose parameters are those of the view; "
            "leave the URI and the query parameters empty."
        )
    for method in options.methods:
        if method not in METHODS:
            raise ImproperlyConfigured(
                f"methods has {method!r:.20}; valid values: {', '.join(METHODS)}."
            )
    actions: Mapping[str, str] | None = getattr(route.callback, "actions", None)
    if actions is None:
        # Made by ``as_view`` or ``@api_view``.
        staging.register_api_view(
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
    action_names = list(dict.fromkeys(actions[method] for method in options.methods))
    space = route.namespace
    base = getattr(route.callback, "initkwargs", {}).get("basename") or ""
    described = dict.fromkeys(action_names, options.description) if options.description else {}
    staging.register_viewset(
        route.view,
        basename=f"{space}:{base}" if space and base else base or None,
        actions=action_names,
        name=spec.name,
        descriptions=described,
        **common,
    )


def file_fields_of(component: Component) -> frozenset[str]:
    """Return the file fields that the component leaves out, since JSON cannot carry files."""
    file_fields: frozenset[str] = getattr(
        getattr(component, "arguments", None), "files", frozenset()
    )
    return file_fields


class StagingServer(SiteRegistrar):
    """A stand-in for ``server`` while exposed components are built, with a registry of its own.

    The registry of code stays unchanged. Attributes that a declaration reads from its server come
    from the real server, which is ``None`` if this process does not have it. The rules for related
    objects are those of code, if code has any.
    """

    def __init__(self, name: str, server: Registrar | None) -> None:
        self.name = name
        self.registry = Registry(name)
        self.generic_tools = GenericSet(self, generic=False)
        self.generated_scopes = False if server is None else server.generated_scopes
        # Cached for as long as the server exists, so it must not keep the server alive.
        self._reference = None if server is None else weakref.ref(server)

    @property
    def _real(self) -> Any:
        reference = self.__dict__.get("_reference")
        return None if reference is None else reference()

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the real server, for hooks in code."""
        real = self._real
        if real is None or name.startswith("_"):
            raise AttributeError(name)
        return getattr(real, name)

    def code_registrations(self, model: type[Model]) -> list[ModelComponents[Any]]:
        """Return what code registers for a model on this server."""
        registrations: list[ModelComponents[Any]] = (
            self._real.declarations_of(model) if self._real else []
        )
        return registrations

    def shown_by_code(self, model: type[Model]) -> set[str]:
        """Return the columns of a model that code shows on this server."""
        paths = (
            path
            for declaration in self.code_registrations(model)
            for path in declaration.exposed.paths.values()
        )
        return {path.field.name for path in paths if not path.hops}

    def declarations_of(self, model: type[Model]) -> list[ModelComponents[Any]]:
        """Return the registrations of a model: those in code, else the exposed ones."""
        return self.code_registrations(model) or self.registry.declarations_of(model)


# Models -------------------------------------------------------------------------------------------

# ``ExposedModel`` is the class that a developer would write, so calls take the same path. It adds
# only restrictions: the groups and permissions of the row, and the rules of every class that code
# registers for the model on this server.

M = TypeVar("M", bound=Model)

WRITE_HOOKS = (
    *("form", "form_reader", "serializer", "write_fields"),
    *("perform_create", "perform_update", "perform_delete"),
)


class ExposedModel(ModelComponents[M]):
    """Base class of every exposed model; ``build_declaration`` adds the options of the row."""

    server: StagingServer
    _row_permissions: ClassVar[tuple[BasePermission, ...]] = ()
    _operations: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"exposure of {self.model._meta.label}"

    @property
    def _code_registrations(self) -> list[ModelComponents[Any]]:
        return self.server.code_registrations(self.model)

    @property
    def checks_each_object(self) -> bool:
        """Whether code has permission rules for single objects of the model."""
        return any(
            overrides_has_permission(registration) for registration in self._code_registrations
        )

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """Return the rows that every registration in code lets the caller see."""
        rows = super().get_queryset(ctx)
        for registration in self._code_registrations:
            rows = rows.filter(pk__in=registration.rows(ctx).using(rows.db).values("pk"))
        return rows

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Return whether the row, Django's permissions and code allow the action."""
        if not all(
            permission.has_permission(ctx.principal) for permission in self._row_permissions
        ):
            return False
        if not has_default_permission(self, ctx, action, obj):
            return False
        if obj is None:
            # ``ModelPermission`` checks with the real server in the context.
            permissions = (
                ModelPermission(registration, action) for registration in self._code_registrations
            )
            return all(permission.has_permission(ctx.principal) for permission in permissions)
        return all(
            registration.has_permission(ctx, action, obj)
            for registration in self._code_registrations
        )

    def permissions_for(self, action: Action) -> tuple[Any, ...]:
        """Return the permissions of the row, of the model, and of the related models shown."""
        beside = sorted(self._shown_related_models(), key=lambda model: model._meta.label)
        needed = (HasCodename(codename(model, "view")) for model in beside)
        by_code = (
            guard
            for model in beside
            for registration in self.server.code_registrations(model)
            for guard in registration.permissions_for("view")
        )
        return (*super().permissions_for(action), *self._row_permissions, *needed, *by_code)

    def connect(self) -> None:
        """Do nothing: ``model_signals`` connects, whether or not the process has this server."""

    def connect_signals(self) -> None:
        """Connect to the signals of saved and deleted objects."""
        super().connect()

    @property
    def receivers(self) -> tuple[Any, ...]:
        """The connected signals, each with its receiver and model."""
        changes: ModelSignalReceivers | None = getattr(self, "_changes", None)
        return changes.receivers if changes is not None else ()

    def check(self) -> None:
        """Reject what only code may expose."""
        super().check()
        for path in self.exposed.paths.values():
            if reason := path_exclusion(path, self.server.shown_by_code):
                self.refuse(f"fields: {path.text!r} {reason}")
        for model in self._shown_related_models():
            for registration in self.server.code_registrations(model):
                is_ruled = overrides_has_permission(registration)
                if is_ruled or registration.is_overridden("get_queryset"):
                    self.refuse(
                        f"fields shows columns of {model._meta.label}, which has its own rules in "
                        f"code ({type(registration).__name__}); name only the relation, which "
                        "follows them."
                    )
        if not isinstance(self, ModelTools) and not isinstance(self, ModelResource):
            self.refuse("it has no components; choose operations, or write a URI for resources.")
        if set(self._operations).intersection(PERMISSION_ACTIONS):
            self._check_writing()

    def _shown_related_models(self) -> set[type[Model]]:
        """Return the related models whose columns are shown."""
        paths = self.exposed.paths.values()
        return {hop.related_model for path in paths for hop in path.hops}

    def _check_writing(self) -> None:
        for name in getattr(self, "write_fields", None) or ():
            path = resolve_path(self.model, name, label=f"{self}: write_fields")
            if reason := path_exclusion(path, self.server.shown_by_code):
                self.refuse(f"write_fields: {name!r} {reason}")
        if controls_access(self.model):
            self.refuse(
                "operations: clients must not change users, groups or permissions; choose only "
                "list, get and count."
            )
        for registration in self._code_registrations:
            own = [name for name in WRITE_HOOKS if registration.is_overridden(name)]
            if own:
                self.refuse(
                    f"operations: code has rules for writing {self.model._meta.label} "
                    f"({type(registration).__name__}: {', '.join(own)}); declare create, update "
                    "and delete there."
                )


def model_of(target: str) -> type[Model]:
    """Return the model that a row names.

    Raises:
        ImproperlyConfigured: the model does not exist, or it may not be exposed.
    """
    try:
        model = apps.get_model(target)
    except (LookupError, ValueError):
        raise ImproperlyConfigured(
            f"The site has no model {target!r}; write it as 'shop.Order'."
        ) from None
    if reason := model_exclusion(model):
        raise ImproperlyConfigured(reason)
    return model


def register_model(spec: ExposureSpec, staging: StagingServer) -> None:
    """Register the components of an exposed model.

    Raises:
        AlreadyRegistered: another row has one of the names.
        ImproperlyConfigured: the row is invalid; the message says what to change.
    """
    options = ModelOptions.from_json(spec.load_options())
    staging.register(model_of(spec.target), build_declaration(spec, options))


def build_declaration(spec: ExposureSpec, options: ModelOptions) -> type[ModelComponents[Any]]:
    """Return the declaration class that a developer would write for these options."""
    attributes: dict[str, Any] = {
        "__doc__": options.description,
        "__module__": __name__,
        "_row_permissions": build_permissions(spec.groups, spec.permissions),
        "_operations": options.operations,
        "fields": list(options.fields),
        "name": spec.name,
        "plural": options.plural,
        "scopes": list(spec.scopes),
    }
    bases: tuple[type, ...] = (ExposedModel,)
    if options.uri:
        bases = (*bases, ModelResource)
        attributes |= {
            "uri": options.uri,
            "list": options.is_listed,
            "subscribe": options.subscribe,
        }
    if options.operations:
        bases = (*bases, ModelTools)
        attributes |= {
            "tools": list(options.operations),
            "filter_fields": list(options.filter_fields),
            "search_fields": list(options.search_fields),
            "ordering_fields": list(options.ordering_fields),
            "ordering": list(options.ordering),
            "page_size": options.page_size,
            "write_fields": list(options.write_fields) or None,
        }
    return type("Exposure", bases, attributes)


# Building components from rows --------------------------------------------------------------------

REGISTER: Mapping[str, Callable[[ExposureSpec, StagingServer], None]] = {
    "model": register_model,
    "view": register_view,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProblem:
    """Why a row, or one of its components (``component``), is not in the catalog."""

    spec: ExposureSpec
    reason: str
    component: Component | None = None
    """The component whose name code already uses; ``None`` if the whole row is left out."""


@dataclass(slots=True, kw_only=True)
class BuildResult:
    """The components built from some rows, and the problems of the others."""

    staging: StagingServer
    components: dict[ExposureSpec, list[Component]] = field(default_factory=dict)
    problems: list[BuildProblem] = field(default_factory=list)
    registered: dict[ExposureSpec, list[ModelComponents[Any]]] = field(default_factory=dict)

    def table(self, kind: str) -> dict[str, Any]:
        """Return the components of a kind by their keys."""
        all_components = (
            component for components in self.components.values() for component in components
        )
        return {component.key: component for component in all_components if component.kind == kind}

    def components_of(self, spec: ExposureSpec) -> list[Component]:
        """Return the components of one row."""
        return self.components.get(spec, [])

    def declarations(self, spec: ExposureSpec) -> list[ModelComponents[Any]]:
        """Return the declarations that were registered for one exposed model."""
        return self.registered.get(spec, [])

    def problems_of(self, spec: ExposureSpec) -> list[BuildProblem]:
        """Return the problems of one row."""
        return [problem for problem in self.problems if problem.spec == spec]

    def completions(self) -> dict[tuple[str, str, str], Any]:
        """Return the completions of the built components."""
        keys = {
            (component.kind, component.key)
            for components in self.components.values()
            for component in components
        }
        return {
            key: completion
            for key, completion in self.staging.registry.completions.items()
            if key[:2] in keys
        }


def build_exposures(server: Any, name: str, specs: Iterable[ExposureSpec]) -> BuildResult:
    """Build the components of rows on a server; leave out invalid rows, with the reason.

    ``server`` is ``None`` if this process does not have it.
    """
    result = BuildResult(staging=StagingServer(name, server))
    registry = result.staging.registry
    for spec in specs:
        before = {id(component) for component in registry}
        declaration_count = len(registry.declarations)
        register = REGISTER.get(spec.kind)
        reason = ""
        try:
            if register is None:
                reason = f"kind is {spec.kind!r}; valid values: model, view."
            else:
                register(spec, result.staging)
        except (AlreadyRegistered, ImproperlyConfigured) as exc:
            reason = str(exc)
        except Exception as exc:
            # Building inspects the site's own views, forms and serializers, and any may fail.
            logger.exception("Cannot build the components of the %s.", spec)
            reason = f"The site's own code failed with {type(exc).__name__}; the error was logged."
        added = [component for component in registry if id(component) not in before]
        if not reason:
            result.components[spec] = added
            result.registered[spec] = [*registry.declarations][declaration_count:]
            _drop_names_of_code(result, spec, server)
            continue
        for component in added:
            result.staging.unregister(component)
        result.problems.append(BuildProblem(spec=spec, reason=reason))
    return result


def _drop_names_of_code(result: BuildResult, spec: ExposureSpec, server: Any) -> None:
    """Leave out components whose name code already uses."""
    components: list[Component] = []
    for component in result.components[spec]:
        code_component = (
            server.registry.find_by_name(component.kind, component.key)
            if server is not None
            else None
        )
        if code_component is None:
            components.append(component)
            continue
        reason = (
            f"Code already has a {component.kind} {component.key!r} ({code_component.origin}), "
            "which is used instead; choose another name here."
        )
        result.problems.append(BuildProblem(spec=spec, reason=reason, component=component))
    result.components[spec] = components


_build_cache: WeakKeyDictionary[Any, tuple[Any, BuildResult]] = WeakKeyDictionary()


def cached_build(server: Any, name: str, specs: tuple[ExposureSpec, ...]) -> BuildResult:
    """Return the cached result of ``build_exposures`` for these specs and this state of the code.

    The cache holds one result per server. Problems are logged once per build.
    """
    state = (server.registry.generation, specs)
    cached = _build_cache.get(server)
    if cached is None or cached[0] != state:
        # The log is not translated: it is not for the user whose request builds the components.
        with override(None):
            cached = _build_cache[server] = state, build_exposures(server, name, specs)
        for problem in cached[1].problems:
            logger.error("Problem with the %s: %s", problem.spec, problem.reason)
    return cached[1]
