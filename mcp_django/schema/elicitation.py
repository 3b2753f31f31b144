"""The form that elicitation shows to a user, and the value that the user's answer becomes.

A form is declared in one of the usual ways: a dataclass, a ``TypedDict``, a pydantic model, a
Django form, a single type (one field, passed on without its wrapping), a schema written by hand,
or nothing at all for a question that only has to be accepted.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NotRequired, Protocol, Required, get_args, get_origin

from django.core.exceptions import ImproperlyConfigured
from django.forms import BaseForm, ChoiceField, ModelChoiceField, MultipleChoiceField
from django.utils.choices import flatten_choices
from django.utils.translation import get_language
from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

from mcp_django.schema.arguments import InvalidArguments, Problem, quote
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.django_forms import FormArguments
from mcp_django.schema.secrets import asks_for_secret
from mcp_django.schema.signature import SignatureArguments, shown
from mcp_django.schema.structure import Schema

# Types are usually made once; a tool that makes one per call must not fill the memory.
REMEMBERED_FORMS = 256
FIELD = "value"


class ElicitationForm(Protocol):
    """A declared form."""

    json_schema: Schema
    """What the host shows."""
    uses_database: bool
    """Whether reading an answer may query."""

    def read(self, content: Mapping[str, Any]) -> Any:
        """Return the value that an answer stands for; members without a field are ignored.

        Raises:
            InvalidArguments: the user has to correct it.
        """
        ...


def elicitation_form(declared: Any) -> ElicitationForm:
    """Return the form that a declaration means.

    Raises:
        ImproperlyConfigured: no host could show it, or it asks for a secret.
    """
    if declared is None:
        return _NO_FIELDS
    if isinstance(declared, Mapping):
        return _HandwrittenForm(declared)
    try:
        # To Python choices are equal whatever their order; labels are in the reader's language.
        return _remembered(declared, shown(declared), get_language())
    except TypeError:
        # Annotated with something that has no hash.
        return _form(declared)


def _form(declared: Any, *_key: Any) -> ElicitationForm:
    try:
        if isinstance(declared, type) and issubclass(declared, BaseForm):
            return _DjangoForm(declared)
        return _TypedForm(declared)
    except NotFlatError as exc:
        raise ImproperlyConfigured(f"No form can be made of {shown(declared)}: {exc}.") from exc


_remembered = lru_cache(REMEMBERED_FORMS)(_form)


class _NoFields:
    """A question that is accepted or not, and says nothing more."""

    uses_database = False

    def __init__(self) -> None:
        self.json_schema: Schema = {"type": "object", "properties": {}}

    def read(self, content: Mapping[str, Any]) -> None:
        """Return nothing: that it was accepted is all there is."""


_NO_FIELDS = _NoFields()


class _TypedForm:
    """A form declared by a Python type."""

    uses_database = False

    def __init__(self, hint: Any) -> None:
        self._is_single = not _has_fields(hint)
        self._arguments = SignatureArguments(_asking_for(hint))
        whole = self._arguments.json_schema
        shape = whole if self._is_single else _described(hint, whole["properties"][FIELD])
        self.json_schema = flat_form(shape)
        # Asked for with None as an answer: a form says that by leaving the field out.
        self._filled = {
            name: None
            for name in shape.get("required", ())
            if name not in self.json_schema.get("required", ())
        }

    def read(self, content: Mapping[str, Any]) -> Any:
        """Return an instance of the type."""
        known = self.json_schema["properties"]
        given = {name: value for name, value in content.items() if name in known}
        filled = {**self._filled, **given}
        raw = json.dumps(filled if self._is_single else {FIELD: filled}).encode()
        try:
            return self._arguments.parse(raw)[FIELD]
        except InvalidArguments as exc:
            raise InvalidArguments(map(self._own, exc.problems)) from None

    def _own(self, problem: Problem) -> Problem:
        """The problem by the name that the user sees."""
        path = problem.path if self._is_single else problem.path.removeprefix(FIELD).lstrip(".")
        return dataclasses.replace(problem, path=path)


class _DjangoForm:
    """A form declared by a Django form, whose answer is the valid form."""

    uses_database = True

    def __init__(self, form_class: type[BaseForm]) -> None:
        self._arguments = FormArguments(form_class)
        schema = self._arguments.json_schema
        titled = {
            name: _titled(form_class.base_fields[name], member)  # type: ignore[attr-defined]
            for name, member in schema["properties"].items()
        }
        self.json_schema = flat_form({**schema, "properties": titled})

    def read(self, content: Mapping[str, Any]) -> BaseForm:
        """Return the bound, valid form."""
        known = self.json_schema["properties"]
        given = {name: value for name, value in content.items() if name in known}
        form: BaseForm = self._arguments.parse(json.dumps(given).encode())["form"]
        return form


class _HandwrittenForm:
    """A form declared by the schema that the host gets, word for word."""

    uses_database = False

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._compiled = CompiledSchema(schema, what="The form's schema")
        self.json_schema = self._compiled.schema
        try:
            check_flat(self.json_schema)
        except NotFlatError as exc:
            raise ImproperlyConfigured(f"The form's schema is refused: {exc}.") from exc

    def read(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer as it came."""
        known = self.json_schema.get("properties", {})
        given = {name: value for name, value in content.items() if name in known}
        if problems := self._compiled.problems(given):
            raise InvalidArguments(problems)
        return given


def _asking_for(hint: Any) -> Any:
    """A function with the type as its one parameter, which is what schemas are made of."""

    def ask(value: Any) -> None:
        """Never called."""

    ask.__annotations__ = {FIELD: hint}
    # Refusals begin with it.
    ask.__module__, ask.__qualname__ = "", "The form"
    return ask


def _has_fields(hint: Any) -> bool:
    if is_typeddict(hint) or dataclasses.is_dataclass(hint):
        return True
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _described(hint: Any, shape: Schema) -> Schema:
    """Members with the plain strings of their annotations, as a function's parameters have them."""
    try:
        hints = get_type_hints(hint, include_extras=True)
    except NameError:
        # pydantic knows where else to look; what it found has been built already.
        return shape
    fields = getattr(hint, "model_fields", {})
    properties = dict(shape.get("properties", {}))
    for name, annotation in hints.items():
        words = [one for one in _metadata(annotation) if isinstance(one, str)]
        alias = getattr(fields.get(name), "validation_alias", None)
        key = alias if isinstance(alias, str) else name
        if words and key in properties:
            properties[key] = {"description": " ".join(words), **properties[key]}
    return {**shape, "properties": properties}


def _metadata(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in {NotRequired, Required}:
        (annotation,) = get_args(annotation)
    return getattr(annotation, "__metadata__", ())


def _titled(field: Any, member: Schema) -> Schema:
    """Choices with the labels of the form, which a person reads rather than the values."""
    if not isinstance(field, ChoiceField) or isinstance(field, ModelChoiceField):
        return member
    is_multiple = isinstance(field, MultipleChoiceField)
    values = (member.get("items", {}) if is_multiple else member).get("enum", ())
    if not values or not all(isinstance(value, str) for value in values):
        # Computed, maybe from the database, when the answer comes; or refused in a moment.
        return member
    choices: Any = field.choices
    pairs: Iterable[tuple[Any, Any]] = flatten_choices(choices)
    labels = {str(value): str(label) for value, label in pairs}
    titles = [{"const": value, "title": labels.get(value, value)} for value in values]
    if is_multiple:
        return {**member, "items": {"anyOf": titles}}
    kept = {key: value for key, value in member.items() if key not in {"enum", "description"}}
    if field.help_text:
        kept["description"] = str(field.help_text)
    return {**kept, "type": "string", "oneOf": titles}


# Flat schemas -------------------------------------------------------------------------------------

# The subset of JSON Schema that a form shown by a host may have: one level of named members, each
# of them text, a number, a boolean, a choice or several choices (MCP 2026-07-28, "Elicitation",
# requested schema). Hosts validate it strictly, so one keyword too many loses the question. What
# a form leaves out is still checked when the answer comes.

_FORMATS = frozenset({"email", "uri", "date", "date-time"})

# By type, or by the keyword that makes a choice of it.
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "format"}),
    "enum": frozenset({"enum", "enumNames"}),
    "oneOf": frozenset({"oneOf"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"minItems", "maxItems", "items"}),
}
_ALWAYS = frozenset({"type", "title", "description", "default"})
_DEFAULTS: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
}


class NotFlatError(ValueError):
    """A member that no form can show."""


def flat_form(schema: Schema) -> Schema:
    """Return the form for a schema of an object, with what no host knows left out.

    Raises:
        NotFlatError: a member is no text, number, yes or no, or choice, or asks for a secret.
    """
    given = schema.get("properties", {})
    if schema.get("type") != "object" or schema.get("additionalProperties", False) is not False:
        raise NotFlatError("a form has named fields and no others")
    properties = {name: _field(name, member) for name, member in given.items()}
    may_be_null = {name for name, member in given.items() if _without_null(member) != member}
    required = [n for n in schema.get("required", ()) if n in properties and n not in may_be_null]
    form: Schema = {"type": "object", "properties": properties}
    return {**form, "required": required} if required else form


def check_flat(schema: Schema) -> None:
    """Refuse a schema written by hand that is not in the subset already.

    Raises:
        NotFlatError: naming the member and the keyword.
    """
    properties = flat_form(schema)["properties"]
    if "properties" not in schema:
        raise NotFlatError("a form has properties; write {} for none")
    for name, member in schema["properties"].items():
        _check_keywords({*member} - {*properties[name]}, f"{name}: ")
        for keyword, meant in properties[name].items():
            if keyword not in member or member[keyword] != meant:
                raise NotFlatError(f'{name}: write "{keyword}": {quote(meant)}')
    for name in schema.get("required", ()):
        if name not in properties:
            raise NotFlatError(f"{name} is required and has no field")
    _check_keywords({*schema} - {"$schema", "type", "properties", "required"}, "")


def _check_keywords(odd: Iterable[str], place: str) -> None:
    if odd:
        names = ", ".join(sorted(odd))
        raise NotFlatError(f"{place}{names} means nothing in a form; leave it out")


def _field(name: str, member: Any) -> Schema:
    member = _typed(_without_null(member)) if isinstance(member, dict) else {}
    if asks_for_secret(name, member):
        raise NotFlatError(
            f"{name} looks like a secret, which must not pass through the client; send the user "
            "to a page of yours with elicit_url"
        )
    chosen = next((keyword for keyword in ("enum", "oneOf") if keyword in member), "")
    if chosen and not _is_choice(member):
        raise NotFlatError(
            f"{name} is a choice, and what is chosen is text, each with a title where one has a "
            "title"
        )
    kind = str(member.get("type"))
    if kind not in _DEFAULTS or "contentEncoding" in member:
        raise NotFlatError(
            f"{name} is no text, number, yes or no, date, choice or list of choices; a form is flat"
        )
    keywords = _ALWAYS | _KEYWORDS[chosen or kind]
    kept = {key: value for key, value in member.items() if key in keywords}
    if kept.get("format") not in _FORMATS:
        kept.pop("format", None)
    if not _is_default(kept.get("default"), kind):
        kept.pop("default", None)
    if kind == "array":
        kept["items"] = _items(name, member.get("items"))
    return _bounded(kept, member) if kind == "integer" else kept


def _without_null(member: Any) -> Any:
    """The one alternative that is left when a form leaves the field empty instead."""
    alternatives = member.get("anyOf", ()) if isinstance(member, dict) else ()
    others = [one for one in alternatives if not _is_null(one)]
    if len(others) != 1 or len(others) == len(alternatives) or not isinstance(others[0], dict):
        return member
    around = {key: value for key, value in member.items() if key != "anyOf"}
    return {**others[0], **around}


def _is_null(alternative: Any) -> bool:
    return isinstance(alternative, dict) and alternative.get("type") == "null"


def _typed(member: Schema) -> Schema:
    """Choices in the one way to write them, with the type that hosts want beside them."""
    if "const" in member:
        member = {**{k: v for k, v in member.items() if k != "const"}, "enum": [member["const"]]}
    return {**member, "type": "string"} if _is_choice(member) else member


def _is_choice(member: Schema) -> bool:
    values = member.get("enum")
    if values is not None:
        return bool(values) and all(isinstance(value, str) for value in values)
    return _are_titled(member.get("oneOf"))


def _are_titled(options: Any) -> bool:
    """Whether these are the choices of a form that have words for what they stand for."""
    return bool(options) and all(
        isinstance(one, dict) and isinstance(one.get("const"), str) and "title" in one
        for one in options
    )


def _items(name: str, items: Any) -> Schema:
    choices = _typed(items) if isinstance(items, dict) else {}
    titled = choices.get("anyOf", choices.get("oneOf"))
    if _are_titled(titled):
        return {"anyOf": titled}
    if "enum" in choices and _is_choice(choices):
        return {"type": "string", "enum": choices["enum"]}
    raise NotFlatError(f"{name} is a list of something else than choices of text")


def _is_default(value: Any, kind: str) -> bool:
    # To Python yes and no are integers.
    return isinstance(value, _DEFAULTS[kind]) and (kind == "boolean") == isinstance(value, bool)


def _bounded(kept: Schema, member: Schema) -> Schema:
    """A whole number has its exclusive bounds said inclusively; others are checked as answers."""
    bounds = dict(kept)
    if isinstance(low := member.get("exclusiveMinimum"), int | float):
        bounds["minimum"] = max(math.floor(low) + 1, kept.get("minimum", -math.inf))
    if isinstance(high := member.get("exclusiveMaximum"), int | float):
        bounds["maximum"] = min(math.ceil(high) - 1, kept.get("maximum", math.inf))
    return bounds
