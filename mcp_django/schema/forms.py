"""Arguments declared by a Django form, and validated by it.

The function receives the bound, valid form as `form`: `form.cleaned_data` to read, `form.save()`
for a model form. What the form leaves out of HTML it leaves out here: disabled fields have no
argument, and an argument left out takes the field's initial value.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ImproperlyConfigured

from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    MISSING,
    InvalidArguments,
    Problem,
)
from mcp_django.schema.decoding import decode_arguments, drop_nulls, unknown_members
from mcp_django.schema.fields import described, with_default
from mcp_django.schema.form_fields import field_schema, form_value
from mcp_django.schema.portable import portable_input
from mcp_django.schema.structure import Schema
from mcp_django.schema.wording import wrong_kind

FormClass = type[forms.BaseForm]


class FormArguments:
    """Reads arguments through a form class, which may be a model form.

    With ``is_made_elsewhere`` a view makes the form, and may do so from more than data.
    ``without`` names fields that no argument fills.
    """

    def __init__(
        self,
        form_class: FormClass,
        *,
        is_made_elsewhere: bool = False,
        without: Collection[str] = (),
    ) -> None:
        if not is_made_elsewhere:
            _check_constructor(form_class)
        self._form_class = form_class
        fields: dict[str, forms.Field] = form_class.base_fields  # type: ignore[attr-defined]
        self._fields = {
            name: field
            for name, field in fields.items()
            if not field.disabled and name not in without
        }
        self._shape = _form_schema(form_class, self._fields)
        self.json_schema = portable_input(self._shape)

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the valid form under the name `form`; may query the database.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        arguments = self.check(decode_arguments(raw))
        form = self._form_class(data=self.data(arguments, prefix=self._form_class.prefix))
        if not form.is_valid():
            raise InvalidArguments(self.problems(form, arguments))
        return {"form": form}

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of those kinds that the schema names; the form is not asked.

        Raises:
            InvalidArguments: a name or a kind is wrong.
        """
        known: dict[str, Any] = drop_nulls(arguments, self._shape, self._shape)
        if problems := [
            *islice(unknown_members(known, self._shape), MAX_KEPT_PROBLEMS),
            *self._wrong_kinds(known),
        ]:
            raise InvalidArguments(problems)
        return known

    def _wrong_kinds(self, arguments: dict[str, Any]) -> Iterator[Problem]:
        for name, value in arguments.items():
            rule = wrong_kind(value, self.json_schema["properties"].get(name, {}))
            if rule is not None:
                yield Problem(path=name, value=value, message=rule)

    def data(self, arguments: dict[str, Any], *, prefix: str | None = None) -> dict[str, Any]:
        """Return what the form's widgets would send, by the names of its inputs."""
        data: dict[str, Any] = {}
        for name, field in self._fields.items():
            value = form_value(field, arguments[name]) if name in arguments else _initial(field)
            key = f"{prefix}-{name}" if prefix else name
            if value is not None:
                data |= widget_entries(field.widget, key, value)
        return data

    def problems(self, form: forms.BaseForm, arguments: dict[str, Any]) -> Iterator[Problem]:
        """What the form found wrong, in terms of the arguments."""
        for name, errors in form.errors.get_json_data().items():
            schema = self._shape["properties"].get(name, {})
            is_shown = name in arguments and not schema.get("writeOnly")
            for error in errors:
                yield Problem(
                    path="" if name == NON_FIELD_ERRORS else name,
                    value=arguments[name] if is_shown else MISSING,
                    message=_rule(error),
                )


def _check_constructor(form_class: FormClass) -> None:
    try:
        inspect.signature(form_class).bind(data={})
    except TypeError as exc:
        raise ImproperlyConfigured(
            f"{form_class.__qualname__} cannot be made from data alone ({exc}). Give its other "
            "parameters defaults, or write a function that makes the form itself."
        ) from exc


def _form_schema(form_class: FormClass, fields: dict[str, forms.Field]) -> Schema:
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for name, field in fields.items():
        try:
            schema = field_schema(field)
        except ImproperlyConfigured as exc:
            raise ImproperlyConfigured(f"{form_class.__qualname__}.{name}: {exc}") from exc
        if field.initial is None:
            required += [name] if field.required else []
        elif not callable(field.initial):
            schema = with_default(schema, field.prepare_value(field.initial))
        if isinstance(field.widget, forms.PasswordInput):
            schema = {**schema, "writeOnly": True}
        properties[name] = described(schema, name, label=field.label, help_text=field.help_text)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def widget_entries(widget: forms.Widget, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(widget, forms.MultiWidget):
        return {key: value}
    # What could not be read stays text, and goes where the form will say so.
    suffixes: list[str] = widget.widgets_names  # type: ignore[attr-defined]
    parts = [value] * len(suffixes) if isinstance(value, str) else widget.decompress(value) or []
    return {f"{key}{suffix}": part for suffix, part in zip(suffixes, parts, strict=True)}


def _initial(field: forms.Field) -> Any:
    initial = field.initial() if callable(field.initial) else field.initial
    return field.prepare_value(initial)


def _rule(error: dict[str, str]) -> str:
    return "is required" if error["code"] == "required" else error["message"].rstrip(".")
