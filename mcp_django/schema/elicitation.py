"""The form that a question shows to a user, and the value that his answer becomes.

A form is declared by what one would declare anyway: a dataclass, a ``TypedDict``, a pydantic model,
a Django form, a single type (one field, handed over without its wrapping), a schema written by
hand, or nothing at all for a question that only wants to be accepted.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NotRequired, Protocol, Required, get_args, get_origin

from django.core.exceptions import ImproperlyConfigured
from django.forms import BaseForm, ChoiceField, ModelChoiceField, MultipleChoiceField
from django.utils.choices import flatten_choices
from django.utils.translation import get_language
from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

from mcp_django.schema.annotations import SignatureArguments
from mcp_django.schema.arguments import InvalidArguments, Problem
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.flat import NotFlatError, check_flat, flat_form
from mcp_django.schema.forms import FormArguments
from mcp_django.schema.signature import shown
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
        return NO_FIELDS
    if isinstance(declared, Mapping):
        return HandwrittenForm(declared)
    try:
        # To Python choices are equal whatever their order; labels are in the reader's language.
        return _remembered(declared, shown(declared), get_language())
    except TypeError:
        # Annotated with something that has no hash.
        return _form(declared)


def _form(declared: Any, *_key: Any) -> ElicitationForm:
    try:
        if isinstance(declared, type) and issubclass(declared, BaseForm):
            return DjangoForm(declared)
        return TypedForm(declared)
    except NotFlatError as exc:
        raise ImproperlyConfigured(f"No form can be made of {shown(declared)}: {exc}.") from exc


_remembered = lru_cache(REMEMBERED_FORMS)(_form)


class NoFields:
    """A question that is accepted or not, and says nothing more."""

    uses_database = False

    def __init__(self) -> None:
        self.json_schema: Schema = {"type": "object", "properties": {}}

    def read(self, content: Mapping[str, Any]) -> None:
        """Return nothing: that it was accepted is all there is."""


NO_FIELDS = NoFields()


class TypedForm:
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


class DjangoForm:
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


class HandwrittenForm:
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
