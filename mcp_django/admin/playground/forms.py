"""``SchemaForm``: a Django form for the arguments of a component, built from its JSON Schema.

An omitted argument, ``null`` and an empty string are three different values. Where an empty field
could mean several of them, a second field next to it selects one.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.forms.boundfield import BoundField
from django.forms.utils import ErrorDict
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.form_fields import (
    FieldShape,
    FormField,
    display_text,
    fields_of,
    parse_input,
)
from mcp_django.schema.structure import Schema, number_bounds, number_keyword

LEAVE, NULL, EMPTY = "leave", "null", "empty"
BLANK = object()
"""The value of an empty field; an empty string can be a value that was entered."""
# The prefix of option values, so that a value of the schema never equals one of these words.
OPTION_PREFIX = "="
MAX_FILE_BYTES = 5 * 1024 * 1024
WIDGETS: Mapping[str, tuple[Callable[..., forms.Widget], dict[str, Any]]] = {
    "text": (forms.TextInput, {"class": "vTextField", "autocomplete": "off", "dir": "auto"}),
    "long": (forms.Textarea, {"class": "vLargeTextField mcp-growing", "rows": 1, "dir": "auto"}),
    "secret": (forms.PasswordInput, {"class": "vTextField", "autocomplete": "new-password"}),
}
INPUT_TYPES: Mapping[str, str] = {
    "date": "date",
    "datetime": "datetime-local",
    "time": "time",
    "email": "email",
    "uri": "url",
}


class PlainTextField(forms.CharField):
    """A text field that keeps whitespace and normalizes line endings."""

    def __init__(self, **options: Any) -> None:
        super().__init__(strip=False, required=False, **options)

    def to_python(self, value: Any) -> str:
        """Return the text with LF line endings; browsers submit CRLF."""
        text = super().to_python(value) or ""
        return text.replace("\r\n", "\n").replace("\r", "\n")


class ParsedField(PlainTextField):
    """A text field whose text is parsed."""

    def __init__(self, read: Callable[[str], Any], **options: Any) -> None:
        super().__init__(**options)
        self._read = read

    def clean(self, value: Any) -> Any:
        """Return the parsed value, or ``BLANK`` without text.

        Raises:
            ValidationError: the text cannot be parsed.
        """
        text = super().clean(value)
        return self._read(text) if text.strip() else BLANK


class Base64FileField(forms.FileField):
    """A file field whose value is base64 text."""

    def clean(self, data: Any, initial: Any = None) -> Any:
        """Return the content of the file as base64, or an empty string without a file.

        Raises:
            ValidationError: it is too large.
        """
        uploaded = super().clean(data, initial)
        if not uploaded:
            return ""
        if uploaded.size > MAX_FILE_BYTES:
            raise ValidationError(_("The file is too large to be sent from this page."))
        return base64.b64encode(uploaded.read()).decode()


def _field_for(shape: FieldShape, *, meanings: tuple[str, ...] = ()) -> forms.Field:
    """Return the form field for a shape; ``meanings`` are additional options of a choice."""
    if shape.kind in ("choice", "boolean"):
        return forms.ChoiceField(
            required=False, choices=[*_meaning_options(meanings), *_options_of(shape)]
        )
    if shape.kind == "choices":
        return forms.MultipleChoiceField(
            required=False, choices=_options_of(shape), widget=forms.CheckboxSelectMultiple
        )
    if shape.kind == "file":
        return Base64FileField(required=False, allow_empty_file=True)
    if shape.kind in WIDGETS:
        kind, attrs = WIDGETS[shape.kind]
        widget = kind(attrs={**attrs, **_limits(shape)})
        return PlainTextField(
            widget=widget,
            min_length=_natural(shape, "minLength"),
            max_length=_natural(shape, "maxLength"),
        )
    return ParsedField(partial(parse_input, shape), widget=_widget(shape))


def _options_of(shape: FieldShape) -> list[tuple[str, Any]]:
    """Return the options of a choice, with ``OPTION_PREFIX`` before each value."""
    if shape.kind == "boolean":
        return [(f"{OPTION_PREFIX}true", _("Yes")), (f"{OPTION_PREFIX}false", _("No"))]
    return [(_to_option(value), title) for value, title in shape.choices]


def _to_option(value: Any) -> str:
    """Return a value as the value of an HTML option."""
    return OPTION_PREFIX + (value if isinstance(value, str) else json.dumps(value))


def _from_option(shape: FieldShape, option: str) -> Any:
    """Return the value that an option represents."""
    if shape.kind == "boolean":
        return option == f"{OPTION_PREFIX}true"
    return next(value for value, _title in shape.choices if _to_option(value) == option)


def _meaning_options(meanings: tuple[str, ...]) -> list[tuple[str, Any]]:
    # Without an additional option, browsers would preselect the first value.
    words = {LEAVE: _("(left out)"), NULL: _("(null)")}
    return [(meaning, words[meaning]) for meaning in meanings] or [("", _("(choose)"))]


class _TypedInput(forms.TextInput):
    """An input with an HTML type, such as ``date``."""

    def __init__(self, input_type: str, **attrs: Any) -> None:
        super().__init__(attrs={"class": "mcp-typed", **attrs})
        self.input_type = input_type


def _widget(shape: FieldShape) -> forms.Widget:
    if shape.kind in ("json", "whole"):
        return forms.Textarea(
            {"class": "vLargeTextField mcp-json", "rows": 5, "spellcheck": "false", "dir": "ltr"}
        )
    if shape.kind == "lines":
        return forms.Textarea({"class": "vLargeTextField mcp-growing", "rows": 3, "dir": "auto"})
    if shape.kind in ("integer", "number"):
        return _TypedInput("number", **_number_limits(shape))
    # Browsers leave out seconds without this attribute.
    step = {"step": "1"} if shape.kind in ("datetime", "time") else {}
    return _TypedInput(INPUT_TYPES.get(shape.kind, "text"), **step)


def _limits(shape: FieldShape) -> dict[str, Any]:
    return {
        name.lower(): shape.schema[name]
        for name in ("minLength", "maxLength")
        if _natural(shape, name) is not None
    }


def _natural(shape: FieldShape, keyword: str) -> int | None:
    value = shape.schema.get(keyword)
    return value if isinstance(value, int) and value >= 0 else None


def _number_limits(shape: FieldShape) -> dict[str, Any]:
    low, high = number_bounds(shape.schema)
    step = number_keyword(shape.schema, "multipleOf", 0)
    limits: dict[str, Any] = {"step": step or ("1" if shape.kind == "integer" else "any")}
    if math.isfinite(low):
        limits["min"] = low
    if math.isfinite(high):
        limits["max"] = high
    return limits


def _to_initial(shape: FieldShape, value: Any) -> Any:
    """Return a value as the field for its shape shows it."""
    if shape.kind in ("choice", "boolean"):
        return _to_option(value)
    if shape.kind == "choices" and isinstance(value, list):
        return [_to_option(element) for element in value]
    if shape.kind == "lines" and isinstance(value, list):
        return "\n".join(display_text(element) for element in value)
    if shape.kind in ("json", "whole", "mixed"):
        text = value if shape.kind == "mixed" and isinstance(value, str) else None
        return text or json.dumps(value, ensure_ascii=False, indent=2)
    if shape.kind == "datetime":
        return _local(str(value))
    return "" if shape.kind in ("secret", "file") else display_text(value)


def _local(text: str) -> str:
    try:
        moment: datetime | None = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        return text
    if settings.USE_TZ and timezone.is_aware(moment):
        moment = timezone.make_naive(moment)
    return moment.isoformat(timespec="seconds")


LEFT_OUT = object()
"""The value of an argument that is not sent."""
MEANINGS: Mapping[str, Any] = {LEAVE: _("leave it out"), NULL: _("send null")}
EMPTY_ONES: Mapping[str, Any] = {
    "lines": _("send an empty list"),
    "choices": _("send an empty list"),
    "object": _("send an empty object"),
}
REQUIRED = _("This argument is required.")


@dataclass(frozen=True)
class ArgumentControl(FormField):
    """A property of an object, as one form field or, for a nested object, several."""

    prefix: str

    @property
    def key(self) -> str:
        """The name of its field; a dot separates an object and its property."""
        return f"{self.prefix}.{self.name.replace('~', '~0').replace('.', '~1')}"

    @property
    def empty_key(self) -> str:
        """The name of the field that selects what an empty field means."""
        return f"{self.key}:empty"

    @cached_property
    def members(self) -> list[ArgumentControl]:
        """The controls of the properties of a nested object; empty for other shapes."""
        return _controls(self.shape.members, prefix=self.key)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What an empty field can mean; the first is the default."""
        meanings: tuple[str, ...] = () if self.is_required else (LEAVE,)
        meanings += (NULL,) if self.shape.is_nullable else ()
        if self.shape.is_text or self.shape.kind in EMPTY_ONES:
            meanings += (EMPTY,)
        return meanings

    @property
    def asks_about_empty(self) -> bool:
        """Whether a second field selects the meaning; a choice has the meanings as options."""
        return not self.is_choice and len(self.meanings) > 1

    def fields(self) -> dict[str, forms.Field]:
        """Return the form fields by name."""
        fields: dict[str, forms.Field] = {}
        for member in self.members:
            fields |= member.fields()
        if not self.members:
            field = _field_for(self.shape, meanings=self.meanings)
            field.label = self.label
            field.help_text = self.help_text
            fields[self.key] = field
        if self.asks_about_empty:
            words = {**MEANINGS, EMPTY: EMPTY_ONES.get(self.shape.kind, _("send empty text"))}
            fields[self.empty_key] = forms.ChoiceField(
                required=False,
                label=_("If %(name)s is empty") % {"name": self.label},
                choices=[(meaning, words[meaning]) for meaning in self.meanings],
            )
        return fields

    @property
    def help_text(self) -> str:
        """The description in the schema, and the hint."""
        text, hint = str(self.shape.schema.get("description", "")).strip(), self.hint
        if text and hint and text[-1] not in ".!?:;":
            text += "."
        return f"{text} {hint}".strip()

    @property
    def hint(self) -> str:
        """The constraints of the schema in words."""
        schema, words = self.shape.schema, []
        if self.shape.kind == "lines":
            words.append(gettext("One per line."))
        if self.shape.kind in ("integer", "number"):
            low, high = number_bounds(self.shape.schema)
            words += [gettext("At least %s.") % low] if low > float("-inf") else []
            words += [gettext("At most %s.") % high] if high < float("inf") else []
        elif self.shape.kind == "text" and "format" in schema:
            words.append(gettext("Format: %s.") % schema["format"])
        if "pattern" in schema:
            words.append(gettext("Pattern: %s.") % schema["pattern"])
        if "default" in schema and not self.is_required:
            default = json.dumps(schema["default"], ensure_ascii=False)
            words.append(gettext("If left out: %s.") % default)
        return " ".join(words)

    @property
    def shown_schema(self) -> str:
        """The schema of an argument that is entered as JSON, empty for others."""
        if self.shape.kind not in ("json", "whole"):
            return ""
        return json.dumps(self.shape.schema, ensure_ascii=False, indent=2)

    def read_value(self, cleaned: Mapping[str, Any]) -> Any:
        """Return the value that was entered, or ``LEFT_OUT``.

        Raises:
            ValidationError: it may not be empty; the error has the name of the field.
        """
        if self.members:
            return self._read_members(cleaned)
        value = cleaned.get(self.key)
        if self.is_choice:
            return self._read_choice(str(value or ""))
        if self.key not in cleaned or self._is_blank(value):
            return self._meaning_of_empty(cleaned)
        return self._choice_values(value)

    def _is_blank(self, value: Any) -> bool:
        if self.is_choice:
            return value in ("", LEAVE)
        if value is BLANK:
            return True
        return (self.shape.is_text and value == "") or (self.shape.kind == "choices" and not value)

    def _read_choice(self, option: str) -> Any:
        if option in (LEAVE, NULL):
            return LEFT_OUT if option == LEAVE else None
        if not option and LEAVE in self.meanings:
            return LEFT_OUT
        if not option:
            raise ValidationError({self.key: REQUIRED})
        return _from_option(self.shape, option)

    def _choice_values(self, value: Any) -> Any:
        if self.shape.kind != "choices":
            return value
        return [_from_option(self.shape, option) for option in value]

    def _meaning_of_empty(self, cleaned: Mapping[str, Any]) -> Any:
        """Return the value that an empty field means."""
        if not self.meanings:
            raise ValidationError({self.key: REQUIRED})
        choice = cleaned.get(self.empty_key) if self.asks_about_empty else None
        meaning = choice if choice in self.meanings else self.meanings[0]
        if meaning == EMPTY:
            return {"lines": [], "choices": [], "object": {}}.get(self.shape.kind, "")
        return LEFT_OUT if meaning == LEAVE else None

    def _read_members(self, cleaned: Mapping[str, Any]) -> Any:
        blanks = [
            member.key in cleaned and member._is_blank(cleaned[member.key])
            for member in self.members
        ]
        if all(blanks) and (empty_value := self._meaning_of_empty(cleaned)) != {}:
            return empty_value
        values, problems = _read_controls(self.members, cleaned)
        if problems:
            raise ValidationError(problems)
        return values

    def initial(self, value: Any) -> dict[str, Any]:
        """Return the initial data of the fields for a value, with the meaning of an empty one."""
        if self.members and isinstance(value, dict):
            initial: dict[str, Any] = {} if value else {self.empty_key: EMPTY}
            for member in self.members:
                initial |= member.initial(value.get(member.name, LEFT_OUT))
            return initial
        if value is LEFT_OUT:
            return {}
        if value is None:
            return (
                {self.key: NULL, self.empty_key: NULL} if self.is_choice else {self.empty_key: NULL}
            )
        if value in ("", [], {}) and self.shape.kind not in ("json", "whole"):
            return {self.empty_key: EMPTY}
        return {self.key: _to_initial(self.shape, value)}

    @property
    def is_choice(self) -> bool:
        """Whether it has options, whose values begin with ``OPTION_PREFIX``."""
        return self.shape.kind in ("choice", "boolean")


def _read_controls(
    controls: list[ArgumentControl], cleaned: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of controls by argument name, and the errors by field name."""
    values: dict[str, Any] = {}
    problems: dict[str, Any] = {}
    for control in controls:
        try:
            value = control.read_value(cleaned)
        except ValidationError as exc:
            problems |= exc.error_dict
            continue
        if value is not LEFT_OUT:
            values[control.name] = value
    return values, problems


SUGGESTION_SUFFIX = ":suggested"
# Django rejects requests with more than DATA_UPLOAD_MAX_NUMBER_FIELDS fields, 1000 by default.
MAX_CONTROLS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRow:
    """A control as the template shows it: its field, or the rows of its properties."""

    control: ArgumentControl
    field: BoundField | None = None
    empty: BoundField | None = None
    rows: tuple[FormRow, ...] = ()
    has_completion: bool = False
    suggestions: BoundField | None = None


class SchemaForm(forms.Form):
    """A form whose ``values`` are an object of this schema.

    ``initial_values`` has the initial values by property; ``exclude`` names properties without a
    field; ``is_prefilled`` uses the defaults of the schema as initial values. With ``is_whole`` the
    object is entered as JSON; with ``is_unfinished`` the form is shown again without validation.
    ``completed`` names the properties with completion, and ``suggestions`` has the suggested values
    by property.
    """

    def __init__(
        self,
        schema: Schema,
        data: QueryDict | None = None,
        files: Any = None,
        *,
        name: str = "arg",
        initial_values: Mapping[str, Any] | None = None,
        exclude: Sequence[str] = (),
        is_prefilled: bool = False,
        is_whole: bool = False,
        is_unfinished: bool = False,
        completed: Sequence[str] = (),
        suggestions: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(None if data is None else _apply_suggestions(data), files, **kwargs)
        self._completed = frozenset(completed)
        self.is_unfinished = is_unfinished
        self._suggestions = dict(suggestions or {})
        self.values: dict[str, Any] = {}
        fields = (field for field in fields_of(schema) if field.name not in exclude)
        self.controls = _controls(fields, prefix=name)
        self.is_whole = is_whole or not _fits_controls(schema, self.controls)
        if self.is_whole:
            shape = FieldShape(kind="whole", schema=schema)
            self.controls = [
                ArgumentControl(
                    name="arguments", shape=shape, is_required=True, prefix=f"{name}-json"
                )
            ]
            initial_values = {"arguments": dict(initial_values or {})}
        elif initial_values is None:
            schemas = {
                control.name: control.shape.schema for control in self.controls if is_prefilled
            }
            initial_values = {
                name: property_schema["default"]
                for name, property_schema in schemas.items()
                if "default" in property_schema
            }
        for control in self.controls:
            self.fields.update(control.fields())
            if (texts := self._suggestions.get(control.name)) is not None:
                self.fields[self._suggestion_key(control)] = forms.ChoiceField(
                    required=False,
                    label=_("Suggestions for %(name)s") % {"name": control.label},
                    choices=[("", _("as typed")), *((text, text) for text in texts)],
                    widget=forms.RadioSelect,
                )
            self.initial.update(control.initial(initial_values.get(control.name, LEFT_OUT)))

    def _suggestion_key(self, control: ArgumentControl) -> str:
        return f"{control.key}{SUGGESTION_SUFFIX}"

    def full_clean(self) -> None:
        """Validate the form, unless it is unfinished and only shown again."""
        if not self.is_unfinished:
            super().full_clean()
            return
        self._errors = ErrorDict()
        self.cleaned_data: dict[str, Any] = {}

    def clean(self) -> dict[str, Any]:
        """Read the values, and add errors to their fields."""
        cleaned = dict(self.cleaned_data)
        values, problems = _read_controls(self.controls, cleaned)
        for key, errors in problems.items():
            if key not in self.errors:
                self.add_error(key, errors)
        if self.is_whole and "arguments" in values and not isinstance(values["arguments"], dict):
            self.add_error(self.controls[0].key, _("Enter a JSON object."))
        elif not self.errors:
            self.values = values["arguments"] if self.is_whole else values
            self._check_sendable()
        return cleaned

    def _check_sendable(self) -> None:
        try:
            encode(self.values)
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise ValidationError(_("These arguments cannot be encoded as JSON.")) from None

    def typed_text(self, name: str) -> str:
        """Return the text that was entered for a property, valid or not."""
        control = next((control for control in self.controls if control.name == name), None)
        text = str(self.data.get(control.key, "")) if control is not None else ""
        if control is None or not control.is_choice:
            return text
        options = {option for option, _title in _options_of(control.shape)}
        return display_text(_from_option(control.shape, text)) if text in options else ""

    def rows(self) -> Iterator[FormRow]:
        """Yield the rows for the template, in the order of the schema."""
        for control in self.controls:
            yield self._row(control)

    def _row(self, control: ArgumentControl) -> FormRow:
        key = self._suggestion_key(control)
        return FormRow(
            control=control,
            field=self[control.key] if control.key in self.fields else None,
            empty=self[control.empty_key] if control.empty_key in self.fields else None,
            rows=tuple(self._row(member) for member in control.members),
            has_completion=control.name in self._completed,
            suggestions=self[key] if key in self.fields else None,
        )


def _apply_suggestions(data: QueryDict) -> QueryDict:
    """Return the data with the chosen suggestions moved to their fields."""
    entered = data.copy()
    for key in data:
        if key.endswith(SUGGESTION_SUFFIX):
            if text := str(data[key]):
                entered[key.removesuffix(SUGGESTION_SUFFIX)] = text
            del entered[key]
    return entered


def _controls(fields: Iterable[FormField], *, prefix: str) -> list[ArgumentControl]:
    return [
        ArgumentControl(
            name=field.name, shape=field.shape, is_required=field.is_required, prefix=prefix
        )
        for field in fields
    ]


def _fits_controls(schema: Schema, controls: list[ArgumentControl]) -> bool:
    """Return whether fields can express the whole schema, and are not too many."""
    if any(schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf", "$ref")):
        return False
    others = schema.get("additionalProperties", "properties" not in schema)
    is_open = others is not False and not schema.get("properties")
    return not is_open and sum(1 + len(control.members) for control in controls) <= MAX_CONTROLS
