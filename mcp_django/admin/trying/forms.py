"""``SchemaForm``: a form for the members of an object, made from its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.boundfield import BoundField
from django.forms.utils import ErrorDict
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.trying.controls import LEFT_OUT, Control, read_controls
from mcp_django.admin.trying.inputs import chosen_value, options_of
from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.form_fields import Shape, shape_of, title_of
from mcp_django.schema.structure import Schema

SUGGESTED = ":suggested"
# Django itself refuses a page with more fields than that many.
MAX_CONTROLS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A control as the template shows it: its field, or the rows of its members."""

    control: Control
    field: BoundField | None = None
    empty: BoundField | None = None
    rows: tuple[Row, ...] = ()
    has_completion: bool = False
    suggestions: BoundField | None = None


class SchemaForm(forms.Form):
    """A form whose ``values`` are those of an object of this schema.

    ``given`` are values to begin with; ``leave`` names members that are none of the form's
    affair; ``is_prefilled`` puts defaults into the fields. ``is_whole`` takes the object as JSON
    altogether; one that ``is_unfinished`` is shown again without complaints. ``completed`` names
    members that suggestions can be had for, and ``suggestions`` those that were found.
    """

    def __init__(
        self,
        schema: Schema,
        data: QueryDict | None = None,
        files: Any = None,
        *,
        name: str = "arg",
        given: Mapping[str, Any] | None = None,
        leave: Sequence[str] = (),
        is_prefilled: bool = False,
        is_whole: bool = False,
        is_unfinished: bool = False,
        completed: Sequence[str] = (),
        suggestions: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(None if data is None else folded(data), files, **kwargs)
        self._completed = frozenset(completed)
        self.is_unfinished = is_unfinished
        self._suggestions = dict(suggestions or {})
        self.values: dict[str, Any] = {}
        self.controls = controls_of(schema, prefix=name, leave=leave)
        self.is_whole = is_whole or not _has_controls(schema, self.controls)
        if self.is_whole:
            shape = Shape(kind="whole", schema=schema)
            self.controls = [Control("arguments", shape, is_required=True, prefix=f"{name}-json")]
            given = {"arguments": dict(given or {})}
        for control in self.controls:
            self.fields.update(control.fields())
            if control.name in self._suggestions:
                self.fields[self._suggestion_key(control)] = forms.ChoiceField(
                    required=False,
                    label=_("Suggestions for %(name)s") % {"name": control.label},
                    choices=[
                        ("", _("as typed")),
                        *((v, v) for v in self._suggestions[control.name]),
                    ],
                    widget=forms.RadioSelect,
                )
            self.initial.update(control.initial(self._start(control, given, is_prefilled)))

    def _start(
        self,
        control: Control,
        given: Mapping[str, Any] | None,
        is_prefilled: bool,  # noqa: FBT001
    ) -> Any:
        if given is not None:
            return given.get(control.name, LEFT_OUT)
        return control.shape.schema.get("default", LEFT_OUT) if is_prefilled else LEFT_OUT

    def _suggestion_key(self, control: Control) -> str:
        return f"{control.key}{SUGGESTED}"

    def full_clean(self) -> None:
        """Check what was entered, unless the form is not finished and is only shown again."""
        if not self.is_unfinished:
            super().full_clean()
            return
        self._errors = ErrorDict()
        self.cleaned_data: dict[str, Any] = {}

    def clean(self) -> dict[str, Any]:
        """Read the values; what is missing is said beside its field."""
        cleaned = dict(self.cleaned_data)
        found, problems = read_controls(self.controls, cleaned)
        for key, errors in problems.items():
            if key not in self.errors:
                self.add_error(key, errors)
        if self.is_whole and "arguments" in found and not isinstance(found["arguments"], dict):
            self.add_error(self.controls[0].key, _("Enter a JSON object."))
        elif not self.errors:
            self.values = found["arguments"] if self.is_whole else found
            self._check_sendable()
        return cleaned

    def _check_sendable(self) -> None:
        try:
            encode(self.values)
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise ValidationError(_("These arguments cannot be written as JSON.")) from None

    def typed_text(self, name: str) -> str:
        """What stands in the field of a member now, read or not."""
        control = next((one for one in self.controls if one.name == name), None)
        entered = str(self.data.get(control.key, "")) if control is not None else ""
        if control is None or not control.is_choice:
            return entered
        known = {option for option, _title in options_of(control.shape)}
        return title_of(chosen_value(control.shape, entered)) if entered in known else ""

    def rows(self) -> Iterator[Row]:
        """What the template shows, in the order of the schema."""
        for control in self.controls:
            yield self._row(control)

    def _row(self, control: Control) -> Row:
        key = self._suggestion_key(control)
        return Row(
            control=control,
            field=self[control.key] if control.key in self.fields else None,
            empty=self[control.empty_key] if control.empty_key in self.fields else None,
            rows=tuple(self._row(member) for member in control.members),
            has_completion=control.name in self._completed,
            suggestions=self[key] if key in self.fields else None,
        )


def folded(data: QueryDict) -> QueryDict:
    """What was entered, with the suggestions that were taken in the fields that they are for."""
    entered = data.copy()
    for key in data:
        if key.endswith(SUGGESTED):
            if taken := str(data[key]):
                entered[key.removesuffix(SUGGESTED)] = taken
            del entered[key]
    return entered


def controls_of(schema: Schema, *, prefix: str, leave: Sequence[str] = ()) -> list[Control]:
    """The controls for the members of an object, in its order."""
    properties = schema.get("properties")
    required = schema.get("required", ())
    return [
        Control(name, shape_of(member, schema), is_required=name in required, prefix=prefix)
        for name, member in (properties if isinstance(properties, dict) else {}).items()
        if name not in leave
    ]


def _has_controls(schema: Schema, controls: list[Control]) -> bool:
    """Whether the members are all that can be sent, and not too many."""
    if any(schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf", "$ref")):
        return False
    others = schema.get("additionalProperties", "properties" not in schema)
    is_open = others is not False and not schema.get("properties")
    return not is_open and sum(1 + len(one.members) for one in controls) <= MAX_CONTROLS
