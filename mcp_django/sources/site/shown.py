"""What a form shows of the values that it has, before anything is sent."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms


def is_shown(field: forms.Field) -> bool:
    """Whether the value goes out again with the rest, as with all but passwords.

    One that came back would be taken for a new one, and stored as the hash of a hash.
    """
    widget = field.widget
    return not isinstance(widget, forms.PasswordInput) or widget.render_value


def shown_value(form: forms.BaseForm, name: str) -> Any:
    """The value of a field; a moment as it is stored, with what its input has no room for."""
    field = form.fields[name]
    value = form.get_initial_for_field(field, name)
    stored = form.initial.get(name, field.initial)
    if isinstance(stored, dt.datetime | dt.time) and stored.replace(microsecond=0) == value:
        value = stored
    # As text it would be in a time zone that ended with the request.
    is_moment = isinstance(value, dt.datetime | dt.time) and (value.tzinfo or value.microsecond)
    return value if is_moment else form[name].value()
