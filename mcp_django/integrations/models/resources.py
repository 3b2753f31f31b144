"""Objects of a model as resources: templates, files, ``resources/list``, completion and prompts.

A ``ModelResource`` adds a resource template that reads one object, and templates for its files,
list entries, completions and prompts.
"""

from __future__ import annotations

import datetime as dt
import inspect
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from string import Formatter
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import CharField, Model, Q, QuerySet
from django.db.models.functions import Cast, Length
from django.http import Http404
from django.utils import timezone

from mcp_django.components import declare
from mcp_django.components.component import Completion, Component, ComponentFunction, Prompt
from mcp_django.components.context import Context
from mcp_django.components.resource import ListedResource, ListedResourcePage, ResourceTemplate
from mcp_django.exceptions import InvalidParams, ToolError
from mcp_django.execution.results import to_text
from mcp_django.integrations.models.columns import (
    Column,
    FieldPath,
    suggest_name,
    validate_storable_text,
)
from mcp_django.integrations.models.declaration import ModelResource
from mcp_django.integrations.models.row_access import can_view_all, filter_by_object_permission
from mcp_django.integrations.models.uris import parse_value, related_names, value_of
from mcp_django.protocol.content import Annotations, EmbeddedResource, Message, ResourceContents
from mcp_django.protocol.cursors import invalid_cursor
from mcp_django.protocol.headers import JSON
from mcp_django.protocol.uritemplate import URITemplate


def build_components(declaration: ModelResource[Any]) -> Iterator[Component]:
    """Yield the template of the objects, those of their files, and the prompts.

    Raises:
        ImproperlyConfigured: the declaration is not valid; the message says what to write.
    """
    if not declaration.uri or not isinstance(declaration.uri, str):
        declaration.refuse(
            f"uri is missing; write uri = "
            f"'{declaration.model._meta.app_label}://{declaration.plurals}/{{FIELD}}' with a "
            "unique field."
        )
    for option in ("list", "subscribe"):
        if not isinstance(getattr(declaration, option), bool):
            declaration.refuse(f"{option}={getattr(declaration, option)!r}; write True or False.")
    _ = declaration.variables
    yield build_template(declaration)
    yield from build_file_templates(declaration)
    yield from build_prompts(declaration)


def build_completions(declaration: ModelResource[Any]) -> Iterator[Completion]:
    """Yield a completion for each URI variable of each template and prompt."""
    for component in build_components(declaration):
        for name in declaration.variables.paths:
            yield Completion(
                kind="prompt" if isinstance(component, Prompt) else "resource template",
                key=component.key,
                argument=name,
                function=_function(declaration, name),
            )


def build_template(declaration: ModelResource[Any]) -> ResourceTemplate:
    """Return the template that reads an object as JSON."""
    # Created even if the objects are not listed, since it validates the options for the list.
    listed = ObjectListing(declaration)
    names = ", ".join(declaration.exposed.tree.members)
    return ResourceTemplate(
        name=declaration.singular,
        title=declaration.noun.capitalize(),
        description=declaration.doc or f"One {declaration.noun} as JSON: {names}.",
        function=declare.build_function(
            partial(read_resource, declaration), name=declaration.singular
        ),
        template=declaration.variables.template,
        arguments=declaration.variables,
        mime_type=JSON,
        subscribe=declaration.subscribe,
        entries=listed.page if declaration.list else None,
        **declaration.access("view"),
    )


def read_resource(declaration: ModelResource[Any], ctx: Context, values: Mapping[str, Any]) -> Any:
    """Return an object as JSON data that the caller may see.

    Raises:
        ObjectDoesNotExist: the object does not exist, or the caller may not see it.
    """
    return declaration.exposed.dump(get_object(declaration, ctx, values), ctx)


def get_object(declaration: ModelResource[Any], ctx: Context, values: Mapping[str, Any]) -> Model:
    """Return the object with these values, and load all data that is shown.

    Raises:
        ObjectDoesNotExist: the object does not exist, or the caller may not see it.
    """
    rows = declaration.rows(ctx).filter(**declaration.variables.lookups(values))
    instance: Model | None = next(iter(declaration.exposed.prepare(rows, ctx)[:1]), None)
    if instance is None or not declaration.has_permission(ctx, "view", instance):
        raise declaration.model.DoesNotExist
    # A case-insensitive database finds "A-1" for "a-1", but that object has another URI.
    if declaration.variables.texts(instance) != {
        name: str(value) for name, value in values.items()
    }:
        raise declaration.model.DoesNotExist
    return instance


# MIME types of compressed files by encoding; the type of the name without its suffix would be that
# of the uncompressed content.
COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


def build_file_templates(declaration: ModelResource[Any]) -> Iterator[ResourceTemplate]:
    """Yield a template for each file field of ``blobs``.

    Each file is a resource of its own: the URI of the object, a slash and the name of the field.

    Raises:
        ImproperlyConfigured: ``blobs`` has a name that is not a file field in ``fields``.
    """
    limit: Any = declaration.max_blob_bytes
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        declaration.refuse(f"max_blob_bytes={limit!r} is not valid; write a number of bytes.")
    for name in declaration.get_name_list("blobs"):
        columns = declaration.exposed.columns
        files = [column for column, field in columns.items() if Column(field).kind == "file"]
        if name not in files:
            declaration.refuse(
                f"blobs has {name!r}, which is not a file field in fields; "
                f"{suggest_name(name, files)}"
            )
        words = str(columns[name].help_text) or f"The file {name!r}."
        yield ResourceTemplate(
            name=f"{declaration.singular}_{name}",
            title=f"{declaration.noun.capitalize()}: {columns[name].verbose_name}",
            description=f"{words} For one {declaration.noun}; at most {limit} bytes.",
            function=declare.build_function(partial(_read_file, declaration, name), name=name),
            template=URITemplate(f"{declaration.uri}/{name}", is_lookup=True),
            arguments=declaration.variables,
            subscribe=declaration.subscribe,
            **declaration.access("view"),
        )


def _read_file(
    declaration: ModelResource[Any], name: str, ctx: Context, values: Mapping[str, Any]
) -> ResourceContents:
    """Return the content of a file of an object.

    Raises:
        ObjectDoesNotExist: the caller may not see the object, or it has no such file.
        ToolError: the file is larger than ``max_blob_bytes``.
    """
    file: Any = getattr(get_object(declaration, ctx, values), name)
    if not file:
        raise declaration.model.DoesNotExist
    limit = declaration.max_blob_bytes
    try:
        size = file.size
        if size > limit:
            raise _too_large(declaration, name, size)
        with file.open("rb") as opened:
            # One byte more than allowed: the file may have grown, or ``size`` may be wrong.
            content = opened.read(limit + 1)
    except FileNotFoundError:
        raise declaration.model.DoesNotExist from None
    if len(content) > limit:
        raise _too_large(declaration, name, len(content))
    return ResourceContents(bytes(content), mime_type=_mime_type(file.name))


def _too_large(declaration: ModelResource[Any], name: str, size: int) -> ToolError:
    return ToolError(
        f"The {name} of this {declaration.noun} has {size} bytes; at most "
        f"{declaration.max_blob_bytes} can be read."
    )


def _mime_type(name: str) -> str:
    kind, encoding = mimetypes.guess_type(name)
    if encoding is not None:
        return COMPRESSED.get(encoding, "application/octet-stream")
    return kind or "application/octet-stream"


# Entries of resources/list ------------------------------------------------------------------------

# Entries are ordered by the variables of their URIs, which are unique together and which the list
# shows anyway. So the position in a cursor reveals nothing, and a hidden primary key is not needed.

# The number of characters of text that fit into a cursor, shared by all text variables.
MAX_LISTED_TEXT = 400
MAX_TITLE = 200


class ObjectListing:
    """The listing of the objects of one declaration; ``resources/list`` calls ``page``."""

    def __init__(self, declaration: ModelResource[Any]) -> None:
        self._declaration = declaration
        self._variables = declaration.variables
        self._title = _column(declaration, "title", kinds=("text", "integer", "uuid", "date"))
        self._modified = _column(declaration, "last_modified", kinds=("datetime",))
        paths = (*self._variables.paths.values(), self._title, self._modified)
        self._paths = [path for path in paths if path is not None]

    def page(self, ctx: Context, after: list[Any] | None, limit: int) -> ListedResourcePage:
        """Return at most ``limit`` objects after a position in the order of their URIs."""
        rows = self._rows(ctx)
        if after is not None:
            paths = list(self._variables.paths.values())
            try:
                values = [parse_value(path, text) for path, text in zip(paths, after, strict=True)]
            except (TypeError, ValueError):
                raise invalid_cursor() from None
            behind, same = Q(), Q()
            for path, value in zip(paths, values, strict=True):
                behind |= same & Q(**{f"{path.expression}__gt": value})
                same &= Q(**{path.expression: value})
            rows = rows.filter(behind)
        objects = viewable_rows(self._declaration, ctx, rows, limit + 1, paths=self._paths)
        page_objects = objects[:limit]
        entries = [resource for resource in map(self._entry, page_objects) if resource is not None]
        if len(objects) <= limit:
            return ListedResourcePage(entries=entries, after=None)
        texts = self._variables.texts(page_objects[-1])
        assert texts is not None, "rows without these values are left out by the query"
        return ListedResourcePage(entries=entries, after=list(texts.values()))

    def _rows(self, ctx: Context) -> QuerySet[Model]:
        rows: QuerySet[Model] = self._declaration.rows(ctx)
        paths = self._variables.paths.values()
        texts = [path for path in paths if Column(path.column).kind == "text"]
        rows = rows.filter(has_values_condition(paths))
        room = MAX_LISTED_TEXT // max(len(texts), 1)
        for number, path in enumerate(texts):
            if (path.column.max_length or room + 1) > room:
                rows = rows.alias(**{f"length_{number}": Length(path.expression)})
                rows = rows.filter(**{f"length_{number}__lte": room})
        return rows.order_by(*self._variables.expressions)

    def _entry(self, obj: Model) -> ListedResource | None:
        """Return the entry of an object; ``None`` if no URI can identify it."""
        texts = self._variables.texts(obj)
        uri = self._variables.uri(texts)
        if uri is None or texts is None:
            return None
        name = " ".join(texts.values())
        noun = self._declaration.noun.capitalize()
        return ListedResource(
            uri=uri,
            name=name,
            title=self.title_of(obj) or f"{noun} {name}",
            mime_type=JSON,
            annotations=self.annotations_of(obj),
        )

    def title_of(self, obj: Model) -> str:
        """Return the value of the field ``title`` as text, empty without one."""
        value = None if self._title is None else value_of(obj, self._title)
        return "" if value is None else str(value)[:MAX_TITLE]

    def annotations_of(self, obj: Model) -> Annotations | None:
        """Return annotations with the time of the last change, if ``last_modified`` has a value."""
        moment = None if self._modified is None else value_of(obj, self._modified)
        if moment is None:
            return None
        # The protocol requires an aware datetime; a naive one is in ``TIME_ZONE``.
        if timezone.is_aware(moment):
            return Annotations(last_modified=moment.astimezone(dt.UTC))
        default_timezone = timezone.get_default_timezone()
        return Annotations(last_modified=timezone.make_aware(moment, default_timezone))


def viewable_rows(
    declaration: ModelResource[Any],
    ctx: Context,
    rows: QuerySet[Model],
    limit: int,
    *,
    paths: Sequence[FieldPath],
) -> list[Model]:
    """Return the first objects that the caller may view, with the values at these paths loaded."""
    rows = rows.select_related(*related_names(paths)) if related_names(paths) else rows
    if can_view_all(declaration, ctx):
        return list(rows.only(*(path.expression for path in paths))[:limit])
    return list(islice(filter_by_object_permission(declaration, ctx, rows), limit))


def has_values_condition(paths: Any) -> Q:
    """Return the condition for rows that have a value at each of these paths."""
    condition = Q()
    for path in paths:
        if path.is_nullable:
            condition &= Q(**{f"{path.expression}__isnull": False})
    return condition


def _column(
    declaration: ModelResource[Any], option: str, *, kinds: Sequence[str]
) -> FieldPath | None:
    name = getattr(declaration, option)
    if not name:
        return None
    path = declaration.exposed.require_path(name, option=option)
    if path.is_many or path.is_relation or Column(path.field).kind not in kinds:
        declaration.refuse(f"{option} = {name!r}; name one field of type {' or '.join(kinds)}.")
    return path


# Completion of the variables of a URI -------------------------------------------------------------

# The protocol allows 100 values in a completion; one more shows that there are more.
MAX_SUGGESTIONS = 101
MAX_TYPED = 200
# Wide enough for the values that are compared as text: 64-bit integers and dates.
TEXT = CharField(max_length=40)
HEX_DIGITS = 32


def _function(declaration: ModelResource[Any], name: str) -> ComponentFunction:
    """Return a function with the typed value as its first parameter, then the other variables."""
    component_function = declare.build_function(
        partial(complete_values, declaration, name), name=name
    )
    names = [name, *(variable for variable in declaration.variables.paths if variable != name)]
    names.append(declare.CONTEXT_PARAMETER)
    keyword = inspect.Parameter.KEYWORD_ONLY
    component_function.function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(parameter, keyword) for parameter in names]
    )
    return component_function


def complete_values(
    declaration: ModelResource[Any], name: str, ctx: Context, typed: Mapping[str, str]
) -> list[str]:
    """Return values of a variable that start with the typed text, of objects the caller may see."""
    variables = declaration.variables
    path = variables.paths[name]
    condition = has_values_condition([path])
    for other, text in typed.items():
        if other == name or not text:
            continue
        other_path = variables.paths[other]
        try:
            condition &= Q(**{other_path.expression: parse_value(other_path, text)})
        except ValueError:
            # An impossible value matches no object.
            condition &= Q(pk__in=[])
            break
    beginning = _prefix_filter(path, typed[name])
    if beginning is None:
        return []
    rows = beginning(declaration.rows(ctx)).filter(condition).order_by(path.expression)
    values = map(str, _values(declaration, ctx, rows, path))
    return [text for text in dict.fromkeys(values) if text]


def _values(
    declaration: ModelResource[Any], ctx: Context, rows: QuerySet[Any], path: FieldPath
) -> list[Any]:
    if can_view_all(declaration, ctx):
        return list(rows.values_list(path.expression, flat=True).distinct()[:MAX_SUGGESTIONS])
    return [
        value_of(obj, path)
        for obj in viewable_rows(declaration, ctx, rows, MAX_SUGGESTIONS, paths=[path])
    ]


def _prefix_filter(path: FieldPath, typed: str) -> Any:
    """Return a function that filters rows by the start of a value; ``None`` if none can match."""
    kind = Column(path.column).kind
    try:
        validate_storable_text(typed)
    except ValueError:
        return None
    if len(typed) > MAX_TYPED:
        return None
    if not typed:
        return lambda rows: rows
    if kind == "text":
        return lambda rows: rows.filter(**{f"{path.expression}__istartswith": typed})
    if kind == "uuid":
        # Databases store UUIDs differently, so compare with the first and the last possible one.
        digits = typed.replace("-", "")
        try:
            bounds = UUID(digits.ljust(HEX_DIGITS, "0")), UUID(digits.ljust(HEX_DIGITS, "f"))
        except ValueError:
            return None
        if not str(bounds[1]).startswith(typed.lower()):
            return None
        return lambda rows: rows.filter(**{f"{path.expression}__range": bounds})
    text = Cast(path.expression, TEXT)
    return lambda rows: rows.alias(typed_text=text).filter(typed_text__startswith=typed)


# Prompts about one object -------------------------------------------------------------------------

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def build_prompts(declaration: ModelResource[Any]) -> Iterator[Prompt]:
    """Yield a prompt for each item of ``prompts``, with the variables of the URI as arguments.

    ``prompts = {"summarize": "Summarize {object} for a colleague."}``

    Raises:
        ImproperlyConfigured: a name or text is not valid.
    """
    declared: Any = declaration.prompts
    if not isinstance(declared, Mapping):
        declaration.refuse(
            f"prompts={declared!r} is not valid; write a dictionary of names and texts."
        )
    for name, text in declared.items():
        yield ObjectPrompt(declaration, name, text).component()


class ObjectPrompt:
    """A prompt text with placeholders for an object."""

    def __init__(self, declaration: ModelResource[Any], name: Any, text: Any) -> None:
        self._declaration = declaration
        self._listing = ObjectListing(declaration)
        self._name = name
        if not isinstance(name, str) or not NAME.fullmatch(name):
            declaration.refuse(f"prompts has {name!r}; use letters, digits, - and _ in names.")
        if not isinstance(text, str) or not text.strip():
            declaration.refuse(f"prompts[{name!r}] is {text!r}; write a text with {{object}}.")
        self._text = text
        self._pieces = self._parsed(text)

    def _parsed(self, text: str) -> list[tuple[str, str | None]]:
        """Return the text as pairs of a literal and the placeholder after it.

        ``str.format`` is not used: it would resolve ``{object.customer.email}``, which may not be
        exposed.
        """
        names = ["object", "uri", *self._declaration.variables.paths]
        what = f"prompts[{self._name!r}]"
        pieces = []
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as exc:
            self._declaration.refuse(f"{what}: {exc}; write {{{{ and }}}} for braces.")
        for literal, placeholder, rule, conversion in parsed:
            if placeholder is not None and (placeholder not in names or rule or conversion):
                self._declaration.refuse(
                    f"{what} has {{{placeholder}}}; {suggest_name(placeholder, names)}"
                )
            pieces.append((literal, placeholder))
        return pieces

    def component(self) -> Prompt:
        """Return the prompt."""
        declaration = self._declaration
        words = self._name.replace("_", " ").replace("-", " ")
        return Prompt(
            name=f"{self._name}_{declaration.singular}",
            title=f"{words} {declaration.noun}".capitalize(),
            description=self._render({"object": f"one {declaration.noun}"}),
            function=declare.build_function(self.messages, name=self._name),
            arguments=declaration.variables,
            **declaration.access("view"),
        )

    def messages(self, ctx: Context, values: Mapping[str, Any]) -> list[Message]:
        """Return the text about an object, and the object as an embedded resource.

        Raises:
            InvalidParams: the object does not exist, or the caller may not see it.
        """
        declaration = self._declaration
        try:
            obj = get_object(declaration, ctx, values)
        except (ObjectDoesNotExist, Http404, PermissionDenied):
            raise self._missing(values) from None
        texts = declaration.variables.texts(obj)
        uri = declaration.variables.uri(texts)
        if uri is None or texts is None:
            # No URI can contain the value, for example "..".
            raise self._missing(values)
        text = self._render({**texts, "uri": uri, "object": self._label(obj, texts, uri)})
        embedded = EmbeddedResource(
            uri,
            text=to_text(declaration.exposed.dump(obj, ctx)),
            mime_type=JSON,
            annotations=self._listing.annotations_of(obj),
        )
        return [Message(text), Message(embedded)]

    def _label(self, obj: Model, texts: Mapping[str, str], uri: str) -> str:
        """Return the name of the object, without ``__str__``, which may reveal hidden fields."""
        name = self._listing.title_of(obj)
        return f"{self._declaration.noun} {name or ' '.join(texts.values())} ({uri})"

    def _render(self, values: Mapping[str, str]) -> str:
        return "".join(
            literal + ("" if name is None else values.get(name, name))
            for literal, name in self._pieces
        )

    def _missing(self, values: Mapping[str, Any]) -> InvalidParams:
        description = ", ".join(f"{name} {str(value)[:80]!r}" for name, value in values.items())
        return InvalidParams(
            f"There is no {self._declaration.noun} with {description}, or you may not see it."
        )
