"""Arguments of a view: the variables of its URL, the parameters of its query string and its form.

They are computed when they are first needed, because the URLconf is loaded after the
declarations. Every value is sent as text, as a browser would send it.
"""

from __future__ import annotations

import datetime as dt
import inspect
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Required, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from django import forms
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.forms.models import BaseModelForm
from django.urls import NoReverseMatch, URLResolver, converters
from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError
from typing_extensions import TypedDict

from mcp_django.exceptions import ToolError
from mcp_django.integrations.site_requests import Pairs, SiteRequest, URLRoute, resolver_of
from mcp_django.integrations.site_responses import current_value, is_value_resent
from mcp_django.protocol.text import did_you_mean
from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    InvalidArguments,
    ValidationProblem,
    invalid_argument,
)
from mcp_django.schema.deferred import Deferred
from mcp_django.schema.django_forms import FormArguments, FormClass, form_fields, widget_entries
from mcp_django.schema.portable import portable_input
from mcp_django.schema.problems import explain_errors
from mcp_django.schema.pydantic_schemas import error_reason, typed_dict_adapter
from mcp_django.schema.structure import Schema, inline_references
from mcp_django.schema.values import (
    decode_arguments,
    drop_nulls,
    drop_optional_nulls,
    jsonable,
    unknown_members,
)

# Whether a value is unique depends on the row that is edited, which only the view knows.
UNIQUENESS_CODES = frozenset({"unique", "unique_together", "unique_for_date"})
Moment = dt.date | dt.time


class FormValues:
    """The fields of a form as a part of a request.

    ``is_checked`` validates the form before anything is sent, if it can be built from data alone.
    With ``is_partial`` no field is required: a field that is left out keeps its current value.

    Raises:
        ImproperlyConfigured: JSON cannot express the value of a required field.
    """

    def __init__(
        self,
        form_class: FormClass,
        *,
        prefix: str | None = None,
        is_checked: bool = True,
        is_partial: bool = False,
    ) -> None:
        self.form_class = form_class
        self._prefix = prefix or form_class.prefix
        self._is_checked = is_checked
        if is_checked:
            try:
                inspect.signature(form_class).bind(data={})
            except TypeError:
                self._is_checked = False
        self._fields = fields = form_fields(form_class)
        # Optional files are left out.
        self.files = frozenset(
            name
            for name, field in fields.items()
            if isinstance(field, forms.FileField) and (is_partial or not field.required)
        )
        self._arguments = FormArguments(form_class, is_created_by_view=True, excluded=self.files)
        self.json_schema: Schema = dict(self._arguments.json_schema)
        if is_partial:
            properties = self.json_schema["properties"].items()
            # A default would mean that a field that is left out is set to the default.
            self.json_schema["properties"] = {
                name: {key: value for key, value in schema.items() if key != "default"}
                for name, schema in properties
            }
            self.json_schema.pop("required", None)

    def pairs(
        self, arguments: dict[str, Any], *, current: Mapping[str, Any] | None = None
    ) -> Pairs:
        """Return the names and texts to send; ``current`` has the values of fields left out.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        checked_arguments = self._arguments.check_members(arguments)
        data = self._arguments.form_data(checked_arguments, prefix=self._prefix)
        if self._is_checked:
            form = self.form_class(data=data)
            if not form.is_valid():
                codes = {
                    str(error["code"])
                    for errors in form.errors.get_json_data().values()
                    for error in errors
                }
                # The edited row itself may have a value that has to be unique.
                if not (isinstance(form, BaseModelForm) and UNIQUENESS_CODES.issuperset(codes)):
                    raise InvalidArguments(self._arguments.form_problems(form, checked_arguments))
        left_out = [
            name for name in current or {} if name in self._fields and name not in checked_arguments
        ]
        for name in left_out:
            value = (current or {})[name]
            data |= widget_entries(self._fields[name].widget, self._key(name), value)
        fields = {self._key(name): field for name, field in self._fields.items()}
        return [
            (key, text)
            for key, value in data.items()
            for text in _value_texts(fields.get(key), value)
        ]

    def problems(self, form: Any, arguments: Mapping[str, Any]) -> tuple[ValidationProblem, ...]:
        """Return the errors of the view's form; empty if it is valid or is not a bound form."""
        if not isinstance(form, forms.BaseForm) or not form.is_bound or not form.errors:
            return ()
        return tuple(self._arguments.form_problems(form, dict(arguments)))

    def current_values(self, form: forms.BaseForm) -> dict[str, Any]:
        """Return the values that the view shows in its form before anything is sent."""
        names = [
            name
            for name in self._fields
            if name in form.fields and is_value_resent(form.fields[name])
        ]
        return {name: current_value(form, name) for name in names}

    def _key(self, name: str) -> str:
        return f"{self._prefix}-{name}" if self._prefix else name


def _value_texts(field: forms.Field | None, value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for element in value:
            yield from _value_texts(field, element)
    elif isinstance(value, bool):
        # An unchecked box is not sent, as views may test its presence.
        if field is None or not isinstance(field.widget, forms.CheckboxInput):
            yield "true" if value else "false"
        elif value:
            yield "on"
    elif isinstance(value, dt.date | dt.time):
        yield _format_moment(field, value)
    elif value is not None and not hasattr(value, "read"):
        yield str(value)


def _format_moment(field: forms.Field | None, value: Moment) -> str:
    """Return a date or time as ISO 8601 or, if the field does not read that, in its own format."""
    texts = [value.isoformat()]
    if field is None:
        return texts[0]
    # The formats may be translated lazily, and some fields have none.
    texts += [
        value.strftime(str(input_format))
        for input_format in getattr(field, "input_formats", None) or ()
    ]
    for text in texts:
        try:
            if field.to_python(text) == value:
                return text
        except (forms.ValidationError, TypeError):
            continue
    return texts[0]


# Values of the URL --------------------------------------------------------------------------------

# The variables of a path have the types of their converters; the parameters of the query string
# are declared by name and type. Values are validated before they are sent.

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)
_NOT_BUILDABLE = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError)

HINTS: Mapping[type, Any] = {
    converters.IntConverter: Annotated[int, Field(ge=0)],
    converters.StringConverter: Annotated[str, Field(min_length=1, pattern=r"^[^/]+$")],
    converters.SlugConverter: Annotated[str, Field(pattern=r"^[-a-zA-Z0-9_]+$")],
    converters.UUIDConverter: UUID,
    converters.PathConverter: Annotated[str, Field(min_length=1)],
}


class TypedValues:
    """Values that are declared by name and type.

    Raises:
        ImproperlyConfigured: JSON cannot express a type.
    """

    def __init__(self, hints: Mapping[str, Any], *, required: Collection[str] = ()) -> None:
        fields = {
            name: Required[hint] if name in required else hint for name, hint in hints.items()
        }
        create: Any = TypedDict
        shape = create("RequestValues", fields, total=False)
        try:
            self._adapter, schema = typed_dict_adapter(shape, _CONFIG)
            self._shape = inline_references(schema)
            self.json_schema = portable_input(self._shape)
        except (*_NOT_BUILDABLE, ValueError) as exc:
            raise ImproperlyConfigured(
                f"{', '.join(hints)}: JSON cannot express a type ({error_reason(exc)}); use "
                "str, int, "
                "bool, date, Literal or a similar type."
            ) from exc

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the values in their declared types.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        try:
            return self._adapter.validate_python(arguments)
        except ValidationError as exc:
            raise InvalidArguments(explain_errors(exc, arguments, self._shape)) from exc

    def pairs(self, arguments: dict[str, Any]) -> Pairs:
        """Return the names and texts to send; a list is sent as several pairs of the same name."""
        return [
            (name, text)
            for name, value in self.validate(arguments).items()
            for text in _query_texts(jsonable(value))
        ]


RequestValues: TypeAlias = FormValues | TypedValues
"""A part of a request: the schema of its values, and how they are sent."""


def path_variables(converters: Mapping[str, Any], *, required: Collection[str]) -> TypedValues:
    """Return the variables of a path, given the converter of each."""
    hints = {name: _type_hint(converter) for name, converter in converters.items()}
    return TypedValues(hints, required=required)


def _type_hint(converter: Any) -> Any:
    if converter is None:
        # A group of a regular expression: ``reverse`` checks the URL as a whole.
        return Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]
    hint = HINTS.get(type(converter))
    if hint is not None:
        return hint

    def convert(text: str) -> Any:
        """Convert a text as the converter does in a URL path."""
        if not re.fullmatch(converter.regex, text):
            raise ValueError(f"must match the pattern {converter.regex}")
        try:
            value = converter.to_python(text)
            converter.to_url(value)
        except ValueError:
            # Django never shows the message of the converter, so it was not written for users.
            raise ValueError("is not a value that the URL accepts") from None
        return value

    words = str(type(converter).__doc__ or "").strip().partition("\n")[0]
    return Annotated[
        str,
        Field(coerce_numbers_to_str=True, description=words or None),
        AfterValidator(convert),
    ]


def _query_texts(value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, list):
        for element in value:
            yield from _query_texts(element)
    elif value is not None:
        yield str(value)


# View arguments -----------------------------------------------------------------------------------

logger = logging.getLogger("mcp_django")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLayout:
    """The parts of a request, once the URLconf is known."""

    routes: Sequence[URLRoute]
    variables: TypedValues
    names: Mapping[str, str]
    """The URL variable that each argument fills, by the name of the argument."""
    query: RequestValues | None
    form: FormValues | None
    json_schema: Schema

    @property
    def route(self) -> URLRoute:
        """The first pattern; all of them have the same name."""
        return self.routes[0]


@dataclass(eq=False, kw_only=True)
class ViewArguments:
    """Parses the arguments of a call to a view.

    ``template`` has the variables of a resource's URI. It is ``None`` if there is no URI, in which
    case any argument can be passed.
    """

    find: Callable[[], Sequence[URLRoute]]
    method: str
    make_query: Callable[[], RequestValues | None] = lambda: None
    make_form: Callable[[URLRoute], FormValues | None]
    template: Sequence[str] | None = None
    urlconf: str | None = None
    what: str = "The view"
    """The name of the view in the log."""
    is_published: bool = False
    """Whether the component is declared completely, so that the URLconf can be loaded."""
    query_schema: Schema = field(default_factory=dict)
    """The schema of the query string, as far as it is known without code of the site."""
    _layouts: WeakKeyDictionary[URLResolver, Deferred[RequestLayout]] = field(
        default_factory=WeakKeyDictionary
    )

    @property
    def json_schema(self) -> Schema:
        """The schema to publish; without a URLconf, only its declared part."""
        if not (self.is_published and apps.ready):
            return self._declared_schema()
        try:
            return self.layout.json_schema
        except ImproperlyConfigured as exc:
            # One broken component must not break the list; the system check reports it, too.
            logger.error("%s", exc)  # noqa: TRY400 - the message is enough
            return self._declared_schema()
        except ToolError:
            return self._declared_schema()

    @property
    def problem(self) -> str:
        """Why the arguments cannot be described; empty if they can."""
        if not (self.is_published and apps.ready):
            return ""
        deferred = self._deferred
        # The declared part of the schema is published; the system check reports the exception.
        return "" if isinstance(deferred.exception, ImproperlyConfigured) else deferred.problem

    @property
    def exception(self) -> Exception | None:
        """The exception that was raised when the arguments were built, if any."""
        return self._deferred.exception

    def schema_state(self) -> object:
        """Return the state on which the schema depends; an equal state means an equal schema."""
        if not (self.is_published and apps.ready):
            return False
        resolver = resolver_of(self.urlconf)
        deferred = self._layouts.get(resolver)
        return resolver, None if deferred is None else deferred.state

    @property
    def layout(self) -> RequestLayout:
        """The parts of a request.

        Raises:
            ImproperlyConfigured: the URLconf has no such view, or not with these variables.
            ToolError: code of the site raised another exception, which is logged.
        """
        deferred = self._deferred
        if isinstance(deferred.exception, ImproperlyConfigured):
            raise deferred.exception
        return deferred.get()

    @property
    def _deferred(self) -> Deferred[RequestLayout]:
        resolver = resolver_of(self.urlconf)
        deferred = self._layouts.get(resolver)
        if deferred is None:
            deferred = self._layouts[resolver] = Deferred(self._build_layout, what=self.what)
        return deferred

    @property
    def files(self) -> frozenset[str]:
        """The file fields of the form, which no argument fills, because JSON cannot contain files.

        Raises:
            ImproperlyConfigured: the URLconf has no such view, or not with these variables.
        """
        form = self.layout.form
        return form.files if form is not None else frozenset()

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the request to send to the site, under the key ``sending``.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        try:
            _ = self.layout
        except ImproperlyConfigured:
            # The call itself raises this exception, so it is logged as a server error.
            return {}
        return {"sending": self.build_request(decode_arguments(raw))}

    def build_request(self, arguments: dict[str, Any]) -> SiteRequest:
        """Return the request to send to the site.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
            ImproperlyConfigured: the site has no such view.
        """
        layout = self.layout
        shape = layout.json_schema
        optional = shape["properties"].keys() - shape.get("required", ())
        arguments = drop_optional_nulls(drop_nulls(arguments, shape, shape), optional)
        problems = [*islice(unknown_members(arguments, shape), MAX_KEPT_PROBLEMS)]
        values = _read_part(layout.variables, layout.variables.validate, arguments, problems) or {}
        query, body = (
            _read_part(part, part.pairs, arguments, problems) or [] if part is not None else []
            for part in (layout.query, layout.form)
        )
        if problems:
            raise InvalidArguments(problems)
        variables = {layout.names[name]: value for name, value in values.items()}
        try:
            path = layout.route.reverse_path(variables)
        except NoReverseMatch:
            names = ", ".join(variables) or "values"
            raise invalid_argument("", f"no URL of the site accepts the given {names}") from None
        return SiteRequest(
            method=self.method,
            path=path,
            query=query,
            body=body,
            routes=layout.routes,
            arguments=arguments,
        )

    def _declared_schema(self) -> Schema:
        properties = {name: {"type": "string"} for name in self.template or ()}
        return _merge_schemas([{"properties": properties}, self.query_schema])

    def _build_layout(self) -> RequestLayout:
        routes = self.find()
        for route in routes:
            if route.reverse_problem:
                raise ImproperlyConfigured(f"The URL {route.full_name!r} {route.reverse_problem}.")
            if hasattr(route.callback, "mcp_server"):
                raise ImproperlyConfigured(
                    f"The URL {route.full_name!r} is an MCP endpoint, which cannot be a component."
                )
        form = self.make_form(routes[0]) if self.method == "POST" else None
        query = self.make_query()
        others = [part for part in (query, form) if part is not None]
        taken = {name for part in others for name in part.json_schema["properties"]}
        converters = {
            name: converter for route in routes for name, converter in route.converters.items()
        }
        # A form may have a field with the name of a URL variable, such as a new slug.
        names = {f"url_{name}" if name in taken else name: name for name in converters}
        required = frozenset.intersection(*(route.required for route in routes))
        path = path_variables(
            {argument: converters[name] for argument, name in names.items()},
            required=[argument for argument, name in names.items() if name in required],
        )
        schema = _merge_schemas([path.json_schema, *(part.json_schema for part in others)])
        self._check_template(schema)
        return RequestLayout(
            routes=routes,
            variables=path,
            names=names,
            query=query,
            form=form,
            json_schema=schema,
        )

    def _check_template(self, schema: Schema) -> None:
        if self.template is None:
            return
        properties = schema["properties"]
        for name in self.template:
            if name not in properties:
                hint = did_you_mean(name, properties, "remove it from the URI.")
                raise ImproperlyConfigured(f"The URL has no variable {name!r}; {hint}")
        for name in schema.get("required", ()):
            if name not in self.template:
                raise ImproperlyConfigured(
                    f"The URL needs {name!r}, which the URI does not have; add {{{name}}} to it."
                )


def _read_part(
    part: RequestValues,
    read: Callable[[dict[str, Any]], T],
    arguments: Mapping[str, Any],
    problems: list[ValidationProblem],
) -> T | None:
    """Read the arguments that belong to a part, or collect the problems with them."""
    own = part.json_schema["properties"]
    try:
        return read({name: value for name, value in arguments.items() if name in own})
    except InvalidArguments as exc:
        problems.extend(exc.problems)
        return None


def _merge_schemas(schemas: Sequence[Schema]) -> Schema:
    properties = {
        name: member for schema in schemas for name, member in schema.get("properties", {}).items()
    }
    required = [name for schema in schemas for name in schema.get("required", ())]
    more = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **more, "additionalProperties": False}
