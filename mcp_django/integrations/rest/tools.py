"""REST framework views as tools: actions of a viewset, methods of a view, output schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db.models import CharField
from rest_framework import fields, relations, serializers
from rest_framework.generics import GenericAPIView
from rest_framework.pagination import CursorPagination, LimitOffsetPagination, PageNumberPagination
from rest_framework.renderers import JSONRenderer
from rest_framework.versioning import NamespaceVersioning, URLPathVersioning
from rest_framework.views import APIView

from mcp_django.components.tool import Tool
from mcp_django.integrations.rest.calls import RestCall
from mcp_django.integrations.rest.endpoints import (
    STANDARD_ACTIONS,
    RestEndpoint,
    api_view_endpoints,
    api_view_tool_name,
    basename_of,
    description_of,
    plural_of,
    slug,
    snake,
    viewset_endpoints,
    viewset_tool_name,
)
from mcp_django.integrations.rest.inputs import RestArguments
from mcp_django.integrations.rest.routing import Routes
from mcp_django.protocol.headers import map_subschemas
from mcp_django.protocol.text import did_you_mean
from mcp_django.schema.compiled import SerializerOutput
from mcp_django.schema.deferred import CallerArguments, Deferred
from mcp_django.schema.django_forms import constant_schema, key_schema
from mcp_django.schema.portable import portable_output
from mcp_django.schema.structure import Schema
from mcp_django.schema.vocabulary import LARGE_INTEGER, SchemaSource

UPDATE_ACTIONS = frozenset({"update", "partial_update"})


@dataclass(frozen=True, kw_only=True)
class RestToolOptions:
    """The options that all tools of one registration share."""

    url_kwargs: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    urlconf: str | None = None
    version: str = ""
    permission: Any = None
    scopes: Sequence[str] = ()
    timeout: float | None = None

    @classmethod
    def given(cls, options: Mapping[str, Any]) -> RestToolOptions:
        """Return the options that are not ``None``; ``None`` means that an option is left out."""
        return cls(**{name: value for name, value in options.items() if value is not None})

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            raise ImproperlyConfigured(f"scopes is a list: write scopes=[{self.scopes!r}].")
        for name, variables in (("url_kwargs", self.url_kwargs), ("fixed", self.fixed)):
            if not isinstance(variables, Mapping):
                raise ImproperlyConfigured(f"{name} must be a dictionary, not {variables!r}.")
        both = [name for name in self.url_kwargs if name in self.fixed]
        if both:
            raise ImproperlyConfigured(
                f"{both[0]!r} is in fixed and in url_kwargs; remove it from one of them."
            )


def _rest_tool(
    endpoint: RestEndpoint,
    options: RestToolOptions,
    *,
    name: str,
    description: str,
    title: str = "",
    namespace: str = "",
    serializer: Any = None,
    input_schema: Mapping[str, Any] | None = None,
    read_only: bool | None = None,
) -> Tool:
    """Return the tool of one endpoint.

    Raises:
        ImproperlyConfigured: the endpoint cannot be called with arguments; the message says what
            to write.
    """
    fixed = _fixed_kwargs(endpoint, options)

    def build(principal: Any = None) -> RestArguments:
        return RestArguments(
            endpoint,
            url_kwargs=options.url_kwargs,
            fixed=fixed,
            serializer=serializer,
            input_schema=input_schema,
            user=None if principal is None else principal.user,
        )

    arguments: RestArguments | CallerArguments
    arguments = CallerArguments(Deferred(build, what=str(endpoint)), build)
    is_dynamic = input_schema is None and endpoint.depends_on_caller(serializer)
    if input_schema is not None or not endpoint.runs_own_code(serializer):
        try:
            built = build()
            arguments = arguments if is_dynamic else built
        except ImproperlyConfigured:
            raise
        except Exception:  # noqa: BLE001 - of the site
            # The site's code failed, perhaps because its tables do not exist yet. It runs again
            # when the tool is used.
            is_dynamic = True
    # An output schema that depends on the site's code is not certain.
    schema = None if is_dynamic else output_schema(endpoint)
    call = RestCall(
        endpoint,
        routes=Routes(
            endpoint=endpoint,
            namespace=namespace or _version_namespace(endpoint, options),
            urlconf=options.urlconf,
        ),
        fixed=fixed,
        version=options.version,
    )
    return Tool(
        name=name,
        title=title,
        description=description,
        function=call.function,
        arguments=arguments,
        output=None if schema is None else SerializerOutput(schema),
        permission=options.permission,
        scopes=tuple(options.scopes),
        timeout=options.timeout,
        # The view opens its own transaction if ATOMIC_REQUESTS is set, and rolls it back for error
        # responses. The read-only limits are off, because the view is the site's own code.
        atomic=False,
        enforce=False,
        **_tool_hints(endpoint, read_only=read_only),
    )


def _tool_hints(endpoint: RestEndpoint, *, read_only: bool | None) -> dict[str, Any]:
    """Return the tool hints that the HTTP method implies; a POST except create may do anything."""
    if read_only is None and endpoint.is_safe:
        read_only = True
    if read_only:
        return {"read_only": True}
    if endpoint.method == "delete":
        return {"read_only": False, "destructive": True, "idempotent": True}
    if endpoint.method in {"put", "patch"} or endpoint.action in UPDATE_ACTIONS:
        return {"read_only": False, "destructive": True, "idempotent": True}
    if endpoint.action == "create" and not endpoint.is_extra:
        return {"read_only": False, "destructive": False}
    return {"read_only": False}


def _fixed_kwargs(endpoint: RestEndpoint, options: RestToolOptions) -> dict[str, Any]:
    scheme = endpoint.view_class.versioning_class
    if options.version and scheme is not None and issubclass(scheme, URLPathVersioning):
        return {str(scheme.version_param): options.version, **options.fixed}
    return dict(options.fixed)


def _version_namespace(endpoint: RestEndpoint, options: RestToolOptions) -> str:
    scheme = endpoint.view_class.versioning_class
    is_space = scheme is not None and issubclass(scheme, NamespaceVersioning)
    return options.version if is_space else ""


def viewset_tools(
    viewset: Any,
    *,
    basename: str | None = None,
    actions: Sequence[str] | None = None,
    name: str = "",
    plural: str = "",
    names: Mapping[str, str] | None = None,
    descriptions: Mapping[str, str] | None = None,
    serializers: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[Tool]:
    """Yield one tool for each action.

    Raises:
        ImproperlyConfigured: the action does not exist, or it cannot be called with arguments.
    """
    space, _, base = basename_of(viewset, basename).rpartition(":")
    endpoints = viewset_endpoints(viewset, actions, basename=base)
    names = _by_action("names", names, endpoints)
    descriptions = _by_action("descriptions", descriptions, endpoints)
    serializers = _by_action("serializers", serializers, endpoints)
    shared = RestToolOptions.given(options)
    noun = slug(name or base)
    several = slug(plural) or plural_of(noun, endpoints[0].model)
    taken: set[str] = set()
    for endpoint in endpoints:
        own = names.get(endpoint.action) or viewset_tool_name(endpoint, noun, several)
        yield _rest_tool(
            endpoint,
            shared,
            # One function may have several HTTP methods; only the first gets the plain name.
            name=f"{own}_{endpoint.method}" if own in taken else own,
            description=descriptions.get(endpoint.action) or description_of(endpoint, noun),
            namespace=space,
            serializer=serializers.get(endpoint.action),
        )
        taken.add(own)


def _by_action(
    option: str, values: Mapping[str, Any] | None, endpoints: Iterable[RestEndpoint]
) -> dict[str, Any]:
    """Return the values of an option by registered action; both update actions are one tool."""
    actions = list(dict.fromkeys(endpoint.action for endpoint in endpoints))
    values_by_action: dict[str, Any] = {}
    for name, value in (values or {}).items():
        action = name
        if name in UPDATE_ACTIONS and name not in actions:
            action = next((update for update in actions if update in UPDATE_ACTIONS), name)
        if action not in actions:
            hint = did_you_mean(name, actions, f"there is {', '.join(actions)}.")
            raise ImproperlyConfigured(
                f"{option} contains {name!r}, which is not registered; {hint}"
            )
        if action in values_by_action:
            raise ImproperlyConfigured(
                f"{option} contains 'update' and 'partial_update', which are one tool; keep one."
            )
        values_by_action[action] = value
    return values_by_action


def api_view_tools(
    view: Any,
    *,
    methods: Sequence[str] = ("get",),
    name: str = "",
    title: str = "",
    description: str = "",
    url_name: str = "",
    serializer: Any = None,
    input_schema: Mapping[str, Any] | None = None,
    read_only: bool | None = None,
    **options: Any,
) -> Iterator[Tool]:
    """Yield one tool for each method.

    Raises:
        ImproperlyConfigured: the method does not exist, or it cannot be called with arguments.
    """
    endpoints = api_view_endpoints(view, methods, url_name=url_name)
    shared = RestToolOptions.given(options)
    for endpoint in endpoints:
        noun = name or snake(endpoint.view_class.__name__)
        yield _rest_tool(
            endpoint,
            shared,
            name=api_view_tool_name(endpoint, noun, is_alone=len(endpoints) == 1),
            title=title,
            description=description or description_of(endpoint, noun),
            # If there are several methods, these options are only for those that write.
            serializer=None if endpoint.is_safe and len(endpoints) > 1 else serializer,
            input_schema=None if endpoint.is_safe and len(endpoints) > 1 else input_schema,
            read_only=read_only,
        )


# Output schemas -----------------------------------------------------------------------------------

# A tool has an output schema only if the schema is certain, because clients reject a result that
# does not match it. A tool has none if the site overrides a method, if the serializer has its own
# output, if a renderer renames fields or if the paginator has its own envelope.

# The methods that the standard actions use for their responses.
RESPONSE_METHODS = ("get_serializer", "paginate_queryset", "get_paginated_response")
PAGINATORS = (PageNumberPagination, LimitOffsetPagination, CursorPagination)


def output_schema(endpoint: RestEndpoint) -> Schema | None:
    """Return the schema of an endpoint's responses, or ``None`` if it is not certain."""
    standard = STANDARD_ACTIONS.get(endpoint.action)
    if standard is None or endpoint.is_extra or endpoint.action == "destroy":
        return None
    if not issubclass(endpoint.view_class, GenericAPIView):
        return None
    own = (endpoint.action, *(("update",) if endpoint.action == "partial_update" else ()))
    is_standard = (
        endpoint.inherits_unchanged(standard.mixin, *own)
        and endpoint.inherits_unchanged(GenericAPIView, *RESPONSE_METHODS)
        and endpoint.inherits_unchanged(APIView, "finalize_response")
        and endpoint.has_fixed_serializer
    )
    kinds = set(map(type, endpoint.renderers())) if is_standard else set()
    if {kind for kind in kinds if issubclass(kind, JSONRenderer)} != {JSONRenderer}:
        return None
    serializer = endpoint.serializer()
    if not isinstance(serializer, serializers.Serializer):
        return None
    row_schema = _serializer_schema(serializer)
    if not row_schema:
        return None
    if endpoint.action != "list":
        return portable_output(row_schema, SchemaSource.COLUMNS)
    several = _paginated_schema(endpoint, {"type": "array", "items": row_schema})
    return None if several is None else portable_output(several, SchemaSource.COLUMNS)


def _paginated_schema(endpoint: RestEndpoint, several: Schema) -> Schema | None:
    paginator: Any = endpoint.prototype().paginator
    if paginator is None:
        return several
    for kind in PAGINATORS:
        if isinstance(paginator, kind):
            is_own = all(
                getattr(type(paginator), name) is getattr(kind, name)
                for name in ("get_paginated_response", "paginate_queryset")
            )
            # Without a default page size, the paginator may return the list without an envelope.
            size = getattr(paginator, "default_limit", 0) or getattr(paginator, "page_size", 0)
            if not is_own or not size:
                return None
            wrapped: Schema = _to_json_schema(paginator.get_paginated_response_schema(several))
            return wrapped
    return None


def _to_json_schema(schema: Any) -> Any:
    """Return an OpenAPI schema as JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    rules = {name: rule for name, rule in schema.items() if name not in {"example", "nullable"}}
    rules = map_subschemas(rules, _to_json_schema)
    return {"anyOf": [rules, {"type": "null"}]} if schema.get("nullable") else rules


def _serializer_schema(serializer: Any) -> Schema:
    """Return the schema of a serializer's output; empty if the serializer overrides its output."""
    kind = type(serializer)
    if kind.to_representation is not serializers.Serializer.to_representation:
        return {}
    if kind.data is not serializers.Serializer.data:
        return {}
    properties = {
        name: _nullable(output_field)
        for name, output_field in serializer.fields.items()
        if not output_field.write_only
    }
    return {"type": "object", "properties": properties}


def _nullable(field: Any) -> Schema:
    schema = _field_schema(field)
    if not schema:
        return schema
    column = _model_field(field)
    if column is not None and not field.allow_null:
        is_many = column.many_to_many or column.one_to_many
        if is_many or not getattr(column, "null", True):
            # The column is never null.
            return schema
    return {"anyOf": [schema, {"type": "null"}]}


def _model_field(field: Any) -> Any:
    """Return the field of the serializer's model that a field shows, or ``None``."""
    model = getattr(getattr(field.parent, "Meta", None), "model", None)
    try:
        return None if model is None else model._meta.get_field(field.source)
    except FieldDoesNotExist:
        return None


def _field_schema(field: Any) -> Schema:
    if isinstance(field, serializers.Serializer):
        return _serializer_schema(field)
    kind: Any
    for kind in type(field).__mro__:
        if kind in _SCHEMAS:
            # A field that overrides to_representation() may return anything.
            is_own = type(field).to_representation is kind.to_representation
            return _SCHEMAS[kind](field) if is_own else {}
    return {}


def _decimal(field: Any) -> Schema:
    as_text = getattr(field, "coerce_to_string", True) or field.localize
    return {"type": "string" if as_text else "number"}


def _slug(field: Any) -> Schema:
    model = None if field.queryset is None else field.queryset.model
    try:
        column = None if model is None else model._meta.get_field(field.slug_field)
    except FieldDoesNotExist:
        return {}
    return {"type": "string"} if isinstance(column, CharField) else {}


def _related_key_schema(field: Any) -> Schema:
    if field.pk_field is not None:
        return {}
    if field.queryset is not None:
        return key_schema(field.queryset.model._meta.pk)
    is_many = isinstance(field.parent, relations.ManyRelatedField)
    related = getattr(_model_field(field.parent if is_many else field), "related_model", None)
    return {} if related is None else key_schema(related._meta.pk)


_SCHEMAS: Mapping[type, Callable[[Any], Schema]] = {
    serializers.ListSerializer: lambda field: {
        "type": "array",
        "items": _field_schema(field.child),
    },
    fields.BooleanField: constant_schema(type="boolean"),
    **dict.fromkeys(
        (fields.CharField, fields.DateTimeField, fields.DateField, fields.TimeField),
        constant_schema(type="string"),
    ),
    fields.UUIDField: lambda field: {} if field.uuid_format == "int" else {"type": "string"},
    fields.IntegerField: constant_schema(type="integer"),
    # Not every release of REST framework has this field.
    getattr(fields, "BigIntegerField", fields.IntegerField): lambda field: (
        {"type": "string"} if getattr(field, "coerce_to_string", False) else dict(LARGE_INTEGER)
    ),
    fields.FloatField: constant_schema(type="number"),
    fields.DecimalField: _decimal,
    fields.DurationField: constant_schema(type="string"),
    fields.ListField: lambda field: {
        "type": "array",
        # An element may be null.
        "items": (
            {"anyOf": [schema, {"type": "null"}]} if (schema := _field_schema(field.child)) else {}
        ),
    },
    fields.DictField: constant_schema(type="object"),
    # A row may have a value that has been removed from the choices.
    fields.ChoiceField: lambda field: (
        {"type": "string"} if all(isinstance(choice, str) for choice in field.choices) else {}
    ),
    # The URL of the file; without a file it is null, although the column is not.
    fields.FileField: constant_schema(anyOf=[{"type": "string"}, {"type": "null"}]),
    relations.StringRelatedField: constant_schema(type="string"),
    relations.PrimaryKeyRelatedField: _related_key_schema,
    relations.SlugRelatedField: _slug,
    relations.HyperlinkedRelatedField: constant_schema(type="string"),
    relations.ManyRelatedField: lambda field: {
        "type": "array",
        "items": _field_schema(field.child_relation),
    },
}
