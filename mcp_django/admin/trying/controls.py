"""``Control``: one argument of a form, with what it means to leave it empty.

An argument that is left out, ``null`` and empty text are three things. Where an empty field could
mean several of them, a second field beside it says which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.trying.inputs import (
    BLANK,
    EMPTY,
    LEAVE,
    NULL,
    chosen_value,
    input_for,
    typed,
)
from mcp_django.schema.form_fields import Shape, bounds

LEFT_OUT = object()
"""Stands for an argument that is not sent."""
MEANINGS: Mapping[str, Any] = {LEAVE: _("leave it out"), NULL: _("send null")}
EMPTY_ONES: Mapping[str, Any] = {
    "lines": _("send an empty list"),
    "choices": _("send an empty list"),
    "object": _("send an empty object"),
}
REQUIRED = _("This argument is required.")


@dataclass(frozen=True)
class Control:
    """A named member of an object, as one field of a form or, for an object, several."""

    name: str
    shape: Shape
    is_required: bool
    prefix: str

    @property
    def key(self) -> str:
        """The name of its field; a dot stands between an object and its member."""
        return f"{self.prefix}.{self.name.replace('~', '~0').replace('.', '~1')}"

    @property
    def empty_key(self) -> str:
        """The name of the field that says what empty means."""
        return f"{self.key}:empty"

    @property
    def label(self) -> str:
        """What it is called."""
        return str(self.shape.schema.get("title") or self.name)

    @cached_property
    def members(self) -> list[Control]:
        """The controls of an object's members; none for anything else."""
        required = self.shape.schema.get("required", ())
        return [
            Control(name, shape, is_required=name in required, prefix=self.key)
            for name, shape in (self.shape.members or {}).items()
        ]

    @property
    def meanings(self) -> tuple[str, ...]:
        """What an empty field may mean, the first unless something else is chosen."""
        found: tuple[str, ...] = () if self.is_required else (LEAVE,)
        found += (NULL,) if self.shape.is_nullable else ()
        if self.shape.is_text or self.shape.kind in EMPTY_ONES:
            found += (EMPTY,)
        return found

    @property
    def asks_about_empty(self) -> bool:
        """Whether it has a field for that; a choice has its meanings among its options."""
        return not self.is_choice and len(self.meanings) > 1

    # Fields -----------------------------------------------------------------------------------

    def fields(self) -> dict[str, forms.Field]:
        """The fields by name."""
        found: dict[str, forms.Field] = {}
        for member in self.members:
            found |= member.fields()
        if not self.members:
            field = input_for(self.shape, meanings=self.meanings)
            field.label = self.label
            field.help_text = self.help_text
            found[self.key] = field
        if self.asks_about_empty:
            words = {**MEANINGS, EMPTY: EMPTY_ONES.get(self.shape.kind, _("send empty text"))}
            found[self.empty_key] = forms.ChoiceField(
                required=False,
                label=_("If %(name)s is empty") % {"name": self.label},
                choices=[(one, words[one]) for one in self.meanings],
            )
        return found

    @property
    def help_text(self) -> str:
        """What the author says of it, and what may be typed."""
        said, hint = str(self.shape.schema.get("description", "")).strip(), self.hint
        if said and hint and said[-1] not in ".!?:;":
            said += "."
        return f"{said} {hint}".strip()

    @property
    def hint(self) -> str:
        """The rules that can be said in words."""
        schema, words = self.shape.schema, []
        if self.shape.kind == "lines":
            words.append(gettext("One per line."))
        if self.shape.kind in ("integer", "number"):
            low, high = bounds(self.shape)
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
        """The schema of what has to be written as JSON, empty for the rest."""
        if self.shape.kind not in ("json", "whole"):
            return ""
        return json.dumps(self.shape.schema, ensure_ascii=False, indent=2)

    # Values -----------------------------------------------------------------------------------

    def read(self, cleaned: Mapping[str, Any]) -> Any:
        """The value that was entered, or ``LEFT_OUT``.

        Raises:
            ValidationError: it may not be left empty; by the name of the field.
        """
        if self.members:
            return self._read_members(cleaned)
        value = cleaned.get(self.key)
        if self.is_choice:
            return self._read_choice(str(value or ""))
        if self.key not in cleaned or self._is_blank(value):
            return self._meant(cleaned)
        return self._listed(value)

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
        return chosen_value(self.shape, option)

    def _listed(self, value: Any) -> Any:
        if self.shape.kind != "choices":
            return value
        return [chosen_value(self.shape, option) for option in value]

    def _meant(self, cleaned: Mapping[str, Any]) -> Any:
        """What an empty field means."""
        if not self.meanings:
            raise ValidationError({self.key: REQUIRED})
        chosen = cleaned.get(self.empty_key) if self.asks_about_empty else None
        meaning = chosen if chosen in self.meanings else self.meanings[0]
        if meaning == EMPTY:
            return {"lines": [], "choices": [], "object": {}}.get(self.shape.kind, "")
        return LEFT_OUT if meaning == LEAVE else None

    def _read_members(self, cleaned: Mapping[str, Any]) -> Any:
        blanks = [one.key in cleaned and one._is_blank(cleaned[one.key]) for one in self.members]
        if all(blanks) and (meant := self._meant(cleaned)) != {}:
            return meant
        found, problems = read_controls(self.members, cleaned)
        if problems:
            raise ValidationError(problems)
        return found

    def initial(self, value: Any) -> dict[str, Any]:
        """A value as its fields show it; for one that is there and empty, that it is."""
        if self.members and isinstance(value, dict):
            found: dict[str, Any] = {} if value else {self.empty_key: EMPTY}
            for member in self.members:
                found |= member.initial(value.get(member.name, LEFT_OUT))
            return found
        if value is LEFT_OUT:
            return {}
        if value is None:
            return (
                {self.key: NULL, self.empty_key: NULL} if self.is_choice else {self.empty_key: NULL}
            )
        if value in ("", [], {}) and self.shape.kind not in ("json", "whole"):
            return {self.empty_key: EMPTY}
        return {self.key: typed(self.shape, value)}

    @property
    def is_choice(self) -> bool:
        """Whether it has options, marked as such."""
        return self.shape.kind in ("choice", "boolean")


def read_controls(
    controls: list[Control], cleaned: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of controls by their names, and what is wrong by the names of fields."""
    found: dict[str, Any] = {}
    problems: dict[str, Any] = {}
    for control in controls:
        try:
            value = control.read(cleaned)
        except ValidationError as exc:
            problems |= exc.error_dict
            continue
        if value is not LEFT_OUT:
            found[control.name] = value
    return found, problems
