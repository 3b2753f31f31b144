"""The model form behind a write tool, where the author names none.

It validates what Django's own model forms validate. A change names some fields only, so rules over
several fields are checked with the values that the others have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db.models import Model

from mcp_django.sources.models.repair import ElsewhereError
from mcp_django.sources.models.values import bounded_duration

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Any]
else:
    # Generic in the stubs only.
    _ModelForm = forms.ModelForm


def write_form(model: type[Model], fields: Sequence[str]) -> type[forms.ModelForm[Any]]:
    """A form class for these fields of a model."""
    made: type[forms.ModelForm[Any]] = forms.modelform_factory(
        model, form=WriteForm, fields=list(fields)
    )
    return made


class WriteForm(_ModelForm):
    """Validates a new object, or a change of some fields of an existing one: those in ``only``."""

    def __init__(self, *, only: Sequence[str] | None = None, **options: Any) -> None:
        if only is not None:
            # The values of the others are not even read, which for links are rows without an end.
            self._meta = copy(type(self)._meta)
            self._meta.fields = list(only)
        super().__init__(**options)
        if only is not None:
            for name in set(self.fields) - set(only):
                del self.fields[name]
        for field in self.fields.values():
            if isinstance(field, forms.DurationField):
                field.validators.append(_fits)

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.instance._state.adding or self.errors:
            return
        # Above, rules that also look at a field that was not sent were left out.
        try:
            self.instance.validate_constraints()
        except ValidationError as exc:
            self._update_errors(exc)

    def validate_unique(self) -> None:
        """Check uniqueness, also of combinations with fields that were not sent."""
        if self.instance._state.adding:
            super().validate_unique()
            return
        try:
            self.instance.validate_unique(exclude=set(self.errors))
        except ValidationError as exc:
            self._update_errors(exc)

    def save(self, commit: bool = True) -> Any:  # noqa: FBT001, FBT002 - Django's signature
        """Save the object; a new one never over another that got the same key meanwhile."""
        if not commit or self.errors or not self.instance._state.adding:
            return super().save(commit)
        self.instance.save(force_insert=True)
        self._save_m2m()  # type: ignore[attr-defined]
        return self.instance

    def _update_errors(self, errors: ValidationError) -> None:
        """A model's ``clean`` may complain of a field that is not in the form."""
        if hasattr(errors, "error_dict"):
            placed: dict[str, list[Any]] = {}
            for name, found in errors.error_dict.items():
                if name in self.fields or name == NON_FIELD_ERRORS:
                    placed.setdefault(name, []).extend(found)
                else:
                    elsewhere = [ElsewhereError(name, one) for one in found]
                    placed.setdefault(NON_FIELD_ERRORS, []).extend(elsewhere)
            errors = ValidationError(placed)
        super()._update_errors(errors)  # type: ignore[misc]


def _fits(value: dt.timedelta) -> None:
    """Refuse what some databases cannot hold, before they say so."""
    try:
        bounded_duration(value)
    except ValueError as exc:
        raise ValidationError(str(exc)) from exc
