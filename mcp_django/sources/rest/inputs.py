"""The arguments of a REST tool: variables of the URL, parameters of the query, and the body.

Only names and plain kinds are checked here: the body is the serializer's affair, which runs in the
view after its permissions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from rest_framework import fields, serializers

from mcp_django.schema.arguments import MAX_KEPT_PROBLEMS, InvalidArguments, Problem
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.portable import portable_input
from mcp_django.schema.problems import one_of, wrong_kind
from mcp_django.schema.serializers import shape_of, writable_fields
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import decode_arguments, drop_nulls, unknown_members
from mcp_django.sources.rest.clearing import CLEAR, clear_schema, contradictions, emptied
from mcp_django.sources.rest.endpoint import Endpoint
from mcp_django.sources.rest.query import QueryParameter, query_parameters
from mcp_django.sources.rest.variables import url_variables

MAX_DIGITS = 18
UPLOAD = "is a file, which arguments cannot hold; upload it through the site itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The arguments of one call, by where they go."""

    given: dict[str, Any] = field(default_factory=dict)
    """All of them as they came."""
    url: dict[str, Any] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    body: dict[str, Any] | None = None


class RestArguments:
    """Reads the arguments of one endpoint.

    ``serializer`` and ``input_schema`` say what the body holds (of a GET: the query), where the
    view itself does not.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        url_kwargs: Mapping[str, Any],
        fixed: Mapping[str, Any],
        serializer: Any = None,
        input_schema: Mapping[str, Any] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._url = url_variables(endpoint, url_kwargs, fixed)
        self._query = {one.name: one for one in query_parameters(endpoint)}
        self.files: frozenset[str] = frozenset()
        self._compiled: CompiledSchema | None = None
        self._emptied: Mapping[str, Any] = {}
        self.body_shape = self._body(serializer, input_schema)
        if endpoint.is_reading and self.body_shape is not None:
            self._query |= _as_query(self.body_shape)
            self.body_shape = None
        # A body's member of the same name as the object's variable gets another one.
        members = self.body_shape["properties"] if self.body_shape is not None else {}
        taken = {*self._url, *self._query}
        if CLEAR in taken:
            self._emptied = {}
        taken |= {CLEAR} if self._emptied else set()
        self._names = {f"new_{name}" if name in taken else name: name for name in members}
        self._shape = self._whole(members)
        self.json_schema = portable_input(self._shape)

    def _body(self, serializer: Any, input_schema: Mapping[str, Any] | None) -> Schema | None:
        if input_schema is not None:
            self._compiled = CompiledSchema(input_schema, what="input_schema")
            if self._compiled.schema.get("type") != "object":
                raise ImproperlyConfigured('input_schema has to have "type": "object" at its root.')
            shape = {"properties": {}, "required": [], **self._compiled.schema}
            self._emptied = emptied(shape, None) if self._changes else {}
            return shape
        if self._endpoint.method == "delete" and serializer is None:
            return None
        if serializer is None and self._endpoint.is_reading:
            return None
        found = serializer() if serializer is not None else self._endpoint.serializer()
        if found is None:
            return None
        if not isinstance(found, serializers.Serializer):
            raise ImproperlyConfigured(
                f"{self._endpoint} takes {type(found).__name__}, and arguments have names; leave "
                "the action out, or pass a serializer for it."
            )
        return self._of_serializer(found)

    @property
    def _changes(self) -> bool:
        """Whether what is left out of the body keeps its value."""
        return self._endpoint.method in {"put", "patch"}

    def _of_serializer(self, serializer: serializers.Serializer[Any]) -> Schema:
        partial = self._endpoint.method == "patch"
        writable = writable_fields(serializer)
        files = {name: one for name, one in writable.items() if isinstance(one, fields.FileField)}
        for name, one in files.items():
            if one.required and not partial:
                raise ImproperlyConfigured(
                    f"{self._endpoint}: {name} is a file, which arguments cannot hold; leave this "
                    "action out."
                )
        self.files = frozenset(files)
        try:
            shape = shape_of(serializer, without=files, partial=partial)
        except ImproperlyConfigured as exc:
            raise ImproperlyConfigured(f"{self._endpoint}: {exc}") from exc
        self._emptied = emptied(shape, serializer) if self._changes else {}
        return shape

    def _whole(self, members: Mapping[str, Schema]) -> Schema:
        body = {name: members[own] for name, own in self._names.items()}
        required = [name for name, (_, is_required) in self._url.items() if is_required]
        required += [name for name, one in self._query.items() if one.required]
        wanted = self.body_shape.get("required", ()) if self.body_shape is not None else ()
        required += [name for name, own in self._names.items() if own in wanted]
        return {
            "type": "object",
            "properties": {
                **{name: schema for name, (schema, _) in self._url.items()},
                **{name: one.schema for name, one in self._query.items()},
                **body,
                **self._clear(),
            },
            "required": required,
            "additionalProperties": False,
        }

    def _clear(self) -> dict[str, Schema]:
        names = [name for name, own in self._names.items() if own in self._emptied]
        return {CLEAR: clear_schema(names)} if names else {}

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the sorted arguments under the name ``values``.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        arguments = self._known(decode_arguments(raw))
        if problems := [*islice(self._problems(arguments), MAX_KEPT_PROBLEMS)]:
            raise InvalidArguments(problems)
        clear = arguments.get(CLEAR, ()) if self._emptied else ()
        body = {
            own: self._emptied[own] if name in clear else arguments[name]
            for name, own in self._names.items()
            if name in clear or name in arguments
        }
        return {
            "values": Values(
                given=arguments,
                url={name: arguments[name] for name in self._url if name in arguments},
                query=[
                    pair
                    for name, one in self._query.items()
                    if name in arguments
                    for pair in one.pairs(arguments[name])
                ],
                body=None if self._endpoint.is_reading else body,
            )
        }

    def _known(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments without ``null`` where the published schema has none: it is left out."""
        known: dict[str, Any] = drop_nulls(arguments, self.json_schema, self.json_schema)
        if not self._changes:
            return known
        # A member that may be anything may be null, too, and would be lost by it.
        optional = self._names.keys() - self._shape["required"]
        return {
            name: value
            for name, value in known.items()
            if value is not None or name not in optional
        }

    def _problems(self, arguments: dict[str, Any]) -> Iterator[Problem]:
        for name in self.files & arguments.keys():
            yield Problem(path=name, message=UPLOAD)
        rest = {name: value for name, value in arguments.items() if name not in self.files}
        yield from unknown_members(rest, self._shape)
        known = {} if self._compiled is None else self._compiled.schema.get("properties", {})
        if self._compiled is not None:
            yield from self._compiled.problems(
                {name: value for name, value in rest.items() if name in known}
            )
        if self._emptied:
            yield from contradictions(arguments, arguments.get(CLEAR))
        for name in (*self._url, *self._query, *([CLEAR] if self._emptied else ())):
            if name in arguments:
                yield from _wrong(name, arguments[name], self.json_schema["properties"][name])
            elif name in self.json_schema.get("required", ()) and name not in known:
                yield Problem(path=name, message="is required")

    def in_terms_of_call(self, errors: Any, values: Values) -> tuple[Any, dict[str, Any], Schema]:
        """The view's errors by the names of arguments, with these and their schema."""
        if isinstance(errors, Mapping):
            names = {own: name for name, own in self._names.items()}
            errors = {names.get(name, name): inner for name, inner in errors.items()}
        return errors, values.given, self._shape


def _wrong(name: str, value: Any, schema: Schema) -> Iterator[Problem]:
    rule = wrong_kind(value, schema)
    if rule is not None:
        yield Problem(path=name, value=value, message=rule + _example(value, schema))
        return
    if schema.get("type") == "integer" and _is_huge(value):
        yield Problem(path=name, value=value, message="must have at most 18 digits")
        return
    items = value if isinstance(value, list) else [value]
    choices = (schema.get("items", {}) if isinstance(value, list) else schema).get("enum")
    for item in items:
        if isinstance(item, str) and not _is_text(item):
            yield Problem(path=name, message="must be text without control or broken characters")
        elif choices is not None and item not in choices and str(item) not in map(str, choices):
            yield Problem(path=name, value=item, message=one_of(choices))


def _example(value: Any, schema: Schema) -> str:
    """How one value is written where there may be several."""
    choices = schema.get("items", {}).get("enum")
    if schema.get("type") != "array" or not choices:
        return ""
    return f", as in {json.dumps([value if value in choices else choices[0]])}"


def _is_huge(value: Any) -> bool:
    """Whether a database would fail on it; a form of digits may come as text."""
    return len(str(value).strip().lstrip("+-0")) > MAX_DIGITS


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _as_query(shape: Schema) -> dict[str, QueryParameter]:
    return {
        name: QueryParameter(
            name=name,
            schema=schema,
            required=name in shape.get("required", ()),
            several="repeat" if schema.get("type") == "array" else "",
        )
        for name, schema in shape["properties"].items()
    }
