"""Elicitation forms: the schema that a host shows to the user, and the parser of the answer.

A form is declared by a dataclass, a ``TypedDict``, a pydantic model, a Django form, a single type
(one field, whose value alone is the answer), a hand-written schema, or ``None`` for an elicitation
that the user only accepts.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from keyword import iskeyword
from typing import Any, NotRequired, Protocol, Required, get_args, get_origin

from django.core.exceptions import ImproperlyConfigured
from django.forms import BaseForm, ChoiceField, ModelChoiceField, MultipleChoiceField
from django.utils.choices import flatten_choices
from django.utils.translation import get_language
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import get_type_hints, is_typeddict

from mcp_django.schema.arguments import InvalidArguments, to_json_text
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.django_forms import FormArguments
from mcp_django.schema.secrets import asks_for_secret
from mcp_django.schema.signature import SignatureArguments, format_hint
from mcp_django.schema.structure import Schema, number_bounds, without_null
from mcp_django.schema.vocabulary import DIGITS

logger = logging.getLogger("mcp_django")

# Types are usually created once; the limit protects the memory if a tool creates one per call.
MAX_CACHED_FORMS = 256
FIELD = "value"


class ElicitationForm(Protocol):
    """The schema and the parser of an elicitation form."""

    json_schema: Schema
    """The requested schema that the host shows."""
    uses_database: bool
    """Whether parsing an answer may query the database."""

    def parse_answer(self, content: Mapping[str, Any]) -> Any:
        """Return the value of an answer; members without a field are ignored.

        Raises:
            InvalidArguments: the answer is not valid; the user must correct it.
        """
        ...


def build_elicitation_form(declared: Any) -> ElicitationForm:
    """Return the form for a declaration.

    Raises:
        ImproperlyConfigured: hosts cannot show the form, or it asks for a secret.
    """
    if declared is None:
        return _NO_FIELDS
    if isinstance(declared, Mapping):
        return _warn_about_names(_HandwrittenForm(declared), "written by hand")
    try:
        # Python ignores the order of choices when it compares types, so the key includes the
        # source text of the type. Labels depend on the language.
        return _build_form_cached(declared, format_hint(declared), get_language())
    except TypeError:
        # The annotation contains an unhashable value.
        return _build_form(declared)


def _build_form(declared: Any, *_key: Any) -> ElicitationForm:
    try:
        is_django_form = isinstance(declared, type) and issubclass(declared, BaseForm)
        form = _DjangoForm(declared) if is_django_form else _TypedForm(declared)
    except NotFlatError as exc:
        raise ImproperlyConfigured(
            f"{format_hint(declared)} cannot be used as a form: {exc}."
        ) from exc
    return _warn_about_names(form, format_hint(declared))


# Names that FastMCP's client does not change when it builds a Python class from the form.
_CLIENT_NAME = re.compile(r"(?!\w*__)[A-Za-z_]\w*", re.ASCII)


def _warn_about_names(form: ElicitationForm, what: str) -> ElicitationForm:
    """Return the form; log a warning, once per process, for each name that clients change."""
    for name in form.json_schema["properties"]:
        if iskeyword(name) or not _CLIENT_NAME.fullmatch(name):
            _log_name(name, what)
    return form


@lru_cache(MAX_CACHED_FORMS)
def _log_name(name: str, what: str) -> None:
    """Log a warning about the name of a field; the cache keeps it from being repeated."""
    better = re.sub(r"[\W_]+", "_", name, flags=re.ASCII).strip("_")
    better = f"field_{better}" if not better or better[0].isdigit() else better
    logger.warning(
        "The elicitation form %s has the field %r. Some clients, FastMCP's among them, make a "
        "Python class of the form and send the answer under another name, so that it is lost or "
        "rejected. Name the field %r, and write what the user sees into its title.",
        what,
        name,
        f"{better}_" if iskeyword(better) else better,
    )


_build_form_cached = lru_cache(MAX_CACHED_FORMS)(_build_form)


class _Form:
    """Base class of the forms."""

    uses_database = False
    json_schema: Schema
    # Optional fields that count as left out if their text is empty.
    _left_out_if_empty: frozenset[str] = frozenset()

    def _known_members(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members of an answer that have a field, without those that were left out.

        Clients write a field that their user left empty as a missing member, null or empty text.
        """
        properties = self.json_schema.get("properties", {})
        required = self.json_schema.get("required", ())
        return {
            name: value
            for name, value in content.items()
            if name in properties
            and not (value is None and name not in required)
            and not (value == "" and name in self._left_out_if_empty)
        }

    def _publish(self, form: Schema) -> None:
        """Set the published schema, with an empty text as the default of optional text fields.

        FastMCP 3's client writes null for a field that has neither a value nor a default, and its
        own check of the answer then rejects the null.
        """
        required = form.get("required", ())
        empty = {
            name: member
            for name, member in form["properties"].items()
            if name not in required
            and member["type"] == "string"
            and "default" not in member
            and "" not in member.get("enum", ())
            and all(choice["const"] for choice in member.get("oneOf", ()))
        }
        # Hosts may reject an empty text as the default of a field with one of these keywords.
        rules = {"enum", "oneOf", "format", "minLength"}
        texts = {
            name: {**member, "default": ""}
            for name, member in empty.items()
            if rules.isdisjoint(member)
        }
        self._left_out_if_empty = frozenset(empty)
        self.json_schema = {**form, "properties": {**form["properties"], **texts}}


class _NoFields(_Form):
    """A form without fields, which the user only accepts or declines."""

    def __init__(self) -> None:
        self.json_schema = {"type": "object", "properties": {}}

    def parse_answer(self, content: Mapping[str, Any]) -> None:
        """Return `None`, because an accepted form without fields has no value."""


_NO_FIELDS = _NoFields()


class _TypedForm(_Form):
    """A form declared by a Python type."""

    def __init__(self, hint: Any) -> None:
        self._is_single = not (
            is_typeddict(hint)
            or dataclasses.is_dataclass(hint)
            or (isinstance(hint, type) and issubclass(hint, BaseModel))
        )

        def ask(value: Any) -> None:
            """Do nothing; only ``SignatureArguments`` reads this function."""

        ask.__annotations__ = {FIELD: hint}
        # Error messages start with this name.
        ask.__module__, ask.__qualname__ = "", "The form"
        self._arguments = SignatureArguments(ask)
        schema = self._arguments.json_schema
        shape = schema if self._is_single else _add_labels(hint, schema["properties"][FIELD])
        self._publish(flat_form(shape))
        # Required members that may be null: in a form, an empty field means `None`.
        self._null_members = {
            name: None
            for name in shape.get("required", ())
            if name not in self.json_schema.get("required", ())
        }

    def parse_answer(self, content: Mapping[str, Any]) -> Any:
        """Return an instance of the type."""
        filled = {**self._null_members, **self._known_members(content)}
        raw = json.dumps(filled if self._is_single else {FIELD: filled}).encode()
        try:
            return self._arguments.parse(raw)[FIELD]
        except InvalidArguments as exc:
            if self._is_single:
                raise InvalidArguments(exc.problems) from None
            # The user sees the names of the fields, without that of the parameter.
            raise InvalidArguments(
                dataclasses.replace(problem, path=problem.path.removeprefix(FIELD).lstrip("."))
                for problem in exc.problems
            ) from None


class _DjangoForm(_Form):
    """A form declared by a Django form; the answer becomes the bound, valid form."""

    uses_database = True

    def __init__(self, form_class: type[BaseForm]) -> None:
        self._arguments = FormArguments(form_class)
        schema = self._arguments.json_schema
        titled = {
            name: _add_titles(form_class.base_fields[name], member)  # type: ignore[attr-defined]
            for name, member in schema["properties"].items()
        }
        self._publish(flat_form({**schema, "properties": titled}))

    def parse_answer(self, content: Mapping[str, Any]) -> BaseForm:
        """Return the bound, valid form."""
        raw = json.dumps(self._known_members(content)).encode()
        form: BaseForm = self._arguments.parse(raw)["form"]
        return form


class _HandwrittenForm(_Form):
    """A form declared by a hand-written schema, which the host receives unchanged."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._compiled = CompiledSchema(schema, what="The form's schema")
        self.json_schema = self._compiled.schema
        try:
            check_flat(self.json_schema)
        except NotFlatError as exc:
            raise ImproperlyConfigured(f"The form's schema is not valid: {exc}.") from exc

    def parse_answer(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer unchanged, without members that have no field."""
        answer = self._known_members(content)
        if problems := self._compiled.find_problems(answer):
            raise InvalidArguments(problems)
        return answer


def _add_labels(hint: Any, shape: Schema) -> Schema:
    """Return the schema with the titles of pydantic's `Field`, and with descriptions.

    Plain strings in `Annotated` are descriptions of the members. Schemas of tools have no titles,
    because a model does not need them; a form shows its titles to the user.
    """
    try:
        hints = get_type_hints(hint, include_extras=True)
    except NameError:
        # pydantic resolves names in more places and has already built the schema.
        return shape
    fields = getattr(hint, "model_fields", {})
    properties = dict(shape.get("properties", {}))
    for name, annotation in hints.items():
        metadata = (*_metadata(annotation), fields.get(name))
        words = [value for value in metadata if isinstance(value, str)]
        titles = [
            field_info.title
            for field_info in metadata
            if isinstance(field_info, FieldInfo) and field_info.title
        ]
        alias = getattr(fields.get(name), "validation_alias", None)
        key = alias if isinstance(alias, str) else name
        if key in properties:
            title = {"title": titles[0]} if titles else {}
            description = {"description": " ".join(words)} if words else {}
            properties[key] = {**title, **description, **properties[key]}
    return {**shape, "properties": properties}


def _metadata(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in {NotRequired, Required}:
        (annotation,) = get_args(annotation)
    return getattr(annotation, "__metadata__", ())


def _add_titles(field: Any, member: Schema) -> Schema:
    """Return the schema of a choice field with the labels of the form as titles."""
    if not isinstance(field, ChoiceField) or isinstance(field, ModelChoiceField):
        return member
    is_multiple = isinstance(field, MultipleChoiceField)
    values = (member.get("items", {}) if is_multiple else member).get("enum", ())
    if not values or not all(isinstance(value, str) for value in values):
        # The choices are computed when the answer is parsed, or `flat_form` will reject the field.
        return member
    choices: Any = field.choices
    pairs: Iterable[tuple[Any, Any]] = flatten_choices(choices)
    labels = {str(value): str(label) for value, label in pairs}
    titles = [{"const": value, "title": labels.get(value, value)} for value in values]
    if is_multiple:
        return {**member, "items": {"anyOf": titles}}
    keywords = {key: value for key, value in member.items() if key not in {"enum", "description"}}
    if field.help_text:
        keywords["description"] = str(field.help_text)
    return {**keywords, "type": "string", "oneOf": titles}


# Flat schemas -------------------------------------------------------------------------------------

# The subset of JSON Schema that elicitation allows: one level of named members, each of them text,
# a number, a boolean, a choice or several choices (MCP 2026-07-28, "Elicitation", requested
# schema). Hosts validate it strictly and reject a form with any other keyword. Rules that the form
# omits are still checked when the answer is parsed.

_FORMATS = frozenset({"email", "uri", "date", "date-time"})

# Allowed keywords by type, or by the keyword that makes the field a choice.
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
    """A schema that an elicitation form cannot show."""


def flat_form(schema: Schema) -> Schema:
    """Return the form for the schema of an object, without keywords that forms do not allow.

    Raises:
        NotFlatError: a member is not text, a number, a boolean or a choice, or asks for a secret.
    """
    members = schema.get("properties", {})
    if schema.get("type") != "object" or schema.get("additionalProperties", False) is not False:
        raise NotFlatError("a form must be an object with named fields and no others")
    # In a form, an empty field means null.
    properties = {name: _form_field(name, member) for name, member in members.items()}
    may_be_null = {name for name, member in members.items() if without_null(member) != member}
    required = [n for n in schema.get("required", ()) if n in properties and n not in may_be_null]
    form: Schema = {"type": "object", "properties": properties}
    return {**form, "required": required} if required else form


def check_flat(schema: Schema) -> None:
    """Reject a hand-written schema that is not in the subset.

    Raises:
        NotFlatError: the message names the member and the keyword.
    """
    properties = flat_form(schema)["properties"]
    if "properties" not in schema:
        raise NotFlatError('a form must have "properties"; write {} for none')
    for name, member in schema["properties"].items():
        _check_keywords({*member} - {*properties[name]}, f"{name}: ")
        for keyword, meant in properties[name].items():
            if keyword not in member or member[keyword] != meant:
                raise NotFlatError(f'{name}: write "{keyword}": {to_json_text(meant)}')
    for name in schema.get("required", ()):
        if name not in properties:
            raise NotFlatError(f"{name} is required, but has no field")
    _check_keywords({*schema} - {"$schema", "type", "properties", "required"}, "")


def _check_keywords(odd: Iterable[str], place: str) -> None:
    if odd:
        names = ", ".join(sorted(odd))
        raise NotFlatError(f"{place}{names} is not allowed in a form; remove it")


def _form_field(name: str, member: Any) -> Schema:
    member = without_null(_without_digits(member)) if isinstance(member, dict) else {}
    member = _normalize_choices(member)
    if asks_for_secret(name, member):
        raise NotFlatError(
            f"{name} looks like a secret, which must not pass through the client; send the user "
            "to a page of your site with elicit_url"
        )
    choice_keyword = next((keyword for keyword in ("enum", "oneOf") if keyword in member), "")
    if choice_keyword and not _is_choice(member):
        raise NotFlatError(
            f"{name} is a choice whose values are not all text, or only some of them have a title"
        )
    kind = str(member.get("type"))
    if kind not in _DEFAULTS or "contentEncoding" in member:
        raise NotFlatError(
            f"{name} is not text, a number, a boolean, a date, a choice or a list of choices; "
            "forms cannot be nested"
        )
    keywords = _ALWAYS | _KEYWORDS[choice_keyword or kind]
    form_field = {key: value for key, value in member.items() if key in keywords}
    if form_field.get("format") not in _FORMATS:
        form_field.pop("format", None)
    default = form_field.get("default")
    # In Python, booleans are integers.
    if not isinstance(default, _DEFAULTS[kind]) or (kind == "boolean") != isinstance(default, bool):
        form_field.pop("default", None)
    if kind == "array":
        items = member.get("items")
        choices = _normalize_choices(items) if isinstance(items, dict) else {}
        titled = choices.get("anyOf", choices.get("oneOf"))
        if _are_titled_choices(titled):
            form_field["items"] = {"anyOf": titled}
        elif "enum" in choices and _is_choice(choices):
            form_field["items"] = {"type": "string", "enum": choices["enum"]}
        else:
            raise NotFlatError(f"{name} is a list, but not of choices of text")
    return _inclusive_bounds(form_field, member) if kind == "integer" else form_field


def _without_digits(member: Schema) -> Schema:
    """Return the schema of an integer without the alternative `DIGITS`, which forms cannot show."""
    members = member.get("anyOf", ())
    if DIGITS not in members:
        return member
    others = [alternative for alternative in members if alternative != DIGITS]
    notes = {key: value for key, value in member.items() if key != "anyOf"}
    return {**others[0], **notes} if len(others) == 1 else {**notes, "anyOf": others}


def _normalize_choices(member: Schema) -> Schema:
    """Return the schema with `const` as an `enum`, and with the type that hosts require."""
    if "const" in member:
        member = {**{k: v for k, v in member.items() if k != "const"}, "enum": [member["const"]]}
    return {**member, "type": "string"} if _is_choice(member) else member


def _is_choice(member: Schema) -> bool:
    values = member.get("enum")
    if values is not None:
        return bool(values) and all(isinstance(value, str) for value in values)
    return _are_titled_choices(member.get("oneOf"))


def _are_titled_choices(options: Any) -> bool:
    """Return whether these are choices with titles."""
    return bool(options) and all(
        isinstance(option, dict) and isinstance(option.get("const"), str) and "title" in option
        for option in options
    )


def _inclusive_bounds(form_field: Schema, member: Schema) -> Schema:
    """Return the schema of an integer with exclusive bounds converted to inclusive ones."""
    low, high = number_bounds(member)
    bounds = {"minimum": low, "maximum": high}
    return {**form_field, **{name: bound for name, bound in bounds.items() if math.isfinite(bound)}}
