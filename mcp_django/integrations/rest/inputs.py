"""Arguments of a REST tool: variables of the URL, query parameters, filters and the request body.

Only names and simple types are checked here. The serializer validates the body; it runs in the
view, after the view's permissions.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import ImproperlyConfigured
from rest_framework import fields, serializers
from rest_framework.filters import OrderingFilter, SearchFilter
from rest_framework.generics import GenericAPIView
from rest_framework.parsers import BaseParser
from rest_framework.utils.mediatypes import media_type_matches

from mcp_django.integrations.rest.endpoints import QueryParameter, RestEndpoint
from mcp_django.integrations.rest.routing import url_variables
from mcp_django.protocol.headers import FORM, JSON
from mcp_django.schema.arguments import MAX_KEPT_PROBLEMS, InvalidArguments, ValidationProblem
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.portable import portable_input
from mcp_django.schema.problems import enum_rule, type_error_rule
from mcp_django.schema.serializers import serializer_schema, writable_fields
from mcp_django.schema.structure import Schema, accepts_null
from mcp_django.schema.values import (
    decode_arguments,
    drop_nulls,
    drop_optional_nulls,
    unknown_members,
)

MAX_DIGITS = 18
FILE_PROBLEM = "is a file, which arguments cannot contain; upload it through the site itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestValues:
    """The arguments of one call, grouped by the part of the request that they belong to."""

    arguments: dict[str, Any] = field(default_factory=dict)
    """All arguments, unchanged."""
    url: dict[str, Any] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    body: dict[str, Any] | None = None
    source: RestArguments | None = None
    """The parser of the arguments."""


class RestArguments:
    """Parses the arguments of one endpoint.

    ``serializer`` or ``input_schema`` describes the body (for a GET, the query string) if the view
    itself does not. A serializer may have different fields for each ``user``.
    """

    def __init__(
        self,
        endpoint: RestEndpoint,
        *,
        url_kwargs: Mapping[str, Any],
        fixed: Mapping[str, Any],
        serializer: Any = None,
        input_schema: Mapping[str, Any] | None = None,
        user: Any = None,
    ) -> None:
        self._endpoint = endpoint
        self._user = user
        self._url = url_variables(endpoint, url_kwargs, fixed)
        self._query = {parameter.name: parameter for parameter in _query_parameters(endpoint)}
        self.files: frozenset[str] = frozenset()
        self._compiled: CompiledSchema | None = None
        self._empty_values: Mapping[str, Any] = {}
        self.body_shape = self._body_schema(serializer, input_schema)
        if endpoint.is_safe and self.body_shape is not None:
            required = self.body_shape.get("required", ())
            self._query |= {
                name: QueryParameter(
                    name=name,
                    schema=schema,
                    required=name in required,
                    list_style="repeat" if schema.get("type") == "array" else "",
                )
                for name, schema in self.body_shape["properties"].items()
            }
            self.body_shape = None
        # A member of the body with the name of a URL or query argument gets another name.
        members = self.body_shape["properties"] if self.body_shape is not None else {}
        taken = {*self._url, *self._query}
        if CLEAR in taken:
            self._empty_values = {}
        taken |= {CLEAR} if self._empty_values else set()
        self.media_type = "" if self.body_shape is None else media_type_of(endpoint)
        """The media type of the body, empty if there is none."""
        self._names = {f"new_{name}" if name in taken else name: name for name in members}
        self._shape = self._whole_schema(members)
        self.json_schema = portable_input(self._shape)

    def _body_schema(
        self, serializer: Any, input_schema: Mapping[str, Any] | None
    ) -> Schema | None:
        if input_schema is not None:
            self._compiled = CompiledSchema(input_schema, what="input_schema")
            if self._compiled.schema.get("type") != "object":
                raise ImproperlyConfigured('input_schema must have "type": "object" at its root.')
            shape = {"properties": {}, "required": [], **self._compiled.schema}
            self._empty_values = empty_values(shape, None) if self._keeps_omitted else {}
            return shape
        if self._endpoint.method == "delete" and serializer is None:
            return None
        if serializer is None and self._endpoint.is_safe:
            return None
        endpoint = self._endpoint
        if serializer is None:
            body_serializer = endpoint.serializer(self._user)
        else:
            body_serializer = endpoint.make_serializer(serializer, self._user)
        if body_serializer is None:
            return None
        if not isinstance(body_serializer, serializers.Serializer):
            raise ImproperlyConfigured(
                f"{self._endpoint} takes a {type(body_serializer).__name__}, which has no named "
                "fields for the arguments; leave the action out, or pass a serializer for it."
            )
        return self._serializer_schema(body_serializer)

    @property
    def _keeps_omitted(self) -> bool:
        """Whether members that are left out of the body keep their values."""
        return self._endpoint.method in {"put", "patch"}

    def _serializer_schema(self, serializer: serializers.Serializer[Any]) -> Schema:
        partial = self._endpoint.method == "patch"
        writable = writable_fields(serializer)
        files = {
            name: file_field
            for name, file_field in writable.items()
            if isinstance(file_field, fields.FileField)
        }
        for name, file_field in files.items():
            if file_field.required and not partial:
                raise ImproperlyConfigured(
                    f"{self._endpoint}: {name} is a file, which arguments cannot contain; leave "
                    "this action out."
                )
        self.files = frozenset(files)
        try:
            shape = serializer_schema(serializer, without=files, partial=partial)
        except ImproperlyConfigured as exc:
            raise ImproperlyConfigured(f"{self._endpoint}: {exc}") from exc
        self._empty_values = empty_values(shape, serializer) if self._keeps_omitted else {}
        return shape

    def _whole_schema(self, members: Mapping[str, Schema]) -> Schema:
        body = {name: members[own] for name, own in self._names.items()}
        required = [name for name, (_, is_required) in self._url.items() if is_required]
        required += [name for name, parameter in self._query.items() if parameter.required]
        required_members = (
            self.body_shape.get("required", ()) if self.body_shape is not None else ()
        )
        required += [name for name, own in self._names.items() if own in required_members]
        clearable = [name for name, own in self._names.items() if own in self._empty_values]
        items = {"type": "string", "enum": clearable}
        clear = {"type": "array", "items": items, "description": "Fields to empty."}
        return {
            "type": "object",
            "properties": {
                **{name: schema for name, (schema, _) in self._url.items()},
                **{name: parameter.schema for name, parameter in self._query.items()},
                **body,
                **({CLEAR: clear} if clearable else {}),
            },
            "required": required,
            "additionalProperties": False,
        }

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the grouped arguments under the key ``values``.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        # Leave out the arguments whose ``null`` means that they are left out.
        arguments = drop_nulls(decode_arguments(raw), self.json_schema, self.json_schema)
        if self._keeps_omitted:
            # A member whose schema has no type also allows null, and null would empty the member.
            optional = self._names.keys() - self._shape["required"]
            arguments = drop_optional_nulls(arguments, optional)
        if problems := [*islice(self._problems(arguments), MAX_KEPT_PROBLEMS)]:
            raise InvalidArguments(problems)
        clear = arguments.get(CLEAR, ()) if self._empty_values else ()
        body = {
            own: self._empty_values[own] if name in clear else arguments[name]
            for name, own in self._names.items()
            if name in clear or name in arguments
        }
        return {
            "values": RestValues(
                arguments=arguments,
                url={name: arguments[name] for name in self._url if name in arguments},
                query=[
                    pair
                    for name, parameter in self._query.items()
                    if name in arguments
                    for pair in parameter.pairs(arguments[name])
                ],
                body=None if self._endpoint.is_safe else body,
                source=self,
            )
        }

    def _problems(self, arguments: dict[str, Any]) -> Iterator[ValidationProblem]:
        for name in self.files & arguments.keys():
            yield ValidationProblem(path=name, message=FILE_PROBLEM)
        rest = {name: value for name, value in arguments.items() if name not in self.files}
        yield from unknown_members(rest, self._shape)
        properties = {} if self._compiled is None else self._compiled.schema.get("properties", {})
        if self._compiled is not None:
            yield from self._compiled.find_problems(
                {name: value for name, value in rest.items() if name in properties}
            )
        if self._empty_values:
            clear = arguments.get(CLEAR)
            for name in clear if isinstance(clear, list) else ():
                if isinstance(name, str) and name in arguments:
                    yield ValidationProblem(
                        path=name, message="is in clear and also has a value; send one of them"
                    )
        for name in (*self._url, *self._query, *([CLEAR] if self._empty_values else ())):
            if name in arguments:
                yield from _value_problems(
                    name, arguments[name], self.json_schema["properties"][name]
                )
            elif name in self.json_schema.get("required", ()) and name not in properties:
                yield ValidationProblem(path=name, message="is required")

    def errors_by_argument(
        self, errors: Any, values: RestValues
    ) -> tuple[Any, dict[str, Any], Schema]:
        """Return the view's errors by argument name, with the arguments and their schema."""
        if isinstance(errors, Mapping):
            names = {own: name for name, own in self._names.items()}
            errors = {names.get(name, name): inner for name, inner in errors.items()}
        return errors, values.arguments, self._shape


def _value_problems(name: str, value: Any, schema: Schema) -> Iterator[ValidationProblem]:
    rule = type_error_rule(value, schema)
    if rule is not None:
        examples = schema.get("items", {}).get("enum")
        if schema.get("type") == "array" and examples:
            rule += f", as in {json.dumps([value if value in examples else examples[0]])}"
        yield ValidationProblem(path=name, value=value, message=rule)
        return
    # A number may be sent as text, and be too large for a database.
    digits = str(value).strip().lstrip("+-0")
    if schema.get("type") == "integer" and len(digits) > MAX_DIGITS:
        yield ValidationProblem(path=name, value=value, message="must have at most 18 digits")
        return
    elements = value if isinstance(value, list) else [value]
    choices = (schema.get("items", {}) if isinstance(value, list) else schema).get("enum")
    for element in elements:
        if isinstance(element, str) and not _is_text(element):
            yield ValidationProblem(
                path=name, message="must be text without control or broken characters"
            )
        elif (
            choices is not None and element not in choices and str(element) not in map(str, choices)
        ):
            yield ValidationProblem(path=name, value=element, message=enum_rule(choices))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


# Query parameters ---------------------------------------------------------------------------------

_CURSOR = "Cursor of the page: the value of {name} in the URL next of the previous page."


def _query_parameters(endpoint: RestEndpoint) -> list[QueryParameter]:
    """Return the query parameters that the view's filter backends and paginator declare."""
    if not endpoint.is_safe or not issubclass(endpoint.view_class, GenericAPIView):
        return []
    view = endpoint.prototype()
    parameters: list[QueryParameter] = []
    # django-filter is optional.
    django_filters = sys.modules.get("django_filters.rest_framework")
    is_filtered = endpoint.action == "list" or endpoint.uses_name("filter_queryset")
    for backend_class in view.filter_backends if is_filtered else ():
        backend = backend_class()
        if isinstance(backend, SearchFilter):
            if getattr(view, "search_fields", None):
                words = "Search terms, all of which must match."
                schema = {"type": "string", "description": words}
                parameters.append(QueryParameter(name=str(backend.search_param), schema=schema))
        elif isinstance(backend, OrderingFilter):
            parameters.extend(_ordering(backend, view))
        elif django_filters is not None and isinstance(backend, django_filters.DjangoFilterBackend):
            from mcp_django.integrations.rest.filtersets import filterset_parameters

            parameters.extend(filterset_parameters(backend, view))
        else:
            parameters.extend(_openapi_parameters(backend, view))
    if endpoint.action == "list" or endpoint.uses_name("paginate_queryset"):
        parameters.extend(_paginator_parameters(view.paginator, view))
    return parameters


def _paginator_parameters(paginator: Any, view: Any) -> Iterator[QueryParameter]:
    if paginator is None:
        return
    for parameter in _openapi_parameters(paginator, view):
        schema = parameter.schema
        if schema.get("type") == "integer":
            is_offset = parameter.name == getattr(paginator, "offset_query_param", None)
            schema = {**schema, "minimum": 0 if is_offset else 1}
        if parameter.name == getattr(paginator, "cursor_query_param", None):
            schema = {"type": "string", "description": _CURSOR.format(name=parameter.name)}
        yield QueryParameter(name=parameter.name, schema=schema)


def _ordering(backend: Any, view: Any) -> Iterator[QueryParameter]:
    declared = getattr(view, "ordering_fields", backend.ordering_fields)
    names: list[str] = []
    if isinstance(declared, list | tuple):
        names = [name if isinstance(name, str) else name[0] for name in declared]
    else:
        model = getattr(getattr(view, "queryset", None), "model", None)
        if declared == "__all__":
            names = [] if model is None else [field.name for field in model._meta.fields]
        else:
            with suppress(AttributeError, TypeError, AssertionError):
                # Without a declaration, these are the fields of the serializer.
                names = [name for name, _ in backend.get_default_valid_fields(view.queryset, view)]
    if not names:
        return
    values = [sign + name for name in names for sign in ("", "-")]
    yield QueryParameter(
        name=str(backend.ordering_param),
        schema={
            "type": "array",
            "items": {"type": "string", "enum": values},
            "description": "Fields to sort by, the most important first; - is descending.",
        },
        list_style="comma",
    )


def _openapi_parameters(source: Any, view: Any) -> Iterator[QueryParameter]:
    """Yield the query parameters that a backend or paginator declares for OpenAPI."""
    describe = getattr(source, "get_schema_operation_parameters", None)
    for parameter in describe(view) if describe else ():
        if isinstance(parameter, Mapping) and parameter.get("in") == "query":
            described = (
                {"description": str(parameter["description"])}
                if parameter.get("description")
                else {}
            )
            yield QueryParameter(
                name=str(parameter["name"]),
                schema={**parameter.get("schema", {"type": "string"}), **described},
                required=bool(parameter.get("required")),
            )


# Request bodies -----------------------------------------------------------------------------------

MULTIPART = "multipart/form-data"
ANY = "*/*"


def media_type_of(endpoint: RestEndpoint) -> str:
    """Return the media type to send: JSON if the view's parsers accept it, else a form.

    Raises:
        ImproperlyConfigured: the view accepts neither JSON nor forms.
    """
    parsers: list[BaseParser] = endpoint.parsers()
    for media_type in (JSON, FORM, MULTIPART):
        # A parser for any media type expects the bytes of a file.
        if any(
            media_type_matches(parser.media_type, media_type)
            for parser in parsers
            if parser.media_type != ANY
        ):
            return media_type
    taken = ", ".join(str(parser.media_type) for parser in parsers) or "nothing"
    raise ImproperlyConfigured(
        f"{endpoint} accepts {taken}, but arguments are sent as JSON or as a form; leave it out."
    )


def encode_body(values: dict[str, Any], media_type: str) -> tuple[bytes, str]:
    """Return the body and its content type."""
    if media_type == JSON:
        return json.dumps(values, allow_nan=False).encode(), JSON
    pairs = [pair for name, value in values.items() for pair in _flat(name, value)]
    if media_type == FORM:
        return urlencode(pairs, errors="replace").encode(), FORM
    boundary = secrets.token_hex(16)
    parts = []
    for name, value in pairs:
        # Callers may choose the names of members, so names are escaped for the header.
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        disposition = f'Content-Disposition: form-data; name="{quoted}"'
        parts.append(f"--{boundary}\r\n{disposition}\r\n\r\n{value}\r\n")
    text = "".join(parts) + f"--{boundary}--\r\n"
    return text.encode(errors="replace"), f"{MULTIPART}; boundary={boundary}"


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield nested values as REST framework reads them: ``lines[0]sku``, ``address.city``."""
    if isinstance(value, dict):
        for member, inner in value.items():
            yield from _flat(f"{name}.{member}", inner)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            if isinstance(element, dict):
                for member, inner in element.items():
                    yield from _flat(f"{name}[{index}]{member}", inner)
            else:
                yield from _flat(name, element)
    elif isinstance(value, bool):
        yield name, str(value).lower()
    else:
        yield name, "" if value is None else str(value)


# Fields to empty are passed as a list of names. ``null`` cannot express this, because some clients
# send ``null`` for every argument that they leave out.
CLEAR = "clear"


def empty_values(
    shape: Schema, serializer: serializers.BaseSerializer[Any] | None
) -> Mapping[str, Any]:
    """Return the empty value of each optional body member that may be empty.

    A required member is emptied by sending ``null``, if its schema allows it.
    """
    fields = {} if serializer is None else writable_fields(serializer)
    values: dict[str, Any] = {}
    for name, schema in shape["properties"].items():
        if name in shape.get("required", ()):
            continue
        field = fields.get(name)
        if field.allow_null if field is not None else accepts_null(shape, schema):
            values[name] = None
        elif getattr(field, "allow_blank", False):
            values[name] = ""
    return values
